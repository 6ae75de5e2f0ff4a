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
  it("counts versions by job, and trusts the later reading", () => {
    const ended = (finished_at_us: number, weight_version: string, staleness: number, job = "j") =>
      step({ finished_at_us, weight_version, staleness, job });
    // The first was read when it was the newest; the third says that there were two since.
    const steps = [ended(1, "a", 0), ended(5, "b", 0), ended(6, "c", 2), ended(9, "x", 0, "other")];
    const staleness = stalenessOf([...steps, step({})]);
    expect(steps.map(staleness)).toEqual([2, 1, 2, 0]);
    expect(staleness(step({}))).toBeNull();
  });
});
