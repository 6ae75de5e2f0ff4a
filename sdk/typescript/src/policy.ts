/** What every policy has, whatever its world, and the guest's side of the boundary. */

import { configured, type Keys, schemaOf, type Values } from "./config";
import { PolicyError } from "./errors";
import * as host from "./host";

/** The extra columns by their names. */
export type Extra = Readonly<Record<string, readonly number[]>>;

/** What a program does. */
export type Phase = "reasoning" | "acting";

/** What a method is given beside its columns. */
export interface Self<C extends Keys, S> {
  /** The defaults, with what the binding's configuration says instead. */
  readonly config: Values<C>;
  /** What the policy keeps between calls, as `begin` made it. */
  state: S;
}

/** What policies of all worlds define. */
export interface Definition<C extends Keys, S> {
  /** Lower-case words joined by hyphens, at most 64 characters. */
  readonly name: string;
  /** A semantic version. */
  readonly version: string;
  /** One sentence. */
  readonly summary: string;
  /** The keys of the configuration. */
  readonly config: C;
  /** Names of the columns that calls must carry in `extra`. */
  readonly columns?: readonly string[];
  /** Throws `PolicyError.invalidConfig` if values contradict each other. */
  check?(config: Values<C>): void;
  /** What the policy keeps between calls, at first. */
  begin?(config: Values<C>): S;
  /** What was learnt, for the instance or version that takes its place. */
  snapshot?(self: Self<C, S>): Uint8Array;
  /** Takes over what a predecessor gave as its snapshot, never empty. */
  restore?(snapshot: Uint8Array, self: Self<C, S>): void;
}

/** The interface `plugin` of the contract. */
export interface Plugin {
  describe(): {
    name: string;
    version: string;
    summary: string;
    functions: string[];
    columns: string[];
    configSchema: string;
  };
  configure(json: string): void;
  snapshot(): Uint8Array;
  restore(snapshot: Uint8Array): void;
}

/** Columns as the contract has them: the extra ones are one list. */
export type Given<T> = Omit<T, "extra"> & { readonly extra: readonly number[] };

/** Holds the configured policy of an instance, and asks it. */
export class Slot<C extends Keys, S> {
  #self: Self<C, S> | undefined;
  readonly #definition: Definition<C, S>;
  readonly #functions: readonly string[];

  /** `functions` are the methods of the world; the host is told which are written. */
  constructor(definition: Definition<C, S>, functions: readonly string[]) {
    this.#definition = definition;
    const written = (name: string) => typeof (definition as unknown as Record<string, unknown>)[name] === "function";
    this.#functions = functions.filter(written);
  }

  /** What `question` says; whatever it throws leaves as an error of the contract. */
  ask<T>(question: (self: Self<C, S>) => T): T {
    const self = this.#self;
    if (self === undefined) {
      throw PolicyError.failed("asked before configure; call plugin.configure first");
    }
    return guarded(() => question(self));
  }

  /** Columns with the extra ones by their names. */
  columns<T extends { readonly extra: Extra }>(given: Given<T>): T {
    const names = this.#definition.columns ?? [];
    const flat = given.extra;
    const rows = names.length === 0 ? 0 : flat.length / names.length;
    const extra = Object.fromEntries(names.map((name, at) => [name, flat.slice(at * rows, (at + 1) * rows)]));
    return { ...given, extra } as unknown as T;
  }

  /** The interface `plugin` of the component. */
  plugin(): Plugin {
    const definition = this.#definition;
    const { name, version, summary } = definition;
    const kebab = (method: string) => method.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const functions = this.#functions.map(kebab);
    const columns = Array.from(definition.columns ?? []);
    return {
      describe: () => ({ name, version, summary, functions, columns, configSchema: schemaOf(definition.config) }),
      configure: (json) => guarded(() => this.#configure(json)),
      snapshot: () => this.ask((self) => definition.snapshot?.(self) ?? new Uint8Array()),
      restore: (snapshot) =>
        this.ask((self) => {
          if (definition.restore === undefined) throw PolicyError.notSupported();
          definition.restore(snapshot, self);
        }),
    };
  }

  #configure(json: string): void {
    const config = configured(this.#definition.config, json);
    this.#definition.check?.(config);
    this.#self = { config, state: this.#definition.begin?.(config) as S };
  }
}

function guarded<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (error instanceof PolicyError) throw error;
    const payload = (error as { payload?: { code?: unknown; message?: unknown } } | undefined)?.payload;
    if (typeof payload?.code === "string") throw error;
    host.log.error(error instanceof Error ? `${error}\n${error.stack}` : String(error));
    throw PolicyError.failed(`${String(error)}; the policy's log has the place`);
  }
}

/** A method of the world, if the author has written it; the host asks for no others. */
export function supported<T>(method: T | undefined): T {
  if (method === undefined) throw PolicyError.notSupported();
  return method;
}

/** A column of 32-bit numbers. The runtime gives those of 2^31 and above as negative numbers. */
export function unsigned(column: readonly number[]): readonly number[] {
  return column.map((value) => value >>> 0);
}
