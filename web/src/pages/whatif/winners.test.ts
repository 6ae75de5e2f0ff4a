// Which set is best by which measure.
import { expect, it } from "vitest";
import type { WhatIfReport, WhatIfSet } from "../../api/types";
import { winnersOf } from "./winners";

const set = (
  name: string,
  makespan: number,
  ratio: number,
  fairness: number,
  half_width = 0.1,
) => ({
  name,
  makespan_s: { mean: makespan, half_width },
  fairness: { mean: fairness, half_width: half_width / 10 },
  against_first: { makespan_ratio: { mean: ratio, half_width } },
});
const report = (sets: object[]) => ({ sets: sets as WhatIfSet[] }) as WhatIfReport;
const told = (of: WhatIfReport) =>
  winnersOf(of).map((one) => [one.set.name, ...one.measures.map(({ label }) => label)]);

it("each measure has its own winner, and chance none", () => {
  const { against_first: _, ...first } = set("first", 10, 1, 0.5);
  const fast = set("fast", 5, 0.5, 0.4);
  const fair = set("fair", 9, 0.95, 0.8);
  expect(told(report([first, fast, fair]))).toEqual([
    ["fast", "Makespan"],
    ["fair", "Fairness (1 is equal)"],
  ]);
  const slow = set("slow", 20, 2, 0.5);
  expect(told(report([first, slow]))).toEqual([["first", "Makespan"]]);
  expect(told(report([first, slow, fair]))).toEqual([["fair", "Fairness (1 is equal)"]]);
  const both = set("both", 4, 0.4, 0.9);
  expect(told(report([first, fast, both]))).toEqual([
    ["both", "Makespan", "Fairness (1 is equal)"],
  ]);
});

it("one seed has no winner", () => {
  const single = {
    name: "alone",
    makespan_s: { mean: 1 },
    against_first: { makespan_ratio: { mean: 0.1 } },
  };
  expect(told(report([set("first", 10, 1, 0.5), single]))).toEqual([]);
});
