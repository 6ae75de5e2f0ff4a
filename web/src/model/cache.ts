// Where a program's KV cache was, from the decisions about it and the events that followed.
import type { DecisionView, EventView } from "../api/types";
import type { State } from "./states";
import type { Span } from "./timeline";

const OFFLOADING = "Going to host memory";
const OFFLOADED = "In host memory";

interface Change {
  at: number;
  seq: number;
  state: State | null;
  label: string;
}

/** The spans of a program's cache. */
export function cacheSpans(
  decisions: DecisionView[],
  events: EventView[],
  end: number,
  nameOf: (worker: string) => string,
): Span[] {
  const changes = [
    ...decisions.flatMap((decision) => changeByDecision(decision, nameOf)),
    ...events.flatMap((event) => changeByEvent(event, nameOf)),
  ].sort((a, b) => a.seq - b.seq || a.at - b.at);
  markUnfinished(changes);
  const spans: Span[] = [];
  let last: Change | null = null;
  let held = false;
  for (const change of changes) {
    const next = resolve(change, held);
    held = next.state === "offloaded" || (next.state === "paused" && held);
    if (last?.state) push(spans, last, next.at);
    last = next;
  }
  if (last?.state) push(spans, last, end);
  return spans;
}

/** An offload after which no copy is on record: the cache is taken to be gone. */
function markUnfinished(changes: Change[]): void {
  changes.forEach((change, at) => {
    const next = changes[at + 1];
    if (change.label !== OFFLOADING || !next || next.label === OFFLOADED) return;
    change.state = "paused";
    change.label = "Paused, no copy on record";
  });
}

/** A cache that is in host memory stays there while its program is paused, and has to be loaded. */
function resolve(change: Change, held: boolean): Change {
  if (!held) return change;
  if (change.label.startsWith("Paused")) return { ...change, state: "offloaded", label: OFFLOADED };
  if (change.label.startsWith("On "))
    return { ...change, state: "migrating", label: change.label.replace("On", "Loading to") };
  return change;
}

function push(spans: Span[], change: Change, to: number): void {
  const last = spans.at(-1);
  if (!change.state || to <= change.at) return;
  if (last && last.state === change.state && last.label === change.label && last.to === change.at)
    last.to = to;
  else spans.push({ state: change.state, from: change.at, to, label: change.label });
}

function changeByDecision(decision: DecisionView, nameOf: (worker: string) => string): Change[] {
  const base = { at: decision.at_us, seq: decision.seq };
  const worker = decision.worker ? nameOf(decision.worker) : "a worker";
  switch (decision.kind) {
    case "place":
    case "restore":
    case "prefetch":
      return [{ ...base, state: "shared", label: `On ${worker}` }];
    case "pause":
      return [{ ...base, state: "paused", label: "Paused" }];
    case "offload":
      return [{ ...base, state: "migrating", label: OFFLOADING }];
    case "migrate":
      return [{ ...base, state: "migrating", label: `Moving to ${worker}` }];
    default:
      return [];
  }
}

function changeByEvent(view: EventView, nameOf: (worker: string) => string): Change[] {
  const base = { at: view.at_us, seq: view.seq };
  const { to } = view.event as { to?: number };
  switch (view.kind) {
    case "program_offloaded":
      return [{ ...base, state: "offloaded", label: OFFLOADED }];
    case "program_loaded":
    case "program_migrated":
      return [{ ...base, state: "shared", label: `On ${nameOf(`w${to}`)} again` }];
    case "copy_lost":
    case "offload_failed":
      return [{ ...base, state: "paused", label: "Not kept: it is computed again" }];
    case "program_released":
      return [{ ...base, state: null, label: "" }];
    default:
      return [];
  }
}
