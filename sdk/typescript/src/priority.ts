/** The world `priority`: who goes first among the programs that wait for a place. */

import { type Definition, type Extra, type Plugin, type Self, Slot, supported } from "./policy";

/** Waiting programs, one row each. */
export interface QueueColumns {
  /** Context length. */
  readonly tokens: readonly number[];
  /** Tokens generated so far, all steps together. */
  readonly outputTokens: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Time in the queue, in milliseconds. */
  readonly waitedMs: readonly number[];
  /** Predicted tokens still to be generated, -1 where nothing was predicted. */
  readonly remainingTokens: readonly number[];
  /** Predicted seconds still in tools, -1 where nothing was predicted. */
  readonly remainingToolS: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Running steps, one row each, and beside them what waits. */
export interface PreemptColumns {
  /** What `score` gave for the program of each running step. */
  readonly runningScore: readonly number[];
  /** How long each step has run, in milliseconds. */
  readonly runningMs: readonly number[];
  /** What `score` gave for each waiting program. */
  readonly waitingScore: readonly number[];
}

/** A policy of the world `priority`. */
export interface PriorityPolicy<C, S> extends Definition<C, S> {
  /** A finite score for each program; the highest goes first. */
  score(columns: QueueColumns, self: Self<C, S>): readonly number[];
  /** For each running step, 1 if it is to give way, else 0; at most as many as wait. */
  preempt?(columns: PreemptColumns, self: Self<C, S>): readonly number[];
}

/** The interface `priority-policy` of the contract. */
export interface PriorityExports {
  score(
    tokens: readonly number[],
    outputTokens: readonly number[],
    steps: readonly number[],
    waitedMs: readonly number[],
    remainingTokens: readonly number[],
    remainingToolS: readonly number[],
    extra: readonly number[],
  ): number[];
  preempt(
    runningScore: readonly number[],
    runningMs: readonly number[],
    waitingScore: readonly number[],
  ): Uint8Array;
}

/** What a component of the world `priority` exports. */
export function definePriority<C extends object, S = undefined>(
  policy: PriorityPolicy<C, S>,
): { plugin: Plugin; priorityPolicy: PriorityExports } {
  const slot = new Slot(policy);
  const priorityPolicy: PriorityExports = {
    score: (tokens, outputTokens, steps, waitedMs, remainingTokens, remainingToolS, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, tokens.length);
        return Array.from(policy.score({ tokens, outputTokens, steps, waitedMs, remainingTokens, remainingToolS, extra }, self));
      }),
    preempt: (runningScore, runningMs, waitingScore) =>
      slot.ask((self) => {
        return Uint8Array.from(supported(policy.preempt).call(policy, { runningScore, runningMs, waitingScore }, self));
      }),
  };
  return { plugin: slot.plugin(), priorityPolicy };
}
