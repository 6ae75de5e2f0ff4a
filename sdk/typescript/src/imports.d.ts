/** The interface `host` of the contract, as the component's runtime gives it. */
declare module "treadle:policy/host@1.0.0" {
  export function log(level: "trace" | "debug" | "info" | "warn" | "error", message: string): void;
  export function nowMs(): number;
  export function randomU64(): number;
  export function config(): string;
  export function stateGet(key: string): Uint8Array | undefined;
  export function stateSet(key: string, value: Uint8Array): void;
  export function stateDelete(key: string): boolean;
}
