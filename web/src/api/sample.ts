// What a member of a training job sampled, and where its messages are.
import { queryOptions } from "@tanstack/react-query";
import { call } from "./client";
import { JOBS, read } from "./training";

/** The captured steps of a member and what they form. Steps, positions and sequences count from 0. */
export interface MemberSteps {
  program: string;
  group: string;
  /** How it ended; null while it runs. */
  end: string | null;
  reward: number | null;
  /** Why the tokens of a step could not be captured. */
  incomplete?: string;
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
  /** Whether it continued an answer by its tokens, if its job wants that; else why not. */
  history?: string;
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

/** How long a sample that no page shows is kept: it may have millions of tokens. */
const KEPT_MS = 30_000;

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
