import { expect, test } from "vitest";
import type { BatchMember, TrainingBatch } from "../api/training";
import type { EventView } from "../api/types";
import { linesOf, recordOf } from "./batchLines";

const member = (reward: number | null, tokens: number, version: number): BatchMember => ({
  ...{ program: "p", reward, tokens, version, end: "completed", turns: 1, sample: null },
});
const BATCHES: TrainingBatch[] = [
  {
    ...{ batch: 2, lineage: 0, trained: false },
    groups: [
      { group: "b", version: 0, lag: 1, members: [member(1, 10, 0), member(0, 30, 1)] },
      { group: "c", version: 1, lag: 0, members: [member(null, 20, 1)] },
    ],
  },
  {
    ...{ batch: 1, lineage: 0, trained: true },
    groups: [{ group: "a", version: 0, lag: 0, members: [member(0.5, 8, 0)] }],
  },
];

function journal(...lines: [string, object][]): EventView[] {
  return lines.map(([kind, event], at) => ({
    ...{ seq: at + 1, at_us: at * 100, job: "math", program: null, kind },
    event: event as never,
  }));
}

const EVENTS = journal(
  ["member_dropped", { end: "environment_failed" }],
  ["member_dropped", { end: "unselected" }],
  ["batch_cut", { batch: 1 }],
  ["member_dropped", { end: "engine_failed" }],
  ["version_told", { version: 1 }],
  ["version_served", { version: 1 }],
  ["member_dropped", { end: "cut" }],
  ["member_dropped", { end: "curtailed" }],
  ["batch_cut", { batch: 2 }],
);

test("lines by batch have its lags, and what was lost since the batch before", () => {
  expect(linesOf(BATCHES, recordOf(EVENTS, false), "batch")).toEqual({
    ...{ at: [1, 2], rewards: [0.5, 0.5], tokens: [8, 20] },
    ...{ lagMax: [0, 1], lagMean: [0, 0.5], failed: [1, 1], cut: [1, 2] },
  });
});

test("lines by version are of what it sampled, and of what was lost while engines had it", () => {
  expect(linesOf(BATCHES, recordOf(EVENTS, false), "version")).toEqual({
    ...{ at: [0, 1], rewards: [0.75, 0], tokens: [9, 25] },
    ...{ lagMax: [1, 0], lagMean: [0.5, 0], failed: [2, 0], cut: [1, 2] },
  });
});

test("over time, a batch stands where it was cut, and is absent if that is not on record", () => {
  expect(linesOf(BATCHES, recordOf(EVENTS, false), "time").at).toEqual([200, 800]);
  expect(linesOf(BATCHES, recordOf(EVENTS.slice(3), true), "time").at).toEqual([800]);
});

test("losses are not counted where older events are missing", () => {
  const late = recordOf(EVENTS.slice(3), true);
  expect(linesOf(BATCHES, late, "batch").failed).toEqual([null, null]);
  expect(linesOf(BATCHES, late, "version").cut).toEqual([null, 2]);
  const next = recordOf([...EVENTS.slice(2), ...journal(["batch_cut", { batch: 3 }])], true);
  expect(linesOf(BATCHES, next, "batch").cut).toEqual([null, 2]);
});

test("a job that was removed and declared again has nothing of the earlier one", () => {
  const again = recordOf([...EVENTS, ...journal(["job_removed", {}])], false);
  expect(linesOf(BATCHES, again, "batch").failed).toEqual([null, null]);
  expect(linesOf(BATCHES, again, "time").at).toEqual([]);
});
