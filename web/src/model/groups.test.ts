import { expect, test } from "vitest";
import type { GroupMember, TrainingGroup } from "../api/training";
import { barsOf, groupedRows, openMembers, rangeOf, spreadOf, stragglerOf } from "./groups";

const member = (program: string, fields: Partial<GroupMember> = {}): GroupMember => ({
  ...{ program, begun_at_us: 0, end: null, reward: null, version: 0, tokens: 0, turns: 0 },
  ...{ sample: null, ...fields },
});
const groupOf = (members: GroupMember[], fields: Partial<TrainingGroup> = {}): TrainingGroup => ({
  ...{ group: "p1", state: "running", size: 4, begun: members.length, ended: 0, rewarded: 0 },
  ...{ version: 0, failures: 0, returned: 0, surplus: 0, lost: [], members, ...fields },
});

test("members come before those that were lost, and the latest of these first", () => {
  const lost = [
    { program: "x", end: "cut", cause: null },
    { program: "y", end: "capture_failed", cause: "no ids" },
  ];
  const members = [member("a", { end: "truncated" }), member("b", { incomplete: "no ids" })];
  const rows = openMembers(groupOf(members, { lost }));
  expect(rows.map(({ program, state, cause }) => [program, state, cause])).toEqual([
    ["a", "truncated", null],
    ["b", "running", "no ids"],
    ["y", "lost: capture failed", "no ids"],
    ["x", "lost: cut", null],
  ]);
});

test("the spread of a group is that of the members with a reward", () => {
  const rewards = [1, null, 0, 0.5];
  const group = groupOf(rewards.map((reward, at) => member(String(at), { reward })));
  expect(spreadOf(group)).toEqual({ min: 0, mean: 0.5, max: 1, rewards: [0, 0.5, 1] });
  expect(spreadOf(groupOf([member("a")]))).toBeNull();
});

test("a group waits for the running member that began first, then for the longest one", () => {
  const ended = member("a", { begun_at_us: 1, end: "completed" });
  const late = member("b", { begun_at_us: 9, tokens: 99 });
  const short = member("c", { begun_at_us: 5, tokens: 1 });
  const long = member("d", { begun_at_us: 5, tokens: 2 });
  expect(stragglerOf(groupOf([ended, late, short, long]))).toBe(long);
  expect(stragglerOf(groupOf([ended]))).toBeNull();
});

test("bars of all groups share a scale that begins at zero or below", () => {
  const one = groupOf([member("a", { reward: 0.5 }), member("b", { reward: 2 })]);
  const other = groupOf([member("c", { reward: 1 }), member("d")]);
  const { low, high } = rangeOf([one, other, groupOf([])]);
  expect([low, high]).toEqual([0, 2]);
  expect(barsOf([0.5, 2], low, high)).toEqual([0.25, 1]);
  expect(rangeOf([groupOf([member("a", { reward: -1 })])])).toEqual({ low: -1, high: -1 });
  expect(barsOf([-1], -1, -1)).toEqual([0]);
  const many = Array.from({ length: 101 }, (_, at) => at);
  const bars = barsOf(many, 0, 100);
  expect([bars.length, bars[0], bars.at(-1)]).toEqual([16, 0, 1]);
});

test("members are listed below the group that is open", () => {
  const groups = [groupOf([member("a")]), groupOf([member("b"), member("c")], { group: "p2" })];
  const named = (open?: string) =>
    groupedRows(groups, open).map((row) => row.member?.program ?? row.group.group);
  expect(named()).toEqual(["p1", "p2"]);
  expect(named("p2")).toEqual(["p1", "p2", "b", "c"]);
});
