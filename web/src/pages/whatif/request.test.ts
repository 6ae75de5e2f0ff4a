// Requests for runs.
import { expect, it } from "vitest";
import { configOf } from "../../model/schemaForm";
import { requestOf, SHAPE, settingsOf } from "./request";

const texts = { seeds: "2", slot_lag_s: "3", engines: "3", kv_fraction: "6" };

it("a trace comes with its shape, and without what has no effect on it", () => {
  expect(requestOf(["sticky"], { name: "a.jsonl", text: "{}" }, texts, null)).toEqual({
    sets: ["sticky"],
    seeds: 2,
    trace: { text: "{}", engines: 3, kv_fraction: 6 },
    profile: null,
  });
});

it("a window comes without the shape of a trace", () => {
  expect(requestOf(["sticky"], { from_seq: 1 }, texts, "p")).toEqual({
    sets: ["sticky"],
    seeds: 2,
    slot_lag_s: 3,
    window: { from_seq: 1 },
    profile: "p",
  });
});

it("the daemon's bounds hold", () => {
  const errors = (of: Record<string, string>) =>
    configOf([...settingsOf(true), ...SHAPE], of).errors;
  expect(errors({ engines: "64", runs: "100000", kv_fraction: "100" })).toEqual({});
  expect(errors({ engines: "65", programs: "0", kv_tokens: "0" })).toEqual({
    engines: "At most 64.",
    programs: "At least 1.",
    kv_tokens: "At least 1.",
  });
});
