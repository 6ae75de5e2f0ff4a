// The report of a what-if run; the schema leaves it open.
import type { Measure } from "../../model/confidence";

export type { Measure };

/** What a set came to under one seed. */
export interface SeedOutcome {
  makespan_s: number;
  steps_per_min: number;
  step_p99_s: number;
}

/** A policy of a set, as it was replayed. */
export interface AskedPolicy {
  world: string;
  name: string;
  /** With the digest behind a `+` where it is known. */
  version: string;
  config?: Record<string, unknown>;
  /** Whether nobody chose it. */
  is_default?: boolean;
}

export interface SetReport {
  name: string;
  makespan_s: Measure;
  steps_per_min: Measure;
  hit_rate: Measure;
  step_p50_s: Measure;
  step_p95_s: Measure;
  step_p99_s: Measure;
  fairness: Measure;
  job_fairness: Measure;
  pauses: Measure;
  moves: Measure;
  offloads: Measure;
  preemptions: Measure;
  given_up: number;
  refused: number;
  seeds: SeedOutcome[];
  /** What became of the questions to its policies. */
  policies?: { given_up: number };
  /** The policies that it asked. */
  asked?: AskedPolicy[];
  against_first?: {
    makespan_ratio: Measure;
    steps_per_min_ratio: Measure;
    step_p99_ratio: Measure;
    programs_decided_otherwise: number;
    differences: Difference[];
  };
}

export interface Difference {
  program: string;
  same_before: number;
  ours: DifferingDecision | null;
  theirs: DifferingDecision | null;
}

export interface DifferingDecision {
  kind: string;
  because: string;
  worker: number;
  at_s: number;
  need_tokens: number;
  used_tokens: number;
  capacity_tokens: number | null;
  waited_s: number;
  policy: string;
}

export interface Report {
  recorded: {
    makespan_s: number;
    steps_per_min: number;
    hit_rate: number;
    step_p50_s: number;
    step_p95_s: number;
    step_p99_s: number;
    steps: number;
  };
  sets: SetReport[];
  programs: number;
  steps: number;
  jobs: number;
  seeds: number;
  jitter: number;
  profile: string;
  took_s: number;
  cut_short?: unknown;
  cuts: Record<string, number>;
}

export interface MeasureRow {
  key:
    | (keyof Report["recorded"] & keyof SetReport)
    | "fairness"
    | "pauses"
    | "moves"
    | "offloads"
    | "preemptions";
  label: string;
  /** Which way is good. */
  better: "less" | "more" | "neither";
  unit: "s" | "share" | "number";
  /** The ratio to the first set, seed by seed: what is common to both under a seed cancels out. */
  ratio?: "makespan_ratio" | "steps_per_min_ratio" | "step_p99_ratio";
}

/** The measures that are compared. */
export const MEASURES: MeasureRow[] = [
  { key: "makespan_s", label: "Makespan", better: "less", unit: "s", ratio: "makespan_ratio" },
  {
    key: "steps_per_min",
    label: "Steps a minute",
    better: "more",
    unit: "number",
    ratio: "steps_per_min_ratio",
  },
  { key: "hit_rate", label: "Found in cache", better: "more", unit: "share" },
  { key: "step_p50_s", label: "Step, median", better: "less", unit: "s" },
  { key: "step_p95_s", label: "Step, p95", better: "less", unit: "s" },
  { key: "step_p99_s", label: "Step, p99", better: "less", unit: "s", ratio: "step_p99_ratio" },
  { key: "fairness", label: "Fairness (1 is equal)", better: "more", unit: "number" },
  { key: "pauses", label: "Pauses", better: "neither", unit: "number" },
  { key: "offloads", label: "Offloads", better: "neither", unit: "number" },
  { key: "moves", label: "Moves", better: "neither", unit: "number" },
  { key: "preemptions", label: "Preemptions", better: "neither", unit: "number" },
];
