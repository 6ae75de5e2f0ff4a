/** The world `allocation`: how much of a resource each consumer gets. */

import { type Definition, type Extra, type Plugin, type Self, Slot, supported } from "./policy";

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
  /** Expected run time with `unitsMin`, -1 where it is not known. */
  readonly expectedMs: readonly number[];
  /** What each pool has left; one entry per pool. */
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
  /** KV cache of one worker of that degree. */
  readonly capacityTokens: readonly number[];
  /** Expected length of each program that is to run. */
  readonly expectedTokens: readonly number[];
}

/** Prompts whose rollouts run, one row each. */
export interface RedundancyColumns {
  /** Finished rollouts that training needs. */
  readonly wanted: readonly number[];
  /** Rollouts that have finished. */
  readonly finished: readonly number[];
  /** Rollouts that run. */
  readonly running: readonly number[];
  /** Rollouts that failed. */
  readonly failed: readonly number[];
  /** How long the oldest running one has run, in milliseconds. */
  readonly runningMs: readonly number[];
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** A policy of the world `allocation`. */
export interface AllocationPolicy<C, S> extends Definition<C, S> {
  /** Units for each action: 0 to let it wait, else within its bounds and its pool. */
  grant(columns: GrantColumns, self: Self<C, S>): readonly number[];
  /** Workers of each degree; degrees times counts add up to at most `gpus`. */
  parallelism?(columns: ParallelismColumns, self: Self<C, S>): readonly number[];
  /** Further rollouts to start now for each prompt. */
  redundancy?(columns: RedundancyColumns, self: Self<C, S>): readonly number[];
}

/** The interface `allocation-policy` of the contract. */
export interface AllocationExports {
  grant(
    pool: readonly number[],
    unitsMin: readonly number[],
    unitsMax: readonly number[],
    waitedMs: readonly number[],
    expectedMs: readonly number[],
    freeUnits: readonly number[],
    extra: readonly number[],
  ): number[];
  parallelism(
    gpus: number,
    degree: readonly number[],
    tokenUs: readonly number[],
    capacityTokens: readonly number[],
    expectedTokens: readonly number[],
  ): number[];
  redundancy(
    wanted: readonly number[],
    finished: readonly number[],
    running: readonly number[],
    failed: readonly number[],
    runningMs: readonly number[],
    extra: readonly number[],
  ): number[];
}

/** What a component of the world `allocation` exports. */
export function defineAllocation<C extends object, S = undefined>(
  policy: AllocationPolicy<C, S>,
): { plugin: Plugin; allocationPolicy: AllocationExports } {
  const slot = new Slot(policy);
  const allocationPolicy: AllocationExports = {
    grant: (pool, unitsMin, unitsMax, waitedMs, expectedMs, freeUnits, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, pool.length);
        return Array.from(policy.grant({ pool, unitsMin, unitsMax, waitedMs, expectedMs, freeUnits, extra }, self));
      }),
    parallelism: (gpus, degree, tokenUs, capacityTokens, expectedTokens) =>
      slot.ask((self) => {
        return Array.from(supported(policy.parallelism).call(policy, { gpus, degree, tokenUs, capacityTokens, expectedTokens }, self));
      }),
    redundancy: (wanted, finished, running, failed, runningMs, flat) =>
      slot.ask((self) => {
        const extra = slot.extra(flat, wanted.length);
        return Array.from(supported(policy.redundancy).call(policy, { wanted, finished, running, failed, runningMs, extra }, self));
      }),
  };
  return { plugin: slot.plugin(), allocationPolicy };
}
