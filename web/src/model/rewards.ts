// Rewards in a few steps from the lowest to the highest, for colours.
import { short } from "../format/number";
import type { State } from "./states";

/** Colours from the lowest rewards to the highest. */
const TOKENS: State[] = ["failed", "queued", "prefill", "tool"];

export interface RewardStep {
  token: State;
  label: string;
  /** The highest reward that it has. */
  to: number;
}

/** Steps of equal width, or one for each reward where those are few. */
export function rewardSteps(rewards: number[]): RewardStep[] {
  const distinct = [...new Set(rewards)].sort((a, b) => a - b);
  const least = distinct[0];
  const most = distinct.at(-1);
  if (least === undefined || most === undefined) return [];
  if (distinct.length <= TOKENS.length) {
    // The highest of several has the last colour, the lowest the first.
    const few = distinct.length === 2 ? [TOKENS[0], TOKENS[3]] : TOKENS.slice(-distinct.length);
    return distinct.map((to, at) => ({ token: few[at] ?? "tool", label: short(to), to }));
  }
  const width = (most - least) / TOKENS.length;
  const edge = (at: number) => (at === TOKENS.length ? most : least + at * width);
  return TOKENS.map((token, at) => ({
    token,
    label: `${short(edge(at))} to ${short(edge(at + 1))}`,
    to: edge(at + 1),
  }));
}

/** The colour of a reward; one of nothing for a program without any. */
export function rewardToken(steps: RewardStep[], reward: number | null | undefined): State {
  if (reward === null || reward === undefined) return "unused";
  return (steps.find((step) => reward <= step.to) ?? steps.at(-1))?.token ?? "unused";
}
