/** Configurations: what a policy says of each key gives its type, its default and its bounds. */

import { PolicyError } from "./errors";

/** A key of a configuration: its default, and a JSON Schema of its values. */
export interface Key<T> {
  readonly default: T;
  readonly schema: Readonly<Record<string, unknown>>;
}

/** All keys of a configuration. */
export type Keys = { readonly [name: string]: Key<unknown> };

/** The values of these keys. */
export type Values<K extends Keys> = { readonly [N in keyof K]: K[N] extends Key<infer T> ? T : never };

/** A number from `minimum` to `maximum`. */
export function bounded(value: number, minimum: number, maximum: number, description: string): Key<number> {
  return { default: value, schema: { type: "number", minimum, maximum, description } };
}

/** A whole number from `minimum` to `maximum`. */
export function whole(value: number, minimum: number, maximum: number, description: string): Key<number> {
  return { default: value, schema: { type: "integer", minimum, maximum, description } };
}

/** True or false. */
export function flag(value: boolean, description: string): Key<boolean> {
  return { default: value, schema: { type: "boolean", description } };
}

/** One of some texts. */
export function choice<T extends string>(value: T, choices: readonly T[], description: string): Key<T> {
  return { default: value, schema: { type: "string", enum: choices, description } };
}

/** A JSON Schema of a configuration. */
export function schemaOf(keys: Keys): string {
  const property = ([name, key]: [string, Key<unknown>]) => [name, { ...key.schema, default: key.default }];
  return JSON.stringify({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    additionalProperties: false,
    properties: Object.fromEntries(Object.entries(keys).map(property)),
  });
}

/** The defaults, with what a JSON object says instead. What does not fit is an error. */
export function configured<K extends Keys>(keys: K, json: string): Values<K> {
  const defaults = Object.entries(keys).map(([name, key]) => [name, key.default]);
  const config: Record<string, unknown> = Object.fromEntries(defaults);
  for (const [name, value] of Object.entries(objectOf(json))) {
    if (!Object.hasOwn(keys, name)) {
      const known = Object.keys(keys).join(", ");
      const told = known === "" ? "there are no keys" : `the keys are ${known}`;
      throw PolicyError.invalidConfig(`${name} is not known; ${told}`);
    }
    const wanted = unfit(value, keys[name].schema);
    if (wanted !== undefined) {
      throw PolicyError.invalidConfig(`${name} is ${JSON.stringify(value)}; give ${wanted}`);
    }
    config[name] = value;
  }
  return config as Values<K>;
}

/** The expected value, for an error message. */
function unfit(value: unknown, schema: Readonly<Record<string, unknown>>): string | undefined {
  const kind = schema.type === "integer" ? "number" : schema.type;
  if (typeof value !== kind || (schema.type === "integer" && !Number.isInteger(value))) {
    return `a value of the kind ${schema.type}`;
  }
  const choices = schema.enum as readonly unknown[] | undefined;
  if (choices !== undefined && !choices.includes(value)) return choices.join(" or ");
  const { minimum, maximum } = schema as { minimum?: number; maximum?: number };
  const below = minimum !== undefined && (value as number) < minimum;
  const above = maximum !== undefined && (value as number) > maximum;
  return below || above ? `${minimum} to ${maximum}` : undefined;
}

function objectOf(json: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw PolicyError.invalidConfig(`${String(error)}; write a JSON object`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw PolicyError.invalidConfig("this is no JSON object; write one, such as {}");
  }
  return value as Record<string, unknown>;
}
