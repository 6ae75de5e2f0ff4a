/** The world `eviction`: which programs keep their place in a worker's KV cache. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Phase, type Plugin, type Self, Slot, supported } from "./policy";

/** Acting programs on one worker, one row each. */
export interface ActingColumns {
  /** Context length. */
  readonly tokens: readonly number[];
  /** Time in the tool call so far, in milliseconds. */
  readonly phaseMs: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Active programs on one worker, one row each. */
export interface ActiveColumns {
  /** Context length. */
  readonly tokens: readonly number[];
  /** What each does. */
  readonly phase: readonly Phase[];
  /** Time in the present phase, in milliseconds. */
  readonly phaseMs: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Waiting programs, one row each. */
export interface WaitingColumns {
  /** Context length. */
  readonly tokens: readonly number[];
  /** Reasoning where an LLM call is ready to be sent. */
  readonly phase: readonly Phase[];
  /** Time in the waiting queue, in milliseconds. */
  readonly waitedMs: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/**
 * What to do with the KV cache of an acting program: it stays, and so does the program's place; it
 * goes to host memory, and comes back with the program; it goes to a worker with room; it is given
 * up, and computed again when the program comes back.
 */
export type CacheAction = "keep" | "offload" | "migrate" | "drop";

/** Programs that act at one worker, one row each; times in milliseconds. */
export interface RetentionColumns {
  /** Context length. */
  readonly tokens: readonly number[];
  /** Time in the tool call so far. */
  readonly phaseMs: readonly number[];
  /** Time that the tool call is expected to last yet, by those that had lasted as long. */
  readonly idleMs: readonly number[];
  /** Time in which one in ten of such calls ended. */
  readonly soonestMs: readonly number[];
  /** Time to bring the cache back from host memory; `Infinity` if it can't be offloaded. */
  readonly backMs: readonly number[];
  /** Time to move the cache to another worker; `Infinity` if it can't be moved. */
  readonly movedMs: readonly number[];
  /** Time to compute the cache again; 0 if the worker's speed is unknown. */
  readonly prefillMs: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
  /** Tokens that the worker holds; `Infinity` if unknown. */
  readonly capacityTokens: number;
  /** Tokens left below the worker's low watermark; below 0 when it holds more. */
  readonly freeTokens: number;
  /** Tokens that programs without a place need that wait for one. */
  readonly wantedTokens: number;
}

/** A policy of the world `eviction`. */
export interface EvictionPolicy<C extends Keys, S> extends Definition<C, S> {
  /** The share of each program's tokens that counts, within 0 and 1, no larger later. */
  weigh(columns: ActingColumns, self: Self<C, S>): readonly number[];
  /** A finite score for each program; the highest is paused first. */
  pauseOrder(columns: ActiveColumns, self: Self<C, S>): readonly number[];
  /** A finite score for each program; the highest is restored first. */
  restoreOrder(columns: WaitingColumns, self: Self<C, S>): readonly number[];
  /** The action for each cache; one that can't be carried out counts as `keep`. */
  retain?(columns: RetentionColumns, self: Self<C, S>): readonly CacheAction[];
}

/** The interface `eviction-policy` of the contract. */
export interface EvictionExports {
  weigh(programs: Given<ActingColumns>): number[];
  pauseOrder(programs: Given<ActiveColumns>): number[];
  restoreOrder(programs: Given<WaitingColumns>): number[];
  retain(programs: Given<RetentionColumns>): CacheAction[];
}

/** What a component of the world `eviction` exports. */
export function defineEviction<C extends Keys, S = undefined>(
  policy: EvictionPolicy<C, S>,
): { plugin: Plugin; evictionPolicy: EvictionExports } {
  const slot = new Slot(policy, ["weigh", "pauseOrder", "restoreOrder", "retain"]);
  const evictionPolicy: EvictionExports = {
    weigh: (programs) => slot.ask((self) => Array.from(policy.weigh(slot.columns<ActingColumns>(programs), self))),
    pauseOrder: (programs) => slot.ask((self) => Array.from(policy.pauseOrder(slot.columns<ActiveColumns>(programs), self))),
    restoreOrder: (programs) => slot.ask((self) => Array.from(policy.restoreOrder(slot.columns<WaitingColumns>(programs), self))),
    retain: (programs) => slot.ask((self) => Array.from(supported(policy.retain).call(policy, bounded(slot.columns<RetentionColumns>(programs)), self))),
  };
  return { plugin: slot.plugin(), evictionPolicy };
}

/** The contract's largest number means no limit; single numbers may be of type bigint. */
function bounded(columns: RetentionColumns): RetentionColumns {
  const [capacityTokens, freeTokens] = [unbounded(Number(columns.capacityTokens)), Number(columns.freeTokens)];
  const [backMs, movedMs] = [columns.backMs.map(unbounded), columns.movedMs.map(unbounded)];
  return { ...columns, capacityTokens, freeTokens, wantedTokens: Number(columns.wantedTokens), backMs, movedMs };
}

/** It arrives as -1. */
function unbounded(value: number): number {
  return value < 0 ? Infinity : value;
}
