// What a member of a training job sampled, and where its messages are.
import { queryOptions } from "@tanstack/react-query";
import { membersOf } from "../model/members";
import { call } from "./client";
import { JOBS, read } from "./training";
import type { EventView } from "./types";

/** The captured steps of a member and what they form. Steps, positions and sequences count from 0. */
export interface MemberSteps {
  program: string;
  /** Digest of its sample; null until it is assembled. */
  sample: string | null;
  steps: MemberStep[];
  sequences: StepSequence[];
  excluded: { step: number; reason: string }[];
  breaks: { step: number; kind: string }[];
}

export interface MemberStep {
  number: number;
  prompt: number[];
  output: number[];
  /** Of each token of `output`; JSON has null for one that is no finite number. */
  logprobs: (number | null)[];
  version: number;
  /** Whether its client got the whole answer: complete or unknown. */
  delivery: string;
}

export interface StepSequence {
  ids: number[];
  sampled: SampledRange[];
}

/** Positions that a step sampled, from `start` up to and without `end`. */
export interface SampledRange {
  step: number;
  start: number;
  end: number;
}

const REFRESH_MS = 10_000;
/** How long a sample that no page shows is kept: it may have millions of tokens. */
const KEPT_MS = 30_000;
/** Events of one kind that are read, the newest. */
const EVENTS_MAX = 5000;

export const memberSteps = (job: string, program: string, batch?: string) =>
  queryOptions({
    queryKey: ["memberSteps", job, program, batch],
    queryFn: ({ signal }) =>
      read<MemberSteps>(
        `${JOBS}/{job}/members/{program}/steps`,
        { job, program },
        batch ? { batch } : {},
        signal,
      ),
    gcTime: KEPT_MS,
    structuralSharing: false,
  });

async function eventsOf(
  scope: { job: string } | { program: string },
  kind: string,
  signal: AbortSignal,
): Promise<EventView[]> {
  const query = { ...scope, kind, latest: true, limit: EVENTS_MAX };
  return (await call("get", "/api/v1/events", { query, signal })).events;
}

/** The members that began lately, by the journal: no other call lists them before their batch. */
export const arrivals = (job: string) =>
  queryOptions({
    queryKey: ["arrivals", job],
    queryFn: async ({ signal }) =>
      membersOf(job, await eventsOf({ job }, "member_arrived", signal)),
    refetchInterval: REFRESH_MS,
  });

/** Kinds of events that tell what became of a member. */
const KINDS = [
  "member_arrived",
  "member_ended",
  "capture_failed",
  "reward_given",
  "reward_failed",
  "program_rewarded",
];

/** What the journal has of one member; null if that is nothing. */
export const memberOnRecord = (job: string, program: string) =>
  queryOptions({
    queryKey: ["memberOnRecord", job, program],
    queryFn: async ({ signal }) => {
      const read = KINDS.map((kind) => eventsOf({ program }, kind, signal));
      return membersOf(job, (await Promise.all(read)).flat())[0] ?? null;
    },
    refetchInterval: REFRESH_MS,
  });

/** The first step of a program, and whether its messages are kept; null without any step. */
export const firstMessages = (program: string) =>
  queryOptions({
    queryKey: ["firstMessages", program],
    queryFn: async ({ signal }) => {
      const { steps } = await call("get", "/api/v1/programs/{program}/steps", {
        path: { program },
        query: { limit: 1 },
        signal,
      });
      const step = steps[0]?.step;
      if (step === undefined) return null;
      const { bodies } = await call("get", "/api/v1/programs/{program}/steps/{step}/bodies", {
        path: { program, step },
        signal,
      });
      return { step, kept: bodies.length > 0 };
    },
    staleTime: 60_000,
    retry: false,
  });
