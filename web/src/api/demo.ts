// What `GET /api/v1/demo` answers. Written by hand until the generated schema has it; then these three
// become `Schemas["DemoComparison"]` and so on in `types.ts`, and the request one of `call`.
import { send } from "./client";

/** Schedulers side by side, as far as they are. Times are scaled. */
export interface DemoComparison {
  /** One for each scheduler; none where the daemon is part of no demo. */
  arms: DemoArm[];
  /** Minutes so far. */
  minute: number;
  /** Minutes in all. */
  minutes: number;
  /** The first of them, of which no latencies are kept. */
  warmup_minutes: number;
  /** Scaled seconds in a real one. */
  time_scale: number;
  /** What the agents do. */
  workload: string;
}

/** One scheduler. */
export interface DemoArm {
  name: string;
  /** Its daemon's; none before that has started and once it has ended. */
  url?: string | null;
  /** Whether that is the daemon that was asked. */
  is_own: boolean;
  /** Steps answered since the beginning. */
  answered: number;
  /** Over the last two minutes. */
  steps_per_min: number;
  /** Share of prompt tokens found in caches. */
  hit_rate: number;
  step_p50_s?: number | null;
  step_p99_s?: number | null;
  points: DemoPoint[];
}

/** Steps per minute at one time. */
export interface DemoPoint {
  minute: number;
  steps_per_min: number;
}

/** Reads it. */
export async function readDemo(signal: AbortSignal): Promise<DemoComparison> {
  const answer = await send("/api/v1/demo", { signal });
  return (await answer.json()) as DemoComparison;
}
