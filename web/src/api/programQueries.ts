// The records of one program. Records do not change: each load continues after the last one.
import { queryOptions } from "@tanstack/react-query";
import { call } from "./client";
import { queryClient } from "./queries";
import type { DecisionView, EventView, StepView } from "./types";

const STEPS_PAGE = 1000;
const DECISIONS_PAGE = 1000;
const EVENTS_PAGE = 5000;

/** Steps that are reloaded, beside open ones: predictions come after their ends. */
const STEPS_OVERLAP = 20;

/** Maximum number of events of one program that are loaded. */
export const PROGRAM_EVENTS_MAX = 50_000;

/** The steps of a program after a number. */
export async function stepsAfter(
  id: string,
  after: number | null,
  signal: AbortSignal,
): Promise<StepView[]> {
  const steps: StepView[] = [];
  for (;;) {
    const page = await call("get", "/api/v1/programs/{program}/steps", {
      path: { program: id },
      query: { after: steps.at(-1)?.step ?? after, limit: STEPS_PAGE },
      signal,
    });
    steps.push(...page.steps);
    if (page.steps.length < STEPS_PAGE) return steps;
  }
}

export const steps = (id: string) =>
  queryOptions({
    queryKey: ["steps", id],
    queryFn: async ({ signal }) => {
      const known = queryClient.getQueryData<StepView[]>(["steps", id]) ?? [];
      const open = known.findIndex((step) => !step.outcome);
      const end = Math.max(0, known.length - STEPS_OVERLAP);
      const kept = known.slice(0, open < 0 ? end : Math.min(open, end));
      return [...kept, ...(await stepsAfter(id, kept.at(-1)?.step ?? null, signal))];
    },
    structuralSharing: false,
  });

export const decisions = (id: string) =>
  queryOptions({
    queryKey: ["decisions", id],
    queryFn: async ({ signal }) => {
      const all = [...(queryClient.getQueryData<DecisionView[]>(["decisions", id]) ?? [])];
      let after = all.at(-1)?.seq.toString() ?? null;
      do {
        const page = await decisionsPage(id, after, signal);
        all.push(...page.decisions);
        after = page.next ?? null;
      } while (after !== null);
      return all;
    },
    structuralSharing: false,
  });

function decisionsPage(
  id: string,
  after: string | null,
  signal: AbortSignal,
): Promise<{ decisions: DecisionView[]; next?: string | null }> {
  return call("get", "/api/v1/programs/{program}/decisions", {
    path: { program: id },
    query: { after, limit: DECISIONS_PAGE },
    signal,
  });
}

export const programEvents = (id: string) =>
  queryOptions({
    queryKey: ["programEvents", id],
    queryFn: async ({ signal }) => {
      const all = [...(queryClient.getQueryData<EventView[]>(["programEvents", id]) ?? [])];
      while (all.length < PROGRAM_EVENTS_MAX) {
        const page = await call("get", "/api/v1/events", {
          query: { program: id, after: all.at(-1)?.seq ?? null, limit: EVENTS_PAGE },
          signal,
        });
        all.push(...page.events);
        if (page.events.length < EVENTS_PAGE) break;
      }
      return all;
    },
    structuralSharing: false,
  });
