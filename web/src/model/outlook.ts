// Predictions after steps compared with the outcomes, and the staleness of their weights.
import type { StepView } from "../api/types";

/** Tokens that a program has generated after a step so far; null if unknown. */
export function followed(step: StepView, programTokens: number | null | undefined): number | null {
  const then = step.output_tokens_total ?? null;
  if (then === null || programTokens === null || programTokens === undefined) return null;
  return Math.max(0, programTokens - then);
}

/**
 * How many versions newer than its own the job of each step has seen. What a step was read with is
 * out of date once a newer version is among the steps that were read later.
 */
export function stalenessOf(steps: Iterable<StepView>): (step: StepView) => number | null {
  const jobs = new Map<string, Map<string, { first: number; read: number }>>();
  for (const step of steps) {
    const { weight_version: version, finished_at_us: at } = step;
    if (!version || !at) continue;
    const versions = jobs.get(step.job ?? "") ?? new Map();
    const known = versions.get(version) ?? { first: at, read: 0 };
    known.first = Math.min(known.first, at);
    known.read = Math.max(known.read, step.staleness ?? 0);
    jobs.set(step.job ?? "", versions.set(version, known));
  }
  const ages = new Map<string, Map<string, number>>();
  for (const [job, versions] of jobs) {
    const newestFirst = [...versions].sort(([, a], [, b]) => b.first - a.first);
    ages.set(job, new Map(newestFirst.map(([name, one], at) => [name, Math.max(at, one.read)])));
  }
  return (step) => ages.get(step.job ?? "")?.get(step.weight_version ?? "") ?? null;
}
