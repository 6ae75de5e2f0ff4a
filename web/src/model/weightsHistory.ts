// The versions that a job's engines held over time and the updates between them, found again from
// the journal. Until its weights are released, either treadle updates a job's engines or its
// trainer does.
import type { EventView } from "../api/types";
import type { Span } from "./timeline";
import { DrivenReplay } from "./weightsDriven";
import { OwnReplay, type ReplayInput, type WeightsHistory } from "./weightsReplay";

/** Kinds of events that tell what engines hold. */
export const WEIGHTS_KINDS = [
  "weights_published",
  "weights_call_ended",
  "weights_relayed",
  "weights_relay_ended",
  "weights_released",
  "rolled_back",
  "job_removed",
  "worker_lost",
  "worker_removed",
  "daemon_restarted",
] as const;

const BEGINS: readonly string[] = ["weights_published", "weights_relayed"];
const RELEASES: readonly string[] = ["weights_released", "job_removed"];

export function replayWeights(input: ReplayInput): WeightsHistory {
  const updates: WeightsHistory["updates"] = [];
  const engines = new Map<number, Span[]>();
  for (const events of untilReleased(input.events)) {
    const first = events.find(({ kind }) => BEGINS.includes(kind));
    const isDriven = first?.kind === "weights_relayed";
    const own = { ...input, events };
    const replay = isDriven ? new DrivenReplay(own) : new OwnReplay(own);
    events.forEach((event, at) => {
      replay.take(event, at);
    });
    replay.close();
    updates.push(...replay.updates);
    for (const [worker, spans] of replay.spans)
      engines.set(worker, [...(engines.get(worker) ?? []), ...spans]);
  }
  return { updates, engines: new Map([...engines].sort(([a], [b]) => a - b)) };
}

/** The events up to each release. */
function untilReleased(events: EventView[]): EventView[][] {
  const parts: EventView[][] = [[]];
  for (const event of events) {
    parts.at(-1)?.push(event);
    if (RELEASES.includes(event.kind)) parts.push([]);
  }
  return parts;
}
