// The program that ends last is not always the one that has lasted longest.
import { expect, it } from "vitest";
import type { ProgramView, StepView } from "../api/types";
import { endOf, lastToEnd } from "./critical";

const program = (fields: Partial<ProgramView>): ProgramView =>
  ({ created_at_us: 0, updated_at_us: 40, output_tokens: 100, ...fields }) as ProgramView;
const step = { predicted_tokens: 60, output_tokens_total: 90 } as StepView;

it("the end is known, expected from what is predicted, or neither", () => {
  expect(endOf(program({ ended: "released" }), [step], 100)).toBe(40);
  expect(endOf(program({}), [step], 100)).toBe(150);
  expect(endOf(program({}), [], 100)).toBeNull();
});

it("the last to end is the one to wait for", () => {
  const long = { begun: 0, ended: 80, end: 80 };
  const late = { begun: 70, ended: 100, end: 150 };
  const unknown = { begun: 60, ended: 100, end: null };
  expect(lastToEnd([long, unknown, late])).toBe(late);
  expect(lastToEnd([long, { ...unknown, begun: 90 }, unknown])).toBe(unknown);
  expect(lastToEnd([])).toBeNull();
});
