// Where a program's KV cache was, from the decisions about it and the events that followed.
import type { DecisionView, EventView } from "../api/types";
import type { State } from "./states";
import type { Span } from "./timeline";

const OFFLOADING = "Going to host memory";
const OFFLOADED = "In host memory";
const PAUSED = "Paused";
const AGAIN = " again";

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
  const states = resolved(changes);
  for (const [at, change] of states.entries()) push(spans, change, states[at + 1]?.at ?? end);
  return spans;
}

/** Takes into account where the cache was before each change. */
function resolved(changes: Change[]): Change[] {
  let held = false;
  return changes.map((change, at) => {
    const next = resolve(change, held, changes[at + 1]);
    held = next.state === "offloaded" || (next.state === "paused" && held);
    return next;
  });
}

/** An offload after which no copy is on record: the cache counts as gone. */
function markUnfinished(changes: Change[]): void {
  changes.forEach((change, at) => {
    const next = changes[at + 1];
    if (change.label !== OFFLOADING || !next || next.label === OFFLOADED) return;
    change.state = "paused";
    change.label = "Paused, no copy on record";
  });
}

/** A cache that is in host memory stays there while its program is paused, and has to be loaded. */
function resolve(change: Change, held: boolean, after: Change | undefined): Change {
  if (!held) return change;
  if (change.label === PAUSED) return { ...change, state: "offloaded", label: OFFLOADED };
  const loading = change.label.startsWith("On ") && after?.label.endsWith(AGAIN);
  return loading
    ? { ...change, state: "migrating", label: change.label.replace("On", "Loading to") }
    : change;
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
      return [{ ...base, state: "paused", label: PAUSED }];
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
      return [{ ...base, state: "shared", label: `On ${nameOf(`w${to}`)}${AGAIN}` }];
    case "copy_lost":
    case "offload_failed":
      return [{ ...base, state: "paused", label: "Not kept: it is computed again" }];
    case "program_released":
      return [{ ...base, state: null, label: "" }];
    default:
      return [];
  }
}
