// The policies of a set that can become canaries.
import { expect, it } from "vitest";
import type { BindingShown, PluginView, WhatIfSet } from "../../api/types";
import { trialsOf } from "./trials";

const digest = "ab".repeat(32);
const plugin = { world: "eviction", name: "p", version: "1", digest } as PluginView;
const told = (set: object, bindings: object[], job = "*") =>
  trialsOf(set as WhatIfSet, [plugin], bindings as BindingShown[], job);
const bound = (config: object, job = "*") => ({
  world: "eviction",
  job,
  policy: `p@1+${digest.slice(0, 12)}`,
  on_record: { active: { config } },
});

const { world, name, version } = plugin;
const of = (changes: object = {}) => ({
  asked: [{ world, name, version, config: {}, is_default: false, ...changes }],
});

it("the policies count that are stored and were chosen", () => {
  const trial = { plugin, config: { a: 1 }, role: null, replaces: null };
  expect(told(of({ config: { a: 1 } }), [])).toEqual([trial]);
  expect(told(of({ is_default: true }), [])).toEqual([]);
  expect(told(of({ version: "2" }), [])).toEqual([]);
});

it("a role counts only with the same configuration", () => {
  const roleWith = (config: object) => told(of(), [bound(config)])[0]?.role;
  expect(roleWith({})).toBe("active");
  expect(roleWith({ a: 1 })).toBeNull();
});

it("a canary of the same job is replaced", () => {
  const taken = { ...bound({ a: 1 }, "j"), canary: { policy: "q@1+cd" } };
  expect(told(of(), [bound({}), taken], "j")[0]?.replaces).toBe("q@1+cd");
  expect(told(of(), [taken], "k")[0]?.replaces).toBeNull();
});
