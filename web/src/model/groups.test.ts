import { expect, test } from "vitest";
import type { GroupMember, TrainingGroup } from "../api/training";
import { openMembers } from "./groups";

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
