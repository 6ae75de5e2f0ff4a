/** The world `eviction`: which programs keep their place in a worker's KV cache. */

import { type Definition, type Extra, type Plugin, type Self, Slot, supported } from "./policy";

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
  /** 1 while acting, 0 while reasoning. */
  readonly acting: Uint8Array;
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
  /** 1 when an LLM call is ready to be sent, 0 while an action runs. */
  readonly reasoning: Uint8Array;
  /** Time in the waiting queue, in milliseconds. */
  readonly waitedMs: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Services that may be unloaded, one row each. */
export interface ServiceColumns {
  /** Memory that it holds. */
  readonly bytes: readonly number[];
  /** Time since it was used last, in milliseconds. */
  readonly idleMs: readonly number[];
  /** Time to load it again, in milliseconds. */
  readonly loadMs: readonly number[];
  /** Times that it was used in the last hour. */
  readonly uses: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** A policy of the world `eviction`. */
export interface EvictionPolicy<C, S> extends Definition<C, S> {
  /** The share of each program's tokens that counts, within 0 and 1, no larger later. */
  weigh(columns: ActingColumns, self: Self<C, S>): readonly number[];
  /** A finite score for each program; the highest is paused first. */
  pauseOrder(columns: ActiveColumns, self: Self<C, S>): readonly number[];
  /** A finite score for each program; the highest is restored first. */
  restoreOrder(columns: WaitingColumns, self: Self<C, S>): readonly number[];
  /** A finite score for each service; the highest is dropped first. */
  dropOrder?(columns: ServiceColumns, self: Self<C, S>): readonly number[];
}

/** The interface `eviction-policy` of the contract. */
export interface EvictionExports {
  weigh(
    tokens: readonly number[],
    phaseMs: readonly number[],
    extra: readonly number[],
  ): number[];
  pauseOrder(
    tokens: readonly number[],
    acting: Uint8Array,
    phaseMs: readonly number[],
    steps: readonly number[],
    extra: readonly number[],
  ): number[];
  restoreOrder(
    tokens: readonly number[],
    reasoning: Uint8Array,
    waitedMs: readonly number[],
    steps: readonly number[],
    extra: readonly number[],
  ): number[];
  dropOrder(
    bytes: readonly number[],
    idleMs: readonly number[],
    loadMs: readonly number[],
    uses: readonly number[],
    extra: readonly number[],
  ): number[];
}

/** What a component of the world `eviction` exports. */
export function defineEviction<C extends object, S = undefined>(
  policy: EvictionPolicy<C, S>,
): { plugin: Plugin; evictionPolicy: EvictionExports } {
  const slot = new Slot(policy);
  return { plugin: slot.plugin(), evictionPolicy: evictionExports(policy, slot) };
}

/** The interface `eviction-policy` of a component. */
export function evictionExports<C extends object, S>(
  policy: EvictionPolicy<C, S>,
  slot: Slot<C, S>,
): EvictionExports {
  return {
    weigh: (tokens, phaseMs, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, tokens.length);
        return Array.from(policy.weigh({ tokens, phaseMs, extra }, self));
      }),
    pauseOrder: (tokens, acting, phaseMs, steps, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, tokens.length);
        return Array.from(policy.pauseOrder({ tokens, acting, phaseMs, steps, extra }, self));
      }),
    restoreOrder: (tokens, reasoning, waitedMs, steps, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, tokens.length);
        return Array.from(policy.restoreOrder({ tokens, reasoning, waitedMs, steps, extra }, self));
      }),
    dropOrder: (bytes, idleMs, loadMs, uses, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, bytes.length);
        return Array.from(supported(policy.dropOrder).call(policy, { bytes, idleMs, loadMs, uses, extra }, self));
      }),
  };
}
