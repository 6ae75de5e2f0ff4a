import { describe, expect, it } from "vitest";
import { rewardSteps, rewardToken } from "./rewards";

describe("rewards", () => {
  it("gives each of a few rewards its colour", () => {
    const steps = rewardSteps([1, 0, 1, 0]);
    expect(steps.map((step) => [step.label, step.token])).toEqual([
      ["0", "failed"],
      ["1", "tool"],
    ]);
    expect(rewardToken(steps, 0)).toBe("failed");
    expect(rewardToken(steps, null)).toBe("unused");
    expect(rewardSteps([-0.25]).map((step) => step.token)).toEqual(["tool"]);
    expect(rewardSteps([])).toEqual([]);
    expect(rewardToken([], 1)).toBe("unused");
  });
  it("divides many into steps of equal width", () => {
    const steps = rewardSteps([-1, 0, 0.1, 0.2, 0.3, 0.9, 3]);
    expect(steps.map((step) => step.label)).toEqual(["-1 to 0", "0 to 1", "1 to 2", "2 to 3"]);
    expect([-1, 0, 0.9, 1.5, 3].map((reward) => rewardToken(steps, reward))).toEqual([
      "failed",
      "failed",
      "queued",
      "prefill",
      "tool",
    ]);
  });
});
