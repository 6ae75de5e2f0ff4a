// Sets of policies for a what-if run: a list of names, or JSON if names are not enough.

/** A set in the daemon's format. */
export const SETS_MAX = 8;

/** A name, or an object with one. */
export type SetSpec = string | ({ name: string } & Record<string, unknown>);

/** The sets of a text, or its error. */
export function setsOf(text: string): { sets: SetSpec[]; error: string | null } {
  const wrong = (error: string) => ({ sets: [], error });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    return wrong(`This is no JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
  if (!Array.isArray(value)) return wrong('Give a list: ["recorded", {"name": …}].');
  if (value.length === 0 || value.length > SETS_MAX) return wrong(`Give 1 to ${SETS_MAX} sets.`);
  const names = value.map(nameOf);
  const odd = names.indexOf(null);
  if (odd >= 0) return wrong(`sets[${odd}] is neither a name nor an object with a name.`);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) return wrong(`Two sets are called ${twice}.`);
  return { sets: value as SetSpec[], error: null };
}

/** The name of a set; null for an invalid one. */
function nameOf(value: unknown): string | null {
  const name =
    typeof value === "object" && value !== null ? (value as { name?: unknown }).name : value;
  return typeof name === "string" && name !== "" ? name : null;
}

/** The initial text of the sets. */
export function textOf(sets: SetSpec[]): string {
  return JSON.stringify(sets, null, 2);
}
