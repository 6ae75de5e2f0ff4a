// The demo's comparison.
import { describe, expect, it } from "vitest";
import type { DemoArm, DemoComparison } from "../api/types";
import { colorOfArm, isOver, linesOf, timesBaseline } from "./demo";

const arm = (name: string, steps_per_min: number, more: Partial<DemoArm> = {}): DemoArm => ({
  ...{ name, steps_per_min, url: "http://127.0.0.1:1", is_own: false, answered: 0, hit_rate: 0 },
  ...{ step_p50_s: null, step_p99_s: null, points: [], ...more },
});

const run = (minute: number, arms: DemoArm[]): DemoComparison => ({
  ...{ arms, minute, minutes: 22, warmup_minutes: 4, time_scale: 30, workload: "agents" },
});

describe("how many times the baseline", () => {
  it("shows a speedup for the others, once both have steps", () => {
    const [plain, sticky, own] = [arm("least-load", 50), arm("sticky", 100), arm("treadle", 143)];
    const arms = [plain, sticky, own];
    expect(arms.map((one) => timesBaseline(one, arms))).toEqual([0.5, null, 1.43]);
    const young = [arm("treadle", 10), arm("sticky", 0)];
    expect(young.map((one) => timesBaseline(one, young))).toEqual([null, null]);
    const idle = [arm("treadle", 0), arm("sticky", 10)];
    expect(timesBaseline(idle[0] as DemoArm, idle)).toBeNull();
    expect(timesBaseline(own, [own])).toBeNull();
  });
});

describe("lines", () => {
  const points = (...pairs: [number, number][]) =>
    pairs.map(([minute, steps_per_min]) => ({ minute, steps_per_min }));

  it("are on the minutes of all arms, and end where their points do", () => {
    const arms = [
      arm("sticky", 0, { points: points([1, 10], [2, 30]) }),
      arm("treadle", 0, { points: points([0.5, 5], [1.5, 7], [2, 9], [2.5, 11]) }),
    ];
    expect(linesOf(arms)).toEqual({
      minutes: [0.5, 1, 1.5, 2, 2.5],
      values: [
        [null, 10, 20, 30, null],
        [5, 6, 7, 9, 11],
      ],
    });
  });

  it("are empty before there is a point", () => {
    expect(linesOf([])).toEqual({ minutes: [], values: [] });
    expect(linesOf([arm("sticky", 0)])).toEqual({ minutes: [], values: [[]] });
  });

  it("have colours of their own", () => {
    const colors = ["least-load", "sticky", "treadle"].map(colorOfArm);
    expect(new Set(colors).size).toBe(3);
    expect(colorOfArm("another")).toMatch(/^series-/);
  });
});

describe("a run", () => {
  it("is over at its last minute, or when all daemons have gone", () => {
    const gone = arm("sticky", 9, { url: null });
    const arms = [arm("treadle", 9), gone];
    expect(isOver(run(5, arms), false)).toBe(false);
    expect(isOver(run(22, arms), false)).toBe(true);
    expect(isOver(run(21.9, [gone]), false)).toBe(true);
    expect(isOver(run(0, [gone]), false)).toBe(false);
  });

  it("is over where its daemon is gone shortly before the end", () => {
    const arms = [arm("treadle", 9)];
    // A sample every 1.5 s is one every 0.75 minutes at 30 times real time.
    expect(isOver(run(20.6, arms), true)).toBe(true);
    expect(isOver(run(20.6, arms), false)).toBe(false);
    expect(isOver(run(20.4, arms), true)).toBe(false);
  });
});
