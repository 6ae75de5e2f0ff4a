// The parts of answers about policies that the schema leaves open.

export const WORLDS = ["prediction", "priority", "placement", "allocation", "eviction", "reward"];

export interface Canary {
  policy: string;
  share: number;
  regret: number;
  trial: { incumbent: Trial; canary: Trial };
}

interface Trial {
  count: number;
  mean: number;
}

export interface Shadow {
  policy: string;
  answered: number;
  faults: number;
  skipped: number;
  same_first: number;
  agreement: number;
  latest_fault: unknown;
}

export interface Statistics {
  calls: number;
  rows: number;
  fallbacks: number;
  not_supported: number;
  faults: Record<string, number>;
  latest_fault: unknown;
  compute_us: number;
  slowest_us: number;
  latency_counts: number[];
  memory_bytes: number;
  restarts: number;
}

export interface LogLine {
  number: number;
  now_ms: number;
  level: string;
  message: string;
  dropped_before: number;
}

export interface CheckReport {
  name: string;
  version: string;
  world: string;
  summary: string;
  digest: string;
  compile_ms: number;
  functions: string[];
  columns: string[];
  imports: string[];
  smoke: { call: string; rows: number; best_ns: number }[];
}

export interface Refusal {
  code: string;
  what: string;
  where: string;
  remedy: string;
}

/** A policy without its digest. */
export function shortPolicy(policy: string): string {
  return policy.split("+")[0] ?? policy;
}

/** The digest of a policy by which the API finds it; null for built-in ones. */
export function digestOf(policy: string): string | null {
  const digest = policy.split("+")[1];
  return digest && digest !== "native" ? digest : null;
}
