// What of a set can be put on trial.
import { expect, it } from "vitest";
import type { BindingShown, PluginView } from "../../api/types";
import { trialsOf } from "./trials";
import type { SetReport } from "./types";

const digest = "ab".repeat(32);
const plugin = { world: "eviction", name: "p", version: "1", digest } as PluginView;
const told = (set: object, bindings: object[], job = "*") =>
  trialsOf(set as SetReport, [plugin], bindings as BindingShown[], job);
const bound = (config: object, job = "*") => ({
  world: "eviction",
  job,
  policy: `p@1+${digest.slice(0, 12)}`,
  on_record: { active: { config } },
});

it("the policies of the report count, else the name", () => {
  const { world, name, version } = plugin;
  const asked = { world, name, version, config: { a: 1 } };
  const trial = { plugin, config: { a: 1 }, role: null, replaces: null };
  expect(told({ name: "mine", asked: [asked] }, [])).toEqual([trial]);
  const exact = { ...asked, version: `1+${digest.slice(0, 12)}` };
  expect(told({ name: "mine", asked: [exact] }, [])).toEqual([trial]);
  expect(told({ name: "mine", asked: [{ ...asked, is_default: true }] }, [])).toEqual([]);
  expect(told({ name: "p@1" }, [])).toHaveLength(1);
  expect(told({ name: "p@1", asked: [] }, [])).toEqual([]);
  expect(told({ name: "sticky" }, [])).toEqual([]);
});

it("a role counts with the same configuration alone", () => {
  const roleWith = (config: object) => told({ name: "p@1" }, [bound(config)])[0]?.role;
  expect(roleWith({})).toBe("active");
  expect(roleWith({ a: 1 })).toBeNull();
});

it("a canary of the same job is replaced", () => {
  const taken = { ...bound({ a: 1 }, "j"), canary: { policy: "q@1+cd" } };
  expect(told({ name: "p@1" }, [bound({}), taken], "j")[0]?.replaces).toBe("q@1+cd");
  expect(told({ name: "p@1" }, [taken], "k")[0]?.replaces).toBeNull();
});
