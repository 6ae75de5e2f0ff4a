/** The world `priority`: who goes first among the programs that wait for a place. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Plugin, type Self, Slot, supported } from "./policy";

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
  /** Predicted tokens still to be generated, -1 without a prediction. */
  readonly remainingTokens: readonly number[];
  /** Predicted seconds still in tools, -1 without a prediction. */
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
export interface PriorityPolicy<C extends Keys, S> extends Definition<C, S> {
  /** A finite score for each program; the highest goes first. */
  score(columns: QueueColumns, self: Self<C, S>): readonly number[];
  /** For each running step, whether to preempt it; at most as many as programs wait. */
  preempt?(columns: PreemptColumns, self: Self<C, S>): readonly boolean[];
}

/** The interface `priority-policy` of the contract. */
export interface PriorityExports {
  score(programs: Given<QueueColumns>): number[];
  preempt(steps: PreemptColumns): boolean[];
}

/** What a component of the world `priority` exports. */
export function definePriority<C extends Keys, S = undefined>(
  policy: PriorityPolicy<C, S>,
): { plugin: Plugin; priorityPolicy: PriorityExports } {
  const slot = new Slot(policy, ["score", "preempt"]);
  const priorityPolicy: PriorityExports = {
    score: (programs) => slot.ask((self) => Array.from(policy.score(slot.columns<QueueColumns>(programs), self))),
    preempt: (steps) => slot.ask((self) => Array.from(supported(policy.preempt).call(policy, steps, self))),
  };
  return { plugin: slot.plugin(), priorityPolicy };
}
