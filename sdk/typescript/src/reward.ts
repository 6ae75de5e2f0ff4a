/** The world `reward`: what a finished program is worth. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Plugin, type Self, Slot } from "./policy";

/** Finished programs, one row each. */
export interface AnswerColumns {
  /** The program's final answer. */
  readonly answer: readonly string[];
  /** The expected answer; empty without one. */
  readonly reference: readonly string[];
  /** Tokens generated, all steps together. */
  readonly outputTokens: readonly number[];
  /** LLM calls. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Rewards of programs, and the parts that make them up. */
export interface Scores {
  /** The reward of each program, finite. */
  readonly totals: readonly number[];
  /** Parts by their names, each as long as `totals`; may be left out. */
  readonly parts?: Readonly<Record<string, readonly number[]>>;
}

/** Scores as the component model knows them. */
export interface FlatScores {
  totals: number[];
  partNames: string[];
  parts: number[];
}

function flattened({ totals, parts = {} }: Scores): FlatScores {
  return { totals: Array.from(totals), partNames: Object.keys(parts), parts: Object.values(parts).flat() };
}

/** A policy of the world `reward`. */
export interface RewardPolicy<C extends Keys, S> extends Definition<C, S> {
  /** Rewards of finished programs. */
  score(columns: AnswerColumns, self: Self<C, S>): Scores;
}

/** The interface `reward-policy` of the contract. */
export interface RewardExports {
  score(programs: Given<AnswerColumns>): FlatScores;
}

/** What a component of the world `reward` exports. */
export function defineReward<C extends Keys, S = undefined>(
  policy: RewardPolicy<C, S>,
): { plugin: Plugin; rewardPolicy: RewardExports } {
  const slot = new Slot(policy, ["score"]);
  const rewardPolicy: RewardExports = {
    score: (programs) => slot.ask((self) => flattened(policy.score(slot.columns<AnswerColumns>(programs), self))),
  };
  return { plugin: slot.plugin(), rewardPolicy };
}
