// What the pages ask the daemon for, and how often.
import { infiniteQueryOptions, QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, call } from "./client";
import type { DecisionView, EventView, StepView } from "./types";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000,
      refetchOnWindowFocus: false,
      retry: (failures, error) =>
        failures < 1 && !(error instanceof ApiError && error.status > 0 && error.status < 500),
    },
  },
});

export const whoami = queryOptions({
  queryKey: ["whoami"],
  queryFn: ({ signal }) => call("get", "/api/v1/whoami", { signal }),
  staleTime: 60_000,
});

export const health = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => call("get", "/health", { signal }),
  refetchInterval: 5000,
});

export const workers = queryOptions({
  queryKey: ["workers"],
  queryFn: ({ signal }) => call("get", "/api/v1/workers", { signal }),
  refetchInterval: 3000,
});

export const memory = queryOptions({
  queryKey: ["memory"],
  queryFn: ({ signal }) => call("get", "/api/v1/memory", { signal }),
  refetchInterval: 5000,
});

export const cluster = queryOptions({
  queryKey: ["cluster"],
  queryFn: ({ signal }) => call("get", "/api/v1/cluster", { signal }),
  refetchInterval: 10_000,
});

export interface ProgramFilter {
  job?: string | undefined;
  parent?: string | undefined;
  status?: string | undefined;
  worker?: string | undefined;
  sort?: string | undefined;
}

const PROGRAMS_PAGE = 200;

export const programs = (filter: ProgramFilter) =>
  infiniteQueryOptions({
    queryKey: ["programs", filter],
    queryFn: ({ pageParam, signal }) =>
      call("get", "/api/v1/programs", {
        query: { ...filter, after: pageParam, limit: PROGRAMS_PAGE },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? undefined,
  });

export const program = (id: string) =>
  queryOptions({
    queryKey: ["program", id],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/programs/{program}", { path: { program: id }, signal }),
  });

/** The newest programs that a program started. */
export const children = (id: string) =>
  queryOptions({
    queryKey: ["children", id],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/programs", { query: { parent: id, limit: 1000 }, signal }),
  });

const STEPS_PAGE = 1000;

export async function allSteps(id: string, signal?: AbortSignal): Promise<StepView[]> {
  const steps: StepView[] = [];
  for (;;) {
    const page = await call("get", "/api/v1/programs/{program}/steps", {
      path: { program: id },
      query: { after: steps.at(-1)?.step ?? null, limit: STEPS_PAGE },
      ...(signal ? { signal } : {}),
    });
    steps.push(...page.steps);
    if (page.steps.length < STEPS_PAGE) return steps;
  }
}

export const steps = (id: string) =>
  queryOptions({ queryKey: ["steps", id], queryFn: ({ signal }) => allSteps(id, signal) });

export const decisions = (id: string) =>
  queryOptions({
    queryKey: ["decisions", id],
    queryFn: async ({ signal }) => {
      const all: DecisionView[] = [];
      let after: string | null = null;
      for (;;) {
        const page = await decisionsPage(id, after, signal);
        all.push(...page.decisions);
        if (!page.next) return all;
        after = page.next;
      }
    },
  });

function decisionsPage(
  id: string,
  after: string | null,
  signal: AbortSignal,
): Promise<{ decisions: DecisionView[]; next?: string | null }> {
  return call("get", "/api/v1/programs/{program}/decisions", {
    path: { program: id },
    query: { after, limit: 1000 },
    signal,
  });
}

/** Events of one program that are loaded at most. */
export const PROGRAM_EVENTS_MAX = 50_000;
const EVENTS_PAGE = 5000;

export const programEvents = (id: string) =>
  queryOptions({
    queryKey: ["programEvents", id],
    queryFn: async ({ signal }) => {
      const all: EventView[] = [];
      while (all.length < PROGRAM_EVENTS_MAX) {
        const page = await call("get", "/api/v1/events", {
          query: { program: id, after: all.at(-1)?.seq ?? null, limit: EVENTS_PAGE },
          signal,
        });
        all.push(...page.events);
        if (!page.next || page.events.length === 0) break;
      }
      return all;
    },
  });

export const bodies = (id: string, step: number) =>
  queryOptions({
    queryKey: ["bodies", id, step],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/programs/{program}/steps/{step}/bodies", {
        path: { program: id, step },
        signal,
      }),
  });

export const plugins = queryOptions({
  queryKey: ["plugins"],
  queryFn: ({ signal }) => call("get", "/api/v1/plugins", { signal }),
});

export const plugin = (id: string) =>
  queryOptions({
    queryKey: ["plugin", id],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/plugins/{plugin}", { path: { plugin: id }, signal }),
    refetchInterval: 3000,
  });

export const pluginLogs = (id: string) =>
  queryOptions({
    queryKey: ["pluginLogs", id],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/plugins/{plugin}/logs", { path: { plugin: id }, signal }),
    refetchInterval: 3000,
  });

export const bindings = queryOptions({
  queryKey: ["bindings"],
  queryFn: ({ signal }) => call("get", "/api/v1/bindings", { signal }),
  refetchInterval: 3000,
});

export const whatIfRuns = queryOptions({
  queryKey: ["whatIf"],
  queryFn: ({ signal }) => call("get", "/api/v1/what-if/runs", { signal }),
  refetchInterval: 2000,
});

export const whatIfRun = (run: string) =>
  queryOptions({
    queryKey: ["whatIf", run],
    queryFn: ({ signal }) => call("get", "/api/v1/what-if/runs/{run}", { path: { run }, signal }),
    refetchInterval: (query) => {
      const status = query.state.data?.status;
      return status === "queued" || status === "running" ? 1000 : false;
    },
  });

export const tokens = queryOptions({
  queryKey: ["tokens"],
  queryFn: ({ signal }) => call("get", "/api/v1/tokens", { signal }),
});

export const tenants = queryOptions({
  queryKey: ["tenants"],
  queryFn: ({ signal }) => call("get", "/api/v1/tenants", { signal }),
});

export interface AuditFilter {
  action?: string | undefined;
  who?: string | undefined;
  target?: string | undefined;
}

export const audit = (filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam, signal }) =>
      call("get", "/api/v1/audit", { query: { ...filter, before: pageParam, limit: 100 }, signal }),
    initialPageParam: null as number | null,
    getNextPageParam: (page) => page.next ?? undefined,
  });
