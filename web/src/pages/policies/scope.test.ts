// For whom bindings hold.
import { describe, expect, it } from "vitest";
import type { BindingShown } from "../../api/types";
import { scopeOf, scopeOfNew } from "./scope";

const root = { root: true, tenant: "default", tenants: 2 };
const member = { root: false, tenant: "acme", tenants: 2 };
const binding = (job: string) => ({ world: "eviction", job, policy: "p@1" }) as BindingShown;

describe("scopes", () => {
  it("of new bindings depend on the tenant and on the job", () => {
    expect(scopeOfNew("*", root).text).toBe("all jobs of all tenants");
    expect(scopeOfNew("*", { ...root, root: false, tenants: 1 }).permitted).toBe(true);
    expect(scopeOfNew("*", member).text).toBe("all jobs of tenant acme");
    expect(scopeOfNew("j", member).text).toBe("job j of tenant acme");
    expect(scopeOfNew("*", { ...root, root: false }).permitted).toBe(false);
    expect(scopeOfNew("j", { ...root, root: false }).permitted).toBe(true);
  });
  it("of shown bindings tell a tenant's own from everyone's", () => {
    const all = [binding("*"), binding("*"), binding("j")];
    const scopes = (asker: typeof root) => all.map((one) => scopeOf(one, all, asker));
    expect(scopes(member).map(({ text }) => text)).toEqual([
      "all jobs of all tenants",
      "all jobs of tenant acme",
      "job j of tenant acme",
    ]);
    expect(scopes({ ...member, root: true }).map(({ permitted }) => permitted)).toEqual([
      false,
      true,
      true,
    ]);
  });
  it("of other tenants are named, and not changed from here", () => {
    const other = binding("\u001facme\u001f*");
    expect(scopeOf(other, [binding("*"), other], root)).toEqual({
      text: "all jobs of tenant acme",
      permitted: false,
    });
  });
});
