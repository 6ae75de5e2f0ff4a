// The report of a what-if run; the schema leaves it open.
import type { Measure } from "../../model/confidence";

export type { Measure };

/** What a set came to under one seed. */
export interface SeedOutcome {
  makespan_s: number;
  steps_per_min: number;
  step_p99_s: number;
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
  policies?: { answered: number; fallbacks: number; faults: number; given_up: number };
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

/** The measures that are compared; `better` says which way is good. */
export const MEASURES: {
  key: keyof Report["recorded"] | "fairness" | "pauses" | "moves" | "offloads" | "preemptions";
  label: string;
  better: "less" | "more" | "neither";
  unit: "s" | "share" | "number";
}[] = [
  { key: "makespan_s", label: "Makespan", better: "less", unit: "s" },
  { key: "steps_per_min", label: "Steps a minute", better: "more", unit: "number" },
  { key: "hit_rate", label: "Found in cache", better: "more", unit: "share" },
  { key: "step_p50_s", label: "Step, median", better: "less", unit: "s" },
  { key: "step_p95_s", label: "Step, p95", better: "less", unit: "s" },
  { key: "step_p99_s", label: "Step, p99", better: "less", unit: "s" },
  { key: "fairness", label: "Fairness (1 is equal)", better: "more", unit: "number" },
  { key: "pauses", label: "Pauses", better: "neither", unit: "number" },
  { key: "offloads", label: "Offloads", better: "neither", unit: "number" },
  { key: "moves", label: "Moves", better: "neither", unit: "number" },
  { key: "preemptions", label: "Preemptions", better: "neither", unit: "number" },
];
