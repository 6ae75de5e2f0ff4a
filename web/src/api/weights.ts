// The weights of a job's engines: what the daemon says now, and the journal's events about them.
import { queryOptions } from "@tanstack/react-query";
import { WEIGHTS_KINDS } from "../model/weightsHistory";
import { ApiError, call } from "./client";
import { inPool } from "./pool";
import { queryClient } from "./queries";
import { isGone } from "./training";
import type { EventView, JobWeights } from "./types";

const REFRESH_MS = 3000;
const REFRESH_UPDATE_MS = 1000;
const PAGE = 2000;
/** Most events of a kind that are kept; the oldest go first. */
const KEPT_MAX = 6000;

/** The weights of a job's engines; null if treadle loads none. */
export const jobWeights = (job: string) =>
  queryOptions({
    queryKey: ["jobWeights", job],
    queryFn: async ({ signal }): Promise<JobWeights | null> => {
      try {
        return await call("get", "/api/v1/jobs/{job}/weights", { path: { job }, signal });
      } catch (error) {
        if (error instanceof ApiError && error.code === "weights_unknown") return null;
        throw error;
      }
    },
    refetchInterval: ({ state }) =>
      isGone(state.error) ? false : state.data?.update ? REFRESH_UPDATE_MS : REFRESH_MS,
  });

export interface WeightsEvents {
  /** Oldest first. */
  events: EventView[];
  /** There are older ones. */
  more: boolean;
  kept: Map<Kind, Kept>;
}

type Kind = (typeof WEIGHTS_KINDS)[number];
/** Events of one kind, and whether there are older ones. */
interface Kept {
  events: EventView[];
  more: boolean;
}

/** Events about workers and the daemon belong to no training job. */
const OF_ALL: Kind[] = ["worker_lost", "worker_removed", "daemon_restarted"];

/** The events that tell what a job's engines hold; only those that are new are read again. */
export const weightsEvents = (job: string) =>
  queryOptions({
    queryKey: ["weightsEvents", job],
    queryFn: async ({ signal }): Promise<WeightsEvents> => {
      const before = queryClient.getQueryData<WeightsEvents>(["weightsEvents", job])?.kept;
      const read = await inPool(
        [...WEIGHTS_KINDS],
        async (kind): Promise<[Kind, Kept]> => [
          kind,
          await readKind(job, kind, before?.get(kind), signal),
        ],
      );
      // If events of one kind are cut, those of others before them say nothing.
      const cut = read.filter(([, { more }]) => more).map(([, { events }]) => events[0]?.seq ?? 0);
      const first = Math.max(0, ...cut);
      const events = read.flatMap(([, own]) => own.events).filter(({ seq }) => seq >= first);
      events.sort((a, b) => a.seq - b.seq);
      return { kept: new Map(read), events, more: cut.length > 0 };
    },
    staleTime: Number.POSITIVE_INFINITY,
  });

async function readKind(
  job: string,
  kind: Kind,
  known: Kept | undefined,
  signal: AbortSignal,
): Promise<Kept> {
  const filter = { kind, limit: PAGE, ...(OF_ALL.includes(kind) ? {} : { job }) };
  let { events, more } = known ?? { events: [], more: false };
  for (;;) {
    const last = events.at(-1);
    const range = last ? { after: last.seq } : { latest: true };
    const page = await call("get", "/api/v1/events", { query: { ...filter, ...range }, signal });
    const isFull = page.events.length >= PAGE;
    events = events.concat(page.events);
    more ||= events.length > KEPT_MAX || (isFull && !last);
    events = events.slice(-KEPT_MAX);
    if (!last || !isFull) return { events, more };
  }
}
