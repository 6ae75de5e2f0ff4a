// Outcomes, times and resources of actions, in words.
import type { ActionView } from "../api/types";
import { bytes, count } from "../format/number";

export type Tone = "neutral" | "good" | "warn" | "bad" | "accent";

export const STATUSES = ["waiting", "starting", "running", "stopping", "ended"];

interface Ending {
  text: string;
  tone: Tone;
  meaning: string;
}

const ENDINGS: Record<string, Ending> = {
  killed: { text: "killed", tone: "bad", meaning: "A signal that treadle did not send ended it." },
  out_of_memory: { text: "out of memory", tone: "bad", meaning: "It exceeded its memory limit." },
  timed_out: { text: "timed out", tone: "bad", meaning: "It exceeded its time limit." },
  infrastructure_failure: {
    text: "could not run",
    tone: "warn",
    meaning: "It could not run, through no fault of its own. This says nothing about the answer.",
  },
  unknown: {
    text: "unknown",
    tone: "warn",
    meaning: "It is unknown whether it ran: the daemon or its machine died meanwhile.",
  },
  cancelled: { text: "withdrawn", tone: "neutral", meaning: "Its client or its program ended it." },
  expired: { text: "expired", tone: "neutral", meaning: "It waited for too long." },
};

function field(outcome: unknown, name: string): unknown {
  return typeof outcome === "object" && outcome !== null
    ? (outcome as Record<string, unknown>)[name]
    : undefined;
}

/** How an action ended; null while it has not ended. */
export function endingOf(action: ActionView): Ending | null {
  const kind = field(action.outcome, "outcome");
  if (typeof kind !== "string") return null;
  if (kind === "exited") {
    const code = Number(field(action.outcome, "code"));
    const well = code === 0 || (code >= 200 && code < 300);
    return {
      text: code >= 100 ? `status ${code}` : `exit ${code}`,
      tone: well ? "good" : "accent",
      meaning: "It ran to its end.",
    };
  }
  const known = ENDINGS[kind] ?? { text: kind, tone: "neutral" as Tone, meaning: "" };
  const signal = field(action.outcome, "signal");
  return typeof signal === "number" ? { ...known, text: `${known.text} by ${signal}` } : known;
}

/** Why an action could not run. */
export function causeOf(action: ActionView): string | null {
  const cause = field(action.outcome, "cause");
  return typeof cause === "string" ? cause : null;
}

interface Times {
  queue: number;
  overhead: number | null;
  run: number | null;
}

/** How long an action waited, took to begin, and ran until `now`, in microseconds. */
export function timesOf(action: ActionView, now: number): Times {
  const { submitted_at_us: submitted, granted_at_us: granted, began_at_us: began } = action;
  const end = action.ended_at_us ?? now;
  const span = (from: number, to: number) => Math.max(0, to - from);
  return {
    queue: span(submitted, granted ?? end),
    overhead: granted == null ? null : span(granted, began ?? end),
    run: began == null ? null : span(began, end),
  };
}

/** An amount of a resource as people count it. */
export function amount(resource: string, value: unknown): string {
  const units = (one: unknown) =>
    typeof one !== "number" ? "–" : resource === "memory" ? bytes(one) : count(one);
  if (Array.isArray(value)) return value.map(units).join(" or ");
  const devices = field(value, "devices");
  if (Array.isArray(devices)) return `${units(field(value, "units"))} (${devices.join(", ")})`;
  return units(value);
}

/** Amounts of several resources in one line. */
export function amounts(all: object): string {
  const parts = Object.entries(all).map(([name, value]) => `${name} ${amount(name, value)}`);
  return parts.join(", ") || "–";
}
