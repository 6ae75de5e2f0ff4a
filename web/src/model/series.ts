// Series over time, from the metrics; what steps found in caches.
import type { StepView } from "../api/types";
import type { Point } from "../live/history";

/** Finished steps and their tokens over time. */
export interface Throughput {
  times: number[];
  stepsPerMin: (number | null)[];
  tokensPerS: (number | null)[];
}

/** How fast steps and tokens were counted between each point and the one before; null over a restart. */
export function throughputBetween(points: Point[]): Throughput {
  const rate = (name: string, at: number): number | null => {
    const [before, after] = [points[at - 1], points[at]];
    if (!before || !after || after.at <= before.at) return null;
    const counted = (after.metrics.sum(name) ?? 0) - (before.metrics.sum(name) ?? 0);
    return counted < 0 ? null : counted / ((after.at - before.at) / 1e6);
  };
  const later = points.slice(1);
  return {
    times: later.map((point) => point.at),
    stepsPerMin: later.map((_, at) => {
      const steps = rate("treadle_steps_finished_total", at + 1);
      return steps === null ? null : steps * 60;
    }),
    tokensPerS: later.map((_, at) => rate("treadle_output_tokens_total", at + 1)),
  };
}

/** Programs by state at each point. */
export function programStates(points: Point[]): {
  running: number[];
  queued: number[];
  tool: number[];
  paused: number[];
} {
  const read = (name: string) => points.map((point) => point.metrics.sum(name) ?? 0);
  const programs = read("treadle_programs");
  const reasoning = read("treadle_programs_reasoning");
  const queued = read("treadle_queue_programs");
  const held = read("treadle_worker_programs_acting");
  const running = reasoning.map((value, at) => Math.max(0, value - (queued[at] ?? 0)));
  const paused = programs.map((value, at) =>
    Math.max(0, value - (running[at] ?? 0) - (queued[at] ?? 0) - (held[at] ?? 0)),
  );
  return { running, queued, tool: held, paused };
}

/** How the memory of all workers was used between each point and the one before, as shares. */
export function memoryShares(points: Point[], uses: string[]): (number | null)[][] {
  const totals = points.map((point) => {
    const byUse: Record<string, number> = {};
    for (const sample of point.metrics.all("treadle_kv_token_seconds_total")) {
      const use = sample.labels.use ?? "";
      byUse[use] = (byUse[use] ?? 0) + sample.value;
    }
    return byUse;
  });
  return uses.map((use) =>
    totals.map((total, at) => {
      const before = totals[Math.max(0, at - MEMORY_SPAN)] ?? total;
      const sum = uses.reduce((all, one) => all + (total[one] ?? 0) - (before[one] ?? 0), 0);
      return sum > 0 ? ((total[use] ?? 0) - (before[use] ?? 0)) / sum : null;
    }),
  );
}

const MEMORY_SPAN = 5;

/** Prompt tokens of the steps whose engine reports cached tokens, and the cached ones. */
export function cachedOf(steps: Pick<StepView, "prompt_tokens" | "cached_tokens">[]): {
  cached: number;
  prompt: number;
} {
  const known = steps.filter((step) => step.cached_tokens != null);
  return {
    cached: known.reduce((sum, step) => sum + (step.cached_tokens ?? 0), 0),
    prompt: known.reduce((sum, step) => sum + step.prompt_tokens, 0),
  };
}

/** The share of prompt tokens found in caches over the last points, of steps whose engine
 *  reports them. */
export function hitRates(points: Point[], span = 10): (number | null)[] {
  const prompt = points.map(
    (point) => point.metrics.sum("treadle_cache_reported_prompt_tokens_total") ?? 0,
  );
  const cached = points.map((point) => point.metrics.sum("treadle_cached_tokens_total") ?? 0);
  return points.map((_, at) => {
    const from = Math.max(0, at - span);
    const all = (prompt[at] ?? 0) - (prompt[from] ?? 0);
    return all > 0 ? ((cached[at] ?? 0) - (cached[from] ?? 0)) / all : null;
  });
}
