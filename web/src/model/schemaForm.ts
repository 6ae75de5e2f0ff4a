// A form from the JSON Schema that a policy carries for its configuration.

export interface Field {
  key: string;
  kind: "number" | "integer" | "text" | "boolean" | "choice";
  description: string;
  initial: unknown;
  required: boolean;
  min?: number | undefined;
  max?: number | undefined;
  choices: string[];
}

type Schema = Record<string, unknown>;

/** The fields of a schema; null if a form of single values can't represent it. */
export function fieldsOf(schema: unknown): Field[] | null {
  if (!isObject(schema) || !isObject(schema.properties)) return null;
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields: Field[] = [];
  for (const [key, property] of Object.entries(schema.properties)) {
    const field = isObject(property) ? fieldOf(key, property, required.includes(key)) : null;
    if (!field) return null;
    fields.push(field);
  }
  return fields;
}

function fieldOf(key: string, property: Schema, required: boolean): Field | null {
  const base = {
    key,
    description: typeof property.description === "string" ? property.description : "",
    initial: property.default,
    required,
    choices: [],
  };
  const choices = Array.isArray(property.enum) ? property.enum.filter((one) => one !== null) : null;
  if (choices?.every((one) => typeof one === "string")) return { ...base, kind: "choice", choices };
  const type = typeOf(property.type);
  switch (type) {
    case "number":
    case "integer":
      return {
        ...base,
        kind: type,
        min: bound(property.minimum),
        max: bound(property.maximum),
      };
    case "string":
      return { ...base, kind: "text" };
    case "boolean":
      return { ...base, kind: "boolean" };
    default:
      return null;
  }
}

/** The one type of a property, whether or not it may be null too. */
function typeOf(type: unknown): unknown {
  if (!Array.isArray(type)) return type;
  const rest = type.filter((one) => one !== "null");
  return rest.length === 1 ? rest[0] : null;
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function bound(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

export type Parsed = { value: unknown } | { error: string };

/** Reads what was entered into a field. An empty field leaves the default. */
function parseField(field: Field, text: string): Parsed {
  const entered = text.trim();
  if (entered === "") {
    return field.required && field.initial === undefined
      ? { error: "A value is needed." }
      : { value: undefined };
  }
  if (field.kind === "boolean") return { value: entered === "true" };
  if (field.kind === "text") return { value: text };
  if (field.kind === "choice") {
    return field.choices.includes(entered)
      ? { value: entered }
      : { error: `One of ${field.choices.join(", ")}.` };
  }
  return parseNumber(field, entered);
}

function parseNumber(field: Field, entered: string): Parsed {
  const value = Number(entered);
  if (!Number.isFinite(value)) return { error: "Enter a number." };
  if (field.kind === "integer" && !Number.isInteger(value))
    return { error: "Enter a whole number." };
  if (field.min !== undefined && value < field.min) return { error: `At least ${field.min}.` };
  if (field.max !== undefined && value > field.max) return { error: `At most ${field.max}.` };
  return { value };
}

/** The configuration that the fields' texts stand for, or the error of each wrong field. */
export function configOf(
  fields: Field[],
  texts: Record<string, string>,
): { config: Record<string, unknown>; errors: Record<string, string> } {
  const config: Record<string, unknown> = {};
  const errors: Record<string, string> = {};
  for (const field of fields) {
    const parsed = parseField(field, texts[field.key] ?? "");
    if ("error" in parsed) errors[field.key] = parsed.error;
    else if (parsed.value !== undefined) config[field.key] = parsed.value;
  }
  return { config, errors };
}
