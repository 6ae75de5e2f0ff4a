/** The world `allocation`: how much of a resource each consumer gets. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Plugin, type Self, Slot, supported, unsigned } from "./policy";

/** Waiting actions in the order in which they are served, one row each, and what there is for them. */
export interface ActionColumns {
  /** The row in `pools` of its key resource: the one whose amount is variable. */
  readonly pool: readonly number[];
  /**
   * 1 for a candidate. Candidates are the first rows that fit together in every resource, each with
   * its smallest option.
   */
  readonly candidate: readonly number[];
  /** Time in the queue, in microseconds. */
  readonly waitedUs: readonly number[];
  /**
   * Index of each row's first option in the three lists below; one entry more than rows. `optionsOf`
   * returns those of a row.
   */
  readonly optionStart: readonly number[];
  /** Units of the key resource, ascending within a row. */
  readonly optionUnits: readonly number[];
  /** Expected run time with these units, in microseconds; -1 if unknown. */
  readonly optionUs: readonly number[];
  /** Time to load its service onto the devices first, in microseconds. */
  readonly optionLoadUs: readonly number[];
  /** The resources that actions use. */
  readonly pools: PoolColumns;
  /** Running actions. */
  readonly running: RunningColumns;
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Resources of actions, one row each. */
export interface PoolColumns {
  /** Free units; for chunked pools the sum of the free chunks. */
  readonly freeUnits: readonly number[];
  /**
   * 1 if units are devices in chunks of 1, 2, 4 and 8. An action then gets one chunk, of the
   * smallest size with its units; larger chunks are split, smaller ones are never merged.
   */
  readonly chunked: readonly number[];
  /** Free chunks of 1, 2, 4 and 8 devices: four entries per pool, 0 if it is not chunked. */
  readonly freeChunks: readonly number[];
}

/** Running actions, one row each. */
export interface RunningColumns {
  /** The row of its pool. */
  readonly pool: readonly number[];
  /** Units that it holds. */
  readonly units: readonly number[];
  /** Expected remaining run time, in microseconds. */
  readonly leftUs: readonly number[];
}

/** Degrees of tensor parallelism, one row each, and the expected programs. */
export interface ParallelismColumns {
  /** Devices to distribute. */
  readonly gpus: number;
  /** Available degrees, ascending. */
  readonly degree: readonly number[];
  /** Time per output token of one program by itself, in microseconds. */
  readonly tokenUs: readonly number[];
  /** Time that each further program adds to this, in microseconds; -1 if unknown. */
  readonly stepUs: readonly number[];
  /** Time per prompt token, in microseconds; -1 if unknown. */
  readonly prefillUs: readonly number[];
  /** KV cache of one worker of that degree, in tokens. */
  readonly capacityTokens: readonly number[];
  /** Expected length of each program, in tokens; one entry per program. */
  readonly expectedTokens: readonly number[];
  /** Context of a program in addition to generated tokens and tool results. */
  readonly promptTokens: number;
  /** Growth of contexts in tokens per generated token, including tool results; -1 if unknown. */
  readonly growth: number;
  /** Time in tools per generated token, in microseconds; -1 if unknown. */
  readonly toolUs: number;
}

/** A policy of the world `allocation`. */
export interface AllocationPolicy<C extends Keys, S> extends Definition<C, S> {
  /**
   * For each row the option with which it starts now, as an index within the row's options; -1 to
   * let it wait. Actions that start must fit into the free units of their pool, which `Arrangement`
   * ensures. Scheduling waits for the answer.
   */
  arrange(columns: ActionColumns, self: Self<C, S>): readonly number[];
  /** How many workers of each degree to run; degrees times counts add up to at most `gpus`. */
  parallelism?(columns: ParallelismColumns, self: Self<C, S>): readonly number[];
}

/** Actions as the contract has them: pools and running actions are given beside. */
export type GivenActions = Omit<Given<ActionColumns>, "pools" | "running">;

/** The interface `allocation-policy` of the contract. */
export interface AllocationExports {
  arrange(actions: GivenActions, pools: PoolColumns, running: RunningColumns): number[];
  parallelism(degrees: ParallelismColumns): number[];
}

/** What a component of the world `allocation` exports. */
export function defineAllocation<C extends Keys, S = undefined>(
  policy: AllocationPolicy<C, S>,
): { plugin: Plugin; allocationPolicy: AllocationExports } {
  const slot = new Slot(policy, ["arrange", "parallelism"]);
  const allocationPolicy: AllocationExports = {
    arrange: (actions, pools, running) =>
      slot.ask((self) => Array.from(policy.arrange(plain(slot.columns<ActionColumns>({ ...actions, pools, running })), self))),
    parallelism: (degrees) => slot.ask((self) => Array.from(supported(policy.parallelism).call(policy, degrees, self))),
  };
  return { plugin: slot.plugin(), allocationPolicy };
}

/** Columns of bytes arrive as `Uint8Array`, and large units as negative numbers. */
function plain(columns: ActionColumns): ActionColumns {
  const { candidate, optionUnits, pools } = columns;
  const pool = { ...pools, freeUnits: unsigned(pools.freeUnits), chunked: Array.from(pools.chunked) };
  return { ...columns, candidate: Array.from(candidate), optionUnits: unsigned(optionUnits), pools: pool };
}
