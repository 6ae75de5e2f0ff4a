// The form of a policy's configuration: its fields, and what it is configured with at present.
import type { BindingShown, PluginDetails } from "../../api/types";
import { configOf, type Field, fieldsOf } from "../../model/schemaForm";
import { digestOf, shortPolicy } from "./names";

type Config = Record<string, unknown>;

/** A field, and where its value is in the configuration. */
export interface ConfigField extends Field {
  path: string[];
}

/** The fields of a schema, those of its objects among them; null where it has more than a form of
 *  single values and of objects of such can show. */
export function configFieldsOf(schema: unknown): ConfigField[] | null {
  if (!isObject(schema) || !isObject(schema.properties)) return null;
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields: ConfigField[] = [];
  for (const [key, property] of Object.entries(schema.properties)) {
    const found = innerFieldsOf(key, property, required.includes(key)) ?? ownFieldOf(schema, key);
    if (!found) return null;
    fields.push(...found);
  }
  return fields;
}

function innerFieldsOf(key: string, property: unknown, required: boolean): ConfigField[] | null {
  if (!isObject(property) || ![property.type].flat().includes("object")) return null;
  const inner = fieldsOf(property);
  return (
    inner?.map((field) => ({
      ...field,
      key: `${key}.${field.key}`,
      path: [key, field.key],
      required: required && field.required,
    })) ?? null
  );
}

function ownFieldOf(schema: Config, key: string): ConfigField[] | null {
  const properties = { [key]: (schema.properties as Config)[key] };
  const fields = fieldsOf({ properties, required: schema.required });
  return fields?.map((field) => ({ ...field, path: [key] })) ?? null;
}

/** The configuration that the fields' texts stand for, or the error of each wrong field. */
export function nestedConfigOf(
  fields: ConfigField[],
  texts: Record<string, string>,
): { config: Config; errors: Record<string, string> } {
  const { config: flat, errors } = configOf(fields, texts);
  const config: Config = {};
  for (const { key, path } of fields) {
    const [outer = key, inner] = path;
    if (!(key in flat)) continue;
    config[outer] = inner ? { ...(config[outer] as Config), [inner]: flat[key] } : flat[key];
  }
  return { config, errors };
}

/** The texts that fields begin with, for a configuration. */
export function textsOf(fields: ConfigField[], config: Config): Record<string, string> {
  const valueAt = (path: string[]) =>
    path.reduce<unknown>((value, key) => (isObject(value) ? value[key] : undefined), config);
  return Object.fromEntries(fields.map(({ key, path }) => [key, String(valueAt(path) ?? "")]));
}

/** What is on record of a policy, or of another version of it, and in which role. */
export interface Present {
  config: Config;
  from: string;
}

/** What a policy is configured with for a job at present; nothing where it has no role there. */
export function presentConfig(
  plugin: PluginDetails,
  binding: BindingShown | undefined,
): Present | null {
  if (!binding) return null;
  const roles: [string, string | null | undefined][] = [
    ["active", binding.policy],
    ["canary", binding.canary?.policy],
    ["shadow", binding.shadow?.policy],
    ["previous", binding.previous],
  ];
  const is = (policy: string) => plugin.digest.startsWith(digestOf(policy) ?? "none");
  const isNamed = (policy: string) => policy.split("@")[0] === plugin.name;
  for (const matches of [is, isNamed]) {
    for (const [role, policy] of roles) {
      const config = binding.on_record?.[role]?.config;
      if (policy && config && matches(policy))
        return { config, from: `${shortPolicy(policy)}, ${role}` };
    }
  }
  return null;
}

function isObject(value: unknown): value is Config {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
