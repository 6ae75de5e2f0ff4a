// Events of one kind, as far as they are kept; only new ones are read again.
import { call } from "./client";
import type { EventView } from "./types";

const PAGE = 2000;
/** Most events of a kind that are kept; the oldest go first. */
const KEPT_MAX = 6000;

/** Events of one kind, oldest first, and whether there are older ones. */
export interface Kept {
  events: EventView[];
  more: boolean;
}

export async function readKind(
  filter: { kind: string; job?: string },
  known: Kept | undefined,
  signal: AbortSignal,
): Promise<Kept> {
  let { events, more } = known ?? { events: [], more: false };
  for (;;) {
    const last = events.at(-1);
    const range = last ? { after: last.seq } : { latest: true };
    const query = { ...filter, limit: PAGE, ...range };
    const page = await call("get", "/api/v1/events", { query, signal });
    const isFull = page.events.length >= PAGE;
    events = events.concat(page.events);
    more ||= events.length > KEPT_MAX || (isFull && !last);
    events = events.slice(-KEPT_MAX);
    if (!last || !isFull) return { events, more };
  }
}

/** The events of all kinds in their order. If those of one kind are cut, those of others before them
 *  say nothing. */
export function together(kept: Iterable<Kept>): { events: EventView[]; more: boolean } {
  const all = [...kept];
  const cut = all.filter(({ more }) => more).map(({ events }) => events[0]?.seq ?? 0);
  const first = Math.max(0, ...cut);
  const events = all.flatMap((one) => one.events).filter(({ seq }) => seq >= first);
  events.sort((a, b) => a.seq - b.seq);
  return { events, more: cut.length > 0 };
}
