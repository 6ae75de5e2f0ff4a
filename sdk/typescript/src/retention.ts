/** The world `eviction-retention`: as `eviction`, and what becomes of caches of acting programs. */

import { type EvictionExports, type EvictionPolicy, evictionExports } from "./eviction";
import { type Extra, type Plugin, type Self, Slot } from "./policy";

/** What becomes of the KV cache of an acting program: the codes of the contract. */
export const Fate = {
  /** It stays, and so does the program's place. */
  keep: 0,
  /** It goes to host memory, and comes back with the program. */
  offload: 1,
  /** It goes to a worker with room. */
  migrate: 2,
  /** It is given up, and computed again when the program comes back. */
  drop: 3,
} as const;

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
  /** Time to bring the cache back from host memory; above 1e19 where it cannot go there. */
  readonly backMs: readonly number[];
  /** Time to move the cache to another worker; above 1e19 where it cannot be moved. */
  readonly movedMs: readonly number[];
  /** Time to compute the cache again; 0 where the worker's pace is not known. */
  readonly prefillMs: readonly number[];
  /** LLM calls finished so far. */
  readonly steps: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
  /** Tokens that the worker holds; above 1e19 where that is not known. */
  readonly capacityTokens: number;
  /** Tokens left below the worker's low watermark; below 0 when it holds more. */
  readonly freeTokens: number;
  /** Tokens that programs without a place need that wait for one. */
  readonly wantedTokens: number;
}

/** A policy of the world `eviction-retention`. */
export interface RetentionPolicy<C, S> extends EvictionPolicy<C, S> {
  /** One of `Fate` for each program; what cannot be carried out counts as `Fate.keep`. */
  retain(columns: RetentionColumns, self: Self<C, S>): readonly number[];
}

/** The interface `retention-policy` of the contract. */
export interface RetentionExports {
  retain(
    capacityTokens: number | bigint,
    freeTokens: number | bigint,
    wantedTokens: number | bigint,
    tokens: readonly number[],
    phaseMs: readonly number[],
    idleMs: readonly number[],
    soonestMs: readonly number[],
    backMs: readonly number[],
    movedMs: readonly number[],
    prefillMs: readonly number[],
    steps: readonly number[],
    extra: readonly number[],
  ): Uint8Array;
}

/** What a component of the world `eviction-retention` exports. */
export function defineRetention<C extends object, S = undefined>(
  policy: RetentionPolicy<C, S>,
): { plugin: Plugin; evictionPolicy: EvictionExports; retentionPolicy: RetentionExports } {
  const slot = new Slot(policy);
  const retentionPolicy: RetentionExports = {
    retain: (capacity, free, wanted, tokens, phaseMs, idleMs, soonestMs, backMs, movedMs, prefillMs, steps, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, tokens.length);
        const [capacityTokens, freeTokens, wantedTokens] = [capacity, free, wanted].map(Number);
        const times = { phaseMs, idleMs, soonestMs, backMs, movedMs, prefillMs };
        const columns = { capacityTokens, freeTokens, wantedTokens, tokens, ...times, steps, extra };
        return Uint8Array.from(policy.retain(columns, self));
      }),
  };
  return { plugin: slot.plugin(), evictionPolicy: evictionExports(policy, slot), retentionPolicy };
}
