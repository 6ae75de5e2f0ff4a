// Predictions after steps compared with the outcomes, and the staleness of their weights.
import type { StepView } from "../api/types";

/** Tokens that a program has generated after a step so far; null if unknown. */
export function followed(step: StepView, programTokens: number | null | undefined): number | null {
  const then = step.output_tokens_total ?? null;
  if (then === null || programTokens === null || programTokens === undefined) return null;
  return Math.max(0, programTokens - then);
}

/** How many versions newer than its own the job of each step has, among these steps. */
export function stalenessOf(steps: Iterable<StepView>): (step: StepView) => number | null {
  const jobs = new Map<string, Map<string, number>>();
  for (const step of steps) {
    const { weight_version: version, finished_at_us: at } = step;
    if (!version || !at) continue;
    const firstSeen = jobs.get(step.job ?? "") ?? new Map<string, number>();
    firstSeen.set(version, Math.min(firstSeen.get(version) ?? at, at));
    jobs.set(step.job ?? "", firstSeen);
  }
  const ages = new Map<string, Map<string, number>>();
  for (const [job, firstSeen] of jobs) {
    const newestFirst = [...firstSeen].sort(([, a], [, b]) => b - a);
    ages.set(job, new Map(newestFirst.map(([name], age) => [name, age])));
  }
  return (step) => ages.get(step.job ?? "")?.get(step.weight_version ?? "") ?? null;
}
