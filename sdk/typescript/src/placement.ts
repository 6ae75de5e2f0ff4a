/** The world `placement`: which worker a program goes to. */

import type { Keys } from "./config";
import { type Definition, type Extra, type Given, type Phase, type Plugin, type Self, Slot, supported, unsigned } from "./policy";

/** Stands for no worker in `lastWorker`. */
export const NOWHERE = 4294967295;

/** Stands for no class in `hardwareClass` and `preferredClass`. */
export const NO_CLASS = 4294967295;

/** Stands for a worker that steps by itself in `lockstepGroup`. */
export const NO_GROUP = 4294967295;

/** Programs that are about to get a place, one row each. */
export interface AssignColumns {
  /** An opaque number, the same for programs of one group (samples of one task); rounded to 53 bits. */
  readonly group: readonly number[];
  /** Context that the place must hold. */
  readonly tokens: readonly number[];
  /** Predicted tokens still to be generated, -1 without a prediction. */
  readonly remainingTokens: readonly number[];
  /** Where it was placed last, `NOWHERE` for nowhere. */
  readonly lastWorker: readonly number[];
  /** Growth of its job's contexts in tokens per generated token, including tool results; -1 if unknown. */
  readonly growth: readonly number[];
  /** Time in tools of its job per generated token, in microseconds; -1 if unknown. */
  readonly toolUs: readonly number[];
  /** Number of the class of hardware that it prefers, `NO_CLASS` for none. */
  readonly preferredClass: readonly number[];
  /** The workers to choose from. */
  readonly workers: WorkerColumns;
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Workers that could take one step, one row each. */
export interface RouteColumns {
  /** Context length of the step's program. */
  readonly tokens: number;
  /** How much of it each worker is believed to hold. */
  readonly cachedTokens: readonly number[];
  /** The workers to choose from. */
  readonly workers: WorkerColumns;
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Placed programs, one row each. */
export interface MigrateColumns {
  /** Where it is. */
  readonly atWorker: readonly number[];
  /** Context length. */
  readonly tokens: readonly number[];
  /** Predicted tokens still to be generated, -1 without a prediction. */
  readonly remainingTokens: readonly number[];
  /** While a program acts, a move is hidden. */
  readonly phase: readonly Phase[];
  /** Growth of its job's contexts in tokens per generated token, including tool results; -1 if unknown. */
  readonly growth: readonly number[];
  /** Time in tools of its job per generated token, in microseconds; -1 if unknown. */
  readonly toolUs: readonly number[];
  /** Number of the class of hardware that it prefers, `NO_CLASS` for none. */
  readonly preferredClass: readonly number[];
  /** The workers to choose from. */
  readonly workers: WorkerColumns;
  /** Further columns by their names. */
  readonly extra: Extra;
}

/** Workers, one row each. */
export interface WorkerColumns {
  /** KV cache, in tokens; 0 if unknown. */
  readonly capacityTokens: readonly number[];
  /** Tokens that each is charged for. */
  readonly usedTokens: readonly number[];
  /** Steps that each runs. */
  readonly running: readonly number[];
  /** Time that it takes for a token while it runs one step, in microseconds; -1 until enough steps were seen. */
  readonly tokenUs: readonly number[];
  /** Time that each further step adds to this, in microseconds; -1 if unknown. */
  readonly stepUs: readonly number[];
  /** Time per prompt token, in microseconds; -1 if unknown. */
  readonly prefillUs: readonly number[];
  /** Number of its class of hardware in this call, `NO_CLASS` for none. */
  readonly hardwareClass: readonly number[];
  /**
   * Number, in this call, of the workers with which it steps together: ranks of one endpoint, whose
   * steps all take as long as at the one with most to do. `NO_GROUP` if it steps by itself.
   */
  readonly lockstepGroup: readonly number[];
}

/** A policy of the world `placement`. */
export interface PlacementPolicy<C extends Keys, S> extends Definition<C, S> {
  /** A worker for each program, by its row in the worker columns. */
  assign(columns: AssignColumns, self: Self<C, S>): readonly number[];
  /** A finite score for each worker; the highest that has room takes the step. */
  route?(columns: RouteColumns, self: Self<C, S>): readonly number[];
  /** The worker on which each program should be; its own for staying. */
  migrate?(columns: MigrateColumns, self: Self<C, S>): readonly number[];
}

/** The interface `placement-policy` of the contract. */
export interface PlacementExports {
  assign(programs: Given<AssignColumns>): number[];
  route(workers: Given<RouteColumns>): number[];
  migrate(programs: Given<MigrateColumns>): number[];
}

/** What a component of the world `placement` exports. */
export function definePlacement<C extends Keys, S = undefined>(
  policy: PlacementPolicy<C, S>,
): { plugin: Plugin; placementPolicy: PlacementExports } {
  const slot = new Slot(policy, ["assign", "route", "migrate"]);
  const placementPolicy: PlacementExports = {
    assign: (programs) => slot.ask((self) => Array.from(policy.assign(placed(slot.columns<AssignColumns>(programs)), self))),
    route: (workers) => slot.ask((self) => Array.from(supported(policy.route).call(policy, classified(slot.columns<RouteColumns>(workers)), self))),
    migrate: (programs) => slot.ask((self) => Array.from(supported(policy.migrate).call(policy, preferring(slot.columns<MigrateColumns>(programs)), self))),
  };
  return { plugin: slot.plugin(), placementPolicy };
}

/** `NOWHERE`, `NO_CLASS` and `NO_GROUP` arrive as -1. */
function placed(columns: AssignColumns): AssignColumns {
  return { ...preferring(columns), lastWorker: unsigned(columns.lastWorker) };
}

function preferring<T extends AssignColumns | MigrateColumns>(columns: T): T {
  return { ...classified(columns), preferredClass: unsigned(columns.preferredClass) };
}

function classified<T extends { readonly workers: WorkerColumns }>(columns: T): T {
  const { workers } = columns;
  const hardwareClass = unsigned(workers.hardwareClass);
  const lockstepGroup = unsigned(workers.lockstepGroup);
  return { ...columns, workers: { ...workers, hardwareClass, lockstepGroup } };
}
