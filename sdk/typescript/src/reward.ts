/** The world `reward`: what a finished program is worth, and which are trained on. */

import { type Definition, type Extra, type Plugin, type Self, Slot, supported } from "./policy";

/** Finished programs, one row each. */
export interface AnswerColumns {
  /** The program's final answer. */
  readonly answer: readonly string[];
  /** What it is compared with; empty where there is none. */
  readonly reference: readonly string[];
  /** Tokens generated, all steps together. */
  readonly outputTokens: readonly number[];
  /** LLM calls. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Finished programs that could be trained on, one row each. */
export interface CandidateColumns {
  /** An opaque number, the same for programs with the same prompt; rounded to 53 bits. */
  readonly group: readonly number[];
  /** What `score` gave. */
  readonly reward: readonly number[];
  /** How many weight versions old the program is. */
  readonly staleness: readonly number[];
  /** Tokens generated, all steps together. */
  readonly outputTokens: readonly number[];
  /** The most rows that may be selected. */
  readonly wanted: number;
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
export interface RewardPolicy<C, S> extends Definition<C, S> {
  /** Rewards of finished programs. */
  score(columns: AnswerColumns, self: Self<C, S>): Scores;
  /** The rows to train on: distinct, at most `wanted`, best first. */
  select?(columns: CandidateColumns, self: Self<C, S>): readonly number[];
}

/** The interface `reward-policy` of the contract. */
export interface RewardExports {
  score(
    answer: readonly string[],
    reference: readonly string[],
    outputTokens: readonly number[],
    steps: readonly number[],
    extra: readonly number[],
  ): FlatScores;
  select(
    group: readonly number[],
    reward: readonly number[],
    staleness: readonly number[],
    outputTokens: readonly number[],
    wanted: number,
    extra: readonly number[],
  ): number[];
}

/** What a component of the world `reward` exports. */
export function defineReward<C extends object, S = undefined>(
  policy: RewardPolicy<C, S>,
): { plugin: Plugin; rewardPolicy: RewardExports } {
  const slot = new Slot(policy);
  const rewardPolicy: RewardExports = {
    score: (answer, reference, outputTokens, steps, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, answer.length);
        return flattened(policy.score({ answer, reference, outputTokens, steps, extra }, self));
      }),
    select: (group, reward, staleness, outputTokens, wanted, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, group.length);
        return Array.from(supported(policy.select).call(policy, { group, reward, staleness, outputTokens, wanted, extra }, self));
      }),
  };
  return { plugin: slot.plugin(), rewardPolicy };
}
