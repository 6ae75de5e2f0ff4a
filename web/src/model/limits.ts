// A tenant's limits: their form, and the resulting change.
import type { TenantLimits } from "../api/types";
import { bytes, count } from "../format/number";
import { configOf, type Field } from "./schemaForm";

type Key = keyof TenantLimits;

/** An empty field is no limit. */
export const LIMITS: (Field & { key: Key })[] = [
  limit("live_programs", "Live programs. Beyond it new programs get 429."),
  limit("steps", "Steps under way at each daemon, waiting and running. Beyond it: 429."),
  limit("requests_per_s", "Requests in a second; as many may come at once. Beyond it: 429."),
  limit("body_bytes", "Largest body of a request, in bytes. Beyond it: 413."),
  limit("bodies_bytes", "Bodies that each daemon holds at once, in bytes. Beyond it: 429."),
  limit("sandboxes", "Sandboxes at once on each machine, paused ones too. Beyond it: 429."),
  limit("sandbox_bytes", "Files of its sandboxes on each machine, in bytes. Beyond it: stopped."),
  limit("snapshot_bytes", "Snapshots and copies on each machine, in bytes. Beyond it: 403."),
  limit("kept_bytes", "Kept of its actions and steps, in bytes. Beyond it the oldest go."),
  limit("action_percent", "Hundredths of each resource that its actions hold at once."),
  limit("plugins", "Policies that it may store. Beyond it: 403."),
  limit("plugin_bytes", "All of them together, in bytes. Beyond it: 403."),
  {
    ...limit("unsigned_plugins", "Whether it may store policies without a trusted signature."),
    kind: "boolean",
    min: undefined,
    required: true,
  },
];

function limit(key: Key, description: string): Field & { key: Key } {
  const initial = "none";
  return { key, kind: "integer", description, initial, required: false, min: 0, choices: [] };
}

/** The texts that the fields begin with. */
export function textsOf(limits: Partial<TenantLimits>): Record<string, string> {
  return Object.fromEntries(LIMITS.map(({ key }) => [key, String(limits[key] ?? "")]));
}

export interface LimitChange {
  key: Key;
  before: string;
  after: string;
}

/** The changed limits to send and to show, and the invalid entries. */
export function changesOf(limits: Partial<TenantLimits>, texts: Record<string, string>) {
  const { config, errors } = configOf(LIMITS, texts);
  const changed: Record<string, unknown> = {};
  const changes: LimitChange[] = [];
  for (const { key } of LIMITS) {
    const before = limits[key] ?? null;
    const after = (config[key] ?? null) as number | boolean | null;
    if (before === after || errors[key]) continue;
    changed[key] = after;
    changes.push({ key, before: shownLimit(key, before), after: shownLimit(key, after) });
  }
  return { changed, changes, errors };
}

export function shownLimit(key: Key, value: number | boolean | null | undefined): string {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "accepted" : "refused";
  return key.endsWith("_bytes") ? bytes(value) : count(value);
}
