// Quantiles of calls that are counted by buckets.
import { expect, it } from "vitest";
import { BOUNDS_US, DEADLINES, quantileUs } from "./deadlines";
import { WORLDS } from "./types";

const counts = (entries: Record<number, number>) =>
  Array.from({ length: BOUNDS_US.length + 1 }, (_, at) => entries[at] ?? 0);

it("a quantile is the bound of its bucket", () => {
  expect(quantileUs(counts({}), 0.5)).toBeNull();
  expect(quantileUs(counts({ 2: 99, 8: 1 }), 0.5)).toBe(5);
  expect(quantileUs(counts({ 2: 99, 8: 1 }), 0.99)).toBe(5);
  expect(quantileUs(counts({ 2: 98, 8: 2 }), 0.99)).toBe(1000);
  expect(quantileUs(counts({ 12: 1 }), 0.99)).toBe(Number.POSITIVE_INFINITY);
});

it("every world has its deadlines", () => {
  expect(Object.keys(DEADLINES).sort()).toEqual([...WORLDS].sort());
});
