/** The world `allocation`: how much of a resource each consumer gets. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Plugin, type Self, Slot, supported } from "./policy";

/** Queued actions, one row each, and the pools. */
export interface GrantColumns {
  /** The row of `freeUnits` that the action draws from. */
  readonly pool: readonly number[];
  /** The least that it can run with. */
  readonly unitsMin: readonly number[];
  /** The most that it can use. */
  readonly unitsMax: readonly number[];
  /** Time in the queue, in milliseconds. */
  readonly waitedMs: readonly number[];
  /** Expected run time with `unitsMin`, -1 if unknown. */
  readonly expectedMs: readonly number[];
  /** Free units of each pool; one entry per pool. */
  readonly freeUnits: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Degrees of tensor parallelism, one row each, and what is to run. */
export interface ParallelismColumns {
  /** Devices to share out. */
  readonly gpus: number;
  /** Degrees that can be had, ascending. */
  readonly degree: readonly number[];
  /** Time per output token of one program alone, in microseconds. */
  readonly tokenUs: readonly number[];
  /** Time that each further program adds to this, in microseconds, -1 if unknown. */
  readonly stepUs: readonly number[];
  /** Time per prompt token, in microseconds, -1 if unknown. */
  readonly prefillUs: readonly number[];
  /** KV cache of one worker of that degree. */
  readonly capacityTokens: readonly number[];
  /** Expected length of each program that is to run. */
  readonly expectedTokens: readonly number[];
  /** Context of a program in addition to generated tokens and tool results. */
  readonly promptTokens: number;
  /** Growth of contexts in tokens per generated token, -1 if unknown. */
  readonly growth: number;
  /** Time in tools per generated token, in microseconds, -1 if unknown. */
  readonly toolUs: number;
}

/** A policy of the world `allocation`. */
export interface AllocationPolicy<C extends Keys, S> extends Definition<C, S> {
  /** Units for each action: 0 to let it wait, else within its bounds and its pool. */
  grant(columns: GrantColumns, self: Self<C, S>): readonly number[];
  /** Workers of each degree; degrees times counts add up to at most `gpus`. */
  parallelism?(columns: ParallelismColumns, self: Self<C, S>): readonly number[];
}

/** The interface `allocation-policy` of the contract. */
export interface AllocationExports {
  grant(actions: Given<GrantColumns>): number[];
  parallelism(degrees: ParallelismColumns): number[];
}

/** What a component of the world `allocation` exports. */
export function defineAllocation<C extends Keys, S = undefined>(
  policy: AllocationPolicy<C, S>,
): { plugin: Plugin; allocationPolicy: AllocationExports } {
  const slot = new Slot(policy, ["grant", "parallelism"]);
  const allocationPolicy: AllocationExports = {
    grant: (actions) => slot.ask((self) => Array.from(policy.grant(slot.columns<GrantColumns>(actions), self))),
    parallelism: (degrees) => slot.ask((self) => Array.from(supported(policy.parallelism).call(policy, degrees, self))),
  };
  return { plugin: slot.plugin(), allocationPolicy };
}
