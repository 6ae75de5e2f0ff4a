// What a member of a training job sampled, and where its messages are.
import { queryOptions } from "@tanstack/react-query";
import { chainsOf, stepIds, toolsAfter } from "../model/toolTurns";
import { call } from "./client";
import { inPool } from "./pool";
import { stepsAfter } from "./programQueries";
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
  /** Kind of the log-probabilities; absent from daemons before they told it. */
  logprobs?: string;
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
  /** The oldest version that sampled it. */
  version: number;
  /** Versions of ranges of it; absent from daemons before they told them. */
  versions?: StepSpan[];
  /** Whether its client got the whole answer: complete or unknown. */
  delivery: string;
  /** Whether it continued an answer by its tokens, if its job wants that; else why not. */
  history?: string;
}

/** Tokens of an output and the weights that sampled them. If `newest` is another version, the engine
 *  did not say where it changed. */
export interface StepSpan {
  start: number;
  end: number;
  version: number;
  newest: number;
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

/** Rows of steps whose last request is read for the names of tools. */
const NAMED_MAX = 8;

/** The tools whose results stand before each step of a member: the last request of steps in a row has
 *  the messages of all of them. */
export const toolTurns = (member: MemberSteps) => {
  const { program, steps } = member;
  const chains = chainsOf(member).slice(0, NAMED_MAX);
  return queryOptions({
    queryKey: ["toolTurns", program, steps.length],
    queryFn: async ({ signal }) => {
      const tools = new Map<number, string[]>();
      const ids = stepIds(steps, await stepsAfter(program, null, signal));
      await inPool(chains, async (chain) => {
        const step = ids.get(chain.at(-1) ?? 0);
        if (step === undefined) return;
        const path = { program, step };
        const { bodies } = await call("get", "/api/v1/programs/{program}/steps/{step}/bodies", {
          path,
          signal,
        });
        const request = bodies.find(({ kind }) => kind === "request");
        const after = request ? toolsAfter(request.text, chain.length - 1) : null;
        after?.forEach((names, at) => {
          const next = chain[at + 1];
          if (next !== undefined) tools.set(next, names);
        });
      });
      return tools;
    },
    staleTime: 60_000,
    retry: false,
    structuralSharing: false,
  });
};
