/** The world `prediction`: how much of each program is still to come. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Plugin, type Self, Slot, supported } from "./policy";

/** Live programs, one row each. */
export interface LiveColumns {
  /** An opaque number, the same for programs of one group (samples of one task); rounded to 53 bits. */
  readonly group: readonly number[];
  /** Context length. */
  readonly tokens: readonly number[];
  /** Tokens generated so far, all steps together. */
  readonly outputTokens: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Time in tools so far, in milliseconds. */
  readonly toolMs: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** What was known at some step of a finished program, and what then came. */
export interface FinishedColumns {
  /** An opaque number, the same for programs of one group (samples of one task); rounded to 53 bits. */
  readonly group: readonly number[];
  /** Context length. */
  readonly tokens: readonly number[];
  /** Tokens generated so far, all steps together. */
  readonly outputTokens: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Time in tools so far, in milliseconds. */
  readonly toolMs: readonly number[];
  /** Tokens that were generated after that step. */
  readonly remainingTokens: readonly number[];
  /** Time in tools after that step, in milliseconds. */
  readonly remainingToolMs: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Estimates, one entry per program in each list. */
export interface Estimates {
  /** Tokens still to be generated: the mean, finite and not negative. */
  readonly remainingTokens: readonly number[];
  /** Their 90th percentile, at least the mean. */
  readonly remainingTokensP90: readonly number[];
  /** Seconds still to be spent in tools, finite and not negative. */
  readonly remainingToolS: readonly number[];
}

/** A policy of the world `prediction`. */
export interface PredictionPolicy<C extends Keys, S> extends Definition<C, S> {
  /** Estimates for live programs. */
  predict(columns: LiveColumns, self: Self<C, S>): Estimates;
  /** Takes in the truth about programs that have finished. */
  learn?(columns: FinishedColumns, self: Self<C, S>): void;
}

/** The interface `prediction-policy` of the contract. */
export interface PredictionExports {
  predict(programs: Given<LiveColumns>): Estimates;
  learn(programs: Given<FinishedColumns>): void;
}

/** What a component of the world `prediction` exports. */
export function definePrediction<C extends Keys, S = undefined>(
  policy: PredictionPolicy<C, S>,
): { plugin: Plugin; predictionPolicy: PredictionExports } {
  const slot = new Slot(policy, ["predict", "learn"]);
  const predictionPolicy: PredictionExports = {
    predict: (programs) => slot.ask((self) => policy.predict(slot.columns<LiveColumns>(programs), self)),
    learn: (programs) => slot.ask((self) => supported(policy.learn).call(policy, slot.columns<FinishedColumns>(programs), self)),
  };
  return { plugin: slot.plugin(), predictionPolicy };
}
