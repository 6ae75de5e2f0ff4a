// Which program of many ends last: until then, nothing of its job can be over.
import type { ProgramView, StepView } from "../api/types";
import { followed } from "./outlook";

/** When a program ended, or is expected to end; null without a prediction. */
export function endOf(program: ProgramView, steps: StepView[], now: number): number | null {
  if (program.ended) return program.updated_at_us;
  const generated = program.output_tokens ?? 0;
  const step = steps.findLast((one) => one.predicted_tokens != null);
  const since = step ? followed(step, generated) : null;
  if (!step || since === null || generated === 0) return null;
  // Assumes its speed so far, tools and waits included.
  const left = Math.max(0, (step.predicted_tokens ?? 0) - since);
  return now + (left * (now - program.created_at_us)) / generated;
}

interface Course {
  begun: number;
  /** When it ended, or the time now. */
  ended: number;
  /** When it ended, or is expected to end. */
  end: number | null;
}

/** The program that ends last; among those without a known end, the one that has lasted longest. */
export function lastToEnd<T extends Course>(courses: T[]): T | null {
  const end = (one: Course) => one.end ?? one.ended;
  return courses.reduce<T | null>((last, one) => {
    if (last === null || end(one) > end(last)) return one;
    return end(one) === end(last) && one.begun < last.begun ? one : last;
  }, null);
}
