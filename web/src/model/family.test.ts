// The lanes of what a program started and of what started it.
import { expect, it } from "vitest";
import type { ProgramView } from "../api/types";
import { ALONE, familyLanes } from "./family";

const program = (program_id: string, from: number, to: number, parent = "p"): ProgramView =>
  ({
    program_id,
    parent,
    status: "finished",
    phase: "acting",
    ended: "released",
    created_at_us: from,
    updated_at_us: to,
  }) as ProgramView;
const name = (worker: string) => worker;

it("subagents are level under level, in lanes without overlaps", () => {
  const below = [
    [program("b", 50, 90), program("a", 10, 60), program("c", 60, 70)],
    [program("aa", 20, 30, "a")],
  ];
  const lanes = familyLanes({ ...ALONE, above: [program("p", 0, 99)], below }, 100, name);
  const seen = lanes.below.map(({ label, spans }) => [label, spans.map((span) => span.program)]);
  expect(seen).toEqual([
    ["Subagents", ["a", "c"]],
    ["Subagents", ["b"]],
    ["Subagents, level 2", ["aa"]],
  ]);
  expect(lanes.below[2]?.spans[0]?.label).toBe("aa, started by a");
  expect(lanes.above.map((lane) => lane.spans[0]?.program)).toEqual(["p"]);
  expect(lanes.below[0]?.spans[0]?.state).toBe("life");
  expect(lanes.hidden).toEqual([]);
});

it("those that find no place are counted by what started them", () => {
  const level = Array.from({ length: 9 }, (_, at) => program(`s${at}`, at, 100));
  const { below, hidden } = familyLanes({ ...ALONE, below: [level], cut: ["p"] }, 100, name);
  expect(below).toHaveLength(6);
  expect(hidden).toEqual([{ parent: "p", count: 3, more: true }]);
});
