import { expect, test } from "vitest";
import type { EventView } from "../api/types";
import { membersOf } from "./members";

const of = (program: string, job = "math") => ({ member: { job, group: "p1", program } });
const told = (events: [string, string, object][]): EventView[] =>
  events.map(([kind, program, event], seq) => ({
    ...{ seq, at_us: 0, kind, program, job: "math", event: event as Record<string, never> },
  }));

test("the journal tells of members: their groups, ends and rewards", () => {
  const events = told([
    ["member_arrived", "a", of("a")],
    ["member_arrived", "b", of("b")],
    ["member_arrived", "c", of("c", "other")],
    ["member_ended", "a", { ...of("a"), end: "completed", reward: "0.5" }],
    ["reward_given", "a", { ...of("a"), reward: "0.25" }],
    ["capture_failed", "b", { ...of("b"), cause: "no ids" }],
    ["program_rewarded", "b", { program: "b", reward_millionths: 500_000 }],
    ["program_rewarded", "d", { program: "d", reward_millionths: 500_000 }],
  ]);
  expect(membersOf("math", events.toReversed())).toEqual([
    { program: "a", group: "p1", end: "completed", reward: 0.25, cause: null },
    { program: "b", group: "p1", end: "capture_failed", reward: 0.5, cause: "no ids" },
  ]);
});

test("a client's report takes the place of a capture that failed", () => {
  const events = told([
    ["capture_failed", "a", { ...of("a"), cause: "no ids" }],
    ["member_ended", "a", { ...of("a"), end: "truncated" }],
  ]);
  expect(membersOf("math", events)).toEqual([
    { program: "a", group: "p1", end: "truncated", reward: null, cause: null },
  ]);
});
