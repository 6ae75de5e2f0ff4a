/** What every policy has, whatever its world, and the guest's side of the boundary. */

import { PolicyError } from "./errors";
import * as host from "./host";

/** Values that a configuration may have. */
export type Value = string | number | boolean | readonly Value[] | { readonly [key: string]: Value };

/** The extra columns by their names. */
export type Extra = Readonly<Record<string, readonly number[]>>;

/** What a method is given beside its columns. */
export interface Self<C, S> {
  /** The defaults, with what the binding's configuration says instead. */
  readonly config: C;
  /** What the policy keeps between calls, as `begin` made it. */
  state: S;
}

/** What policies of all worlds define. */
export interface Definition<C, S> {
  /** Lower-case words joined by hyphens, at most 64 characters. */
  readonly name: string;
  /** A semantic version. */
  readonly version: string;
  /** One sentence. */
  readonly summary: string;
  /** The keys of the configuration with their defaults. */
  readonly defaults: C;
  /** Throws `PolicyError.invalidConfig` if values are out of range. */
  check?(config: C): void;
  /** What the policy keeps between calls, at first. */
  begin?(config: C): S;
  /** What was learnt, for the instance or version that takes its place. */
  snapshot?(self: Self<C, S>): Uint8Array;
  /** Takes over what a predecessor gave as its snapshot, never empty. */
  restore?(snapshot: Uint8Array, self: Self<C, S>): void;
}

/** The interface `plugin` of the contract. */
export interface Plugin {
  describe(): { name: string; version: string; summary: string };
  configure(json: string): void;
  snapshot(): Uint8Array;
  restore(snapshot: Uint8Array): void;
}

/** Holds the configured policy of an instance, and asks it. */
export class Slot<C extends object, S> {
  #self: Self<C, S> | undefined;
  #extraNames: readonly string[] = [];
  readonly #definition: Definition<C, S>;

  constructor(definition: Definition<C, S>) {
    this.#definition = definition;
  }

  /** What `question` says; whatever it throws leaves as an error of the contract. */
  ask<T>(question: (self: Self<C, S>) => T): T {
    const self = this.#self;
    if (self === undefined) {
      throw PolicyError.failed("asked before configure; call plugin.configure first");
    }
    return guarded(() => question(self));
  }

  /** The extra columns by their names. */
  extra(flat: readonly number[], rows: number): Extra {
    const names = this.#extraNames;
    if (flat.length !== rows * names.length) {
      const found = `extra has ${flat.length} entries where ${rows * names.length} belong`;
      throw PolicyError.invalidInput(`${found}; pass one column per name`);
    }
    return Object.fromEntries(names.map((name, at) => [name, flat.slice(at * rows, (at + 1) * rows)]));
  }

  /** The interface `plugin` of the component. */
  plugin(): Plugin {
    const definition = this.#definition;
    const { name, version, summary } = definition;
    return {
      describe: () => ({ name, version, summary }),
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
    const { extra, ...given } = objectOf(json);
    const config = merged(this.#definition.defaults, given);
    this.#definition.check?.(config);
    this.#extraNames = namesOf(extra);
    this.#self = { config, state: this.#definition.begin?.(config) as S };
  }
}

function objectOf(json: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw PolicyError.invalidConfig(`${String(error)}; write a JSON object`);
  }
  if (kindOf(value) !== "object") {
    throw PolicyError.invalidConfig("this is no JSON object; write one, such as {}");
  }
  return value as Record<string, unknown>;
}

function namesOf(extra: unknown): string[] {
  const names = extra ?? [];
  if (!Array.isArray(names) || !names.every((name) => typeof name === "string")) {
    throw PolicyError.invalidConfig("extra is a list of names of columns");
  }
  return names;
}

function merged<C extends object>(defaults: C, given: Record<string, unknown>): C {
  for (const [key, value] of Object.entries(given)) {
    if (!Object.hasOwn(defaults, key)) {
      const choice = [...Object.keys(defaults), "extra"].join(", ");
      throw PolicyError.invalidConfig(`${key} is not known; the keys are ${choice}`);
    }
    const usual = defaults[key as keyof C];
    if (kindOf(value) !== kindOf(usual)) {
      throw PolicyError.invalidConfig(`${key} is a ${kindOf(value)}; give a ${kindOf(usual)}, as ${JSON.stringify(usual)}`);
    }
  }
  return { ...defaults, ...given };
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "list" : typeof value;
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

/** What a method that the author did not write answers. */
export function supported<T>(method: T | undefined): T {
  if (method === undefined) throw PolicyError.notSupported();
  return method;
}
