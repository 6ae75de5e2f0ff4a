// The measures by which sets are compared.
import type { WhatIfRecorded, WhatIfSet } from "../../api/types";

export interface MeasureRow {
  key:
    | (keyof WhatIfRecorded & keyof WhatIfSet)
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
