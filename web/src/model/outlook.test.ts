import { describe, expect, it } from "vitest";
import type { StepView } from "../api/types";
import { followed, stalenessOf } from "./outlook";

const step = (fields: Partial<StepView>): StepView => ({
  step: 1,
  program_id: "p",
  job: "j",
  arrived_at_us: 0,
  prompt_tokens: 1,
  output_tokens: 1,
  waited_us: 0,
  ...fields,
});

describe("outlook", () => {
  it("says what followed where both totals are known", () => {
    expect(followed(step({ output_tokens_total: 40 }), 100)).toBe(60);
    expect(followed(step({ output_tokens_total: 40 }), 30)).toBe(0);
    expect(followed(step({ output_tokens_total: 40 }), null)).toBeNull();
    expect(followed(step({}), 100)).toBeNull();
  });
  it("counts the versions that each job has had since", () => {
    const ended = (finished_at_us: number, weight_version: string, job = "j") =>
      step({ finished_at_us, weight_version, job });
    const steps = [ended(1, "a"), ended(5, "b"), ended(6, "c"), ended(7, "b"), ended(9, "x", "k")];
    const staleness = stalenessOf([...steps, step({})]);
    expect(steps.map(staleness)).toEqual([2, 1, 0, 1, 0]);
    expect(staleness(step({}))).toBeNull();
  });
});
