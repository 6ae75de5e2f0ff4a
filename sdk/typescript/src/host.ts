/**
 * What treadle offers to a policy: a log, the time of the decision, a random stream, the
 * configuration, and values that outlive the instance. `Date` and `Math.random` have no place in
 * a policy: they repeat what they gave when the component was built.
 */

import * as imports from "treadle:policy/host@1.0.0";

/** Writes to the policy's log; lines over the limits are dropped or cut, and counted. */
export const log = {
  trace: (message: string): void => imports.log("trace", message),
  debug: (message: string): void => imports.log("debug", message),
  info: (message: string): void => imports.log("info", message),
  warn: (message: string): void => imports.log("warn", message),
  error: (message: string): void => imports.log("error", message),
};

/** The time of the decision, in milliseconds since the job's clock began. */
export function nowMs(): number {
  return imports.nowMs();
}

/** The next number of a random stream that starts over with each call: at least 0, below 1. */
export function random(): number {
  // The runtime rounds 64 bits to the nearest number, which may be one whole.
  return Math.min(imports.randomU64() / 2 ** 64, 1 - 2 ** -53);
}

/** The configuration of the binding, a JSON object. */
export function config(): string {
  return imports.config();
}

/** A value that this binding has stored, `undefined` without one. */
export function stateGet(key: string): Uint8Array | undefined {
  return imports.stateGet(key) ?? undefined;
}

/** Stores a value. Throws `state-full` when the binding's bound would be exceeded. */
export function stateSet(key: string, value: Uint8Array): void {
  imports.stateSet(key, value);
}

/** Removes a value; true if there was one. */
export function stateDelete(key: string): boolean {
  return imports.stateDelete(key);
}
