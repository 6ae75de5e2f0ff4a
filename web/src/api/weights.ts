// The weights of a job's engines: what the daemon says now, and the journal's events about them.
import { queryOptions } from "@tanstack/react-query";
import { WEIGHTS_KINDS } from "../model/weightsHistory";
import { ApiError, call } from "./client";
import { type Kept, readKind, together } from "./journal";
import { inPool } from "./pool";
import { queryClient } from "./queries";
import { isGone } from "./training";
import type { EventView, JobWeights } from "./types";

const REFRESH_MS = 3000;
const REFRESH_UPDATE_MS = 1000;

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
          await readKind(
            { kind, ...(OF_ALL.includes(kind) ? {} : { job }) },
            before?.get(kind),
            signal,
          ),
        ],
      );
      return { kept: new Map(read), ...together(read.map(([, own]) => own)) };
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
