/** The world `prediction`: how much of each program is still to come. */

import { type Definition, type Extra, type Plugin, type Self, Slot, supported } from "./policy";

/** Live programs, one row each. */
export interface LiveColumns {
  /** An opaque number, the same for programs with the same prompt; rounded to 53 bits. */
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
  /** An opaque number, the same for programs with the same prompt; rounded to 53 bits. */
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
export interface PredictionPolicy<C, S> extends Definition<C, S> {
  /** Estimates for live programs. */
  predict(columns: LiveColumns, self: Self<C, S>): Estimates;
  /** Takes in the truth about programs that have finished. */
  learn?(columns: FinishedColumns, self: Self<C, S>): void;
}

/** The interface `prediction-policy` of the contract. */
export interface PredictionExports {
  predict(
    group: readonly number[],
    tokens: readonly number[],
    outputTokens: readonly number[],
    steps: readonly number[],
    toolMs: readonly number[],
    extra: readonly number[],
  ): Estimates;
  learn(
    group: readonly number[],
    tokens: readonly number[],
    outputTokens: readonly number[],
    steps: readonly number[],
    toolMs: readonly number[],
    remainingTokens: readonly number[],
    remainingToolMs: readonly number[],
    extra: readonly number[],
  ): void;
}

/** What a component of the world `prediction` exports. */
export function definePrediction<C extends object, S = undefined>(
  policy: PredictionPolicy<C, S>,
): { plugin: Plugin; predictionPolicy: PredictionExports } {
  const slot = new Slot(policy);
  const predictionPolicy: PredictionExports = {
    predict: (group, tokens, outputTokens, steps, toolMs, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, group.length);
        return policy.predict({ group, tokens, outputTokens, steps, toolMs, extra }, self);
      }),
    learn: (group, tokens, outputTokens, steps, toolMs, remainingTokens, remainingToolMs, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, group.length);
        supported(policy.learn).call(policy, { group, tokens, outputTokens, steps, toolMs, remainingTokens, remainingToolMs, extra }, self);
      }),
  };
  return { plugin: slot.plugin(), predictionPolicy };
}
