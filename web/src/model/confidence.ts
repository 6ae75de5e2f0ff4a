// How sure a comparison over seeds is.
import type { WhatIfEstimate } from "../api/types";

/** A ratio to the first set, seed by seed: what of it is beyond chance. */
export interface Confidence {
  /** The ends of the 95 % interval; nothing of one seed. */
  interval: [number, number] | null;
  verdict: "better" | "worse" | "chance" | "one seed";
  /** Seeds under which it was better, of how many. */
  wins: number;
  seeds: number;
}

/** `own` and `first` have the figure under each seed. */
export function confidenceOf(
  ratio: WhatIfEstimate,
  own: number[],
  first: number[],
  better: "less" | "more",
): Confidence {
  const seeds = Math.min(own.length, first.length);
  const isBetter = (a: number, b: number) => (better === "less" ? a < b : a > b);
  const wins = own
    .slice(0, seeds)
    .filter((value, at) => isBetter(value, first[at] ?? value)).length;
  if (typeof ratio.half_width !== "number")
    return { interval: null, verdict: "one seed", wins, seeds };
  const interval: [number, number] = [ratio.mean - ratio.half_width, ratio.mean + ratio.half_width];
  const [low, high] = interval;
  const verdict = low <= 1 && high >= 1 ? "chance" : isBetter(ratio.mean, 1) ? "better" : "worse";
  return { interval, verdict, wins, seeds };
}
