import { describe, expect, it } from "vitest";
import { confidenceOf } from "./confidence";

describe("confidence", () => {
  it("takes for a gain only what is beyond chance", () => {
    const gain = confidenceOf({ mean: 0.8, half_width: 0.1 }, [8, 8, 8], [10, 10, 10], "less");
    expect(gain.verdict).toBe("better");
    expect(gain.interval?.[0]).toBeCloseTo(0.7);
    expect([gain.wins, gain.seeds]).toEqual([3, 3]);
    const none = confidenceOf({ mean: 0.9, half_width: 0.2 }, [8, 11], [10, 10], "less");
    expect([none.verdict, none.wins]).toEqual(["chance", 1]);
    const loss = confidenceOf({ mean: 0.9, half_width: 0.05 }, [9, 9], [10, 10], "more");
    expect([loss.verdict, loss.wins]).toEqual(["worse", 0]);
  });
  it("says nothing of one seed", () => {
    const one = confidenceOf({ mean: 0.5 }, [5], [10], "less");
    expect(one).toEqual({ interval: null, verdict: "one seed", wins: 1, seeds: 1 });
  });
});
