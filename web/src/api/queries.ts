// The pages' queries to the daemon, and their intervals.
import { infiniteQueryOptions, QueryClient, queryOptions } from "@tanstack/react-query";
import { isOver, LOOK_S } from "../model/demo";
import { ApiError, call } from "./client";
import { known, sessionGeneration } from "./session";

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
  queryFn: async ({ signal }) => {
    const generation = sessionGeneration();
    const me = await call("get", "/api/v1/whoami", { signal });
    if (me.who !== "anonymous") known(generation);
    return me;
  },
  staleTime: 60_000,
});

export const waysToSignIn = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => call("get", "/api/v1/session", { signal }),
  staleTime: 60_000,
});

export const health = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => call("get", "/health", { signal }),
  refetchInterval: 5000,
});

/** The demo that the daemon is part of, until its run has ended. */
export const demo = queryOptions({
  queryKey: ["demo"],
  queryFn: ({ signal }) => call("get", "/api/v1/demo", { signal }),
  refetchInterval: ({ state: { data, error } }) =>
    data && data.arms.length > 0 && !isOver(data, error !== null)
      ? LOOK_S * (error ? 4000 : 1000)
      : false,
  retry: false,
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
  search?: string | undefined;
  sort?: string | undefined;
}

/** Only the first pages are refreshed while they are visible. */
const PROGRAMS_PAGES = [200, 200, 1000];

export const programs = (filter: ProgramFilter) =>
  infiniteQueryOptions({
    queryKey: ["programs", filter],
    queryFn: ({ pageParam, signal }) =>
      call("get", "/api/v1/programs", {
        query: { ...filter, ...pageParam },
        signal,
      }),
    initialPageParam: { after: null as string | null, limit: PROGRAMS_PAGES[0] },
    getNextPageParam: ({ next }, pages) =>
      next
        ? { after: next, limit: PROGRAMS_PAGES[pages.length] ?? PROGRAMS_PAGES.at(-1) }
        : undefined,
  });

export const program = (id: string) =>
  queryOptions({
    queryKey: ["program", id],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/programs/{program}", { path: { program: id }, signal }),
  });

export interface StepFilter {
  job?: string | undefined;
  worker?: string | undefined;
  outcome?: string | undefined;
  sort?: string | undefined;
}

export const listedSteps = (filter: StepFilter) =>
  infiniteQueryOptions({
    queryKey: ["listedSteps", filter],
    queryFn: ({ pageParam, signal }) =>
      call("get", "/api/v1/steps", { query: { ...filter, after: pageParam, limit: 200 }, signal }),
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next ?? undefined,
    // Rows must not move for a reader who has scrolled.
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : 10_000),
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

export interface ActionFilter {
  job?: string | undefined;
  program?: string | undefined;
  status?: string | undefined;
}

export const actions = ({ program, ...filter }: ActionFilter) =>
  infiniteQueryOptions({
    queryKey: ["actions", filter, program],
    queryFn: ({ pageParam, signal }) =>
      call("get", "/api/v1/actions", {
        query: { ...filter, program_id: program, before: pageParam, limit: 200 },
        signal,
      }),
    initialPageParam: null as number | null,
    getNextPageParam: ({ next }) => next ?? undefined,
    refetchInterval: 3000,
  });

/** One action with its output, read again until it has ended. */
export const action = (id: number) =>
  queryOptions({
    queryKey: ["action", id],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/actions/{action}", { path: { action: id }, signal }),
    refetchInterval: (query) => (query.state.data?.status === "ended" ? false : 1000),
  });

export const resources = queryOptions({
  queryKey: ["resources"],
  queryFn: ({ signal }) => call("get", "/api/v1/resources", { signal }),
  refetchInterval: 3000,
});

export const sandboxes = queryOptions({
  queryKey: ["sandboxes"],
  queryFn: ({ signal }) => call("get", "/api/v1/sandboxes", { signal }),
  refetchInterval: 2000,
  // If there are none, don't poll: there will be none a moment later.
  retry: false,
});

export const nodes = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => call("get", "/api/v1/nodes", { signal }),
  refetchInterval: 2000,
  // If there are none, don't poll: there will be none a moment later.
  retry: false,
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

/** First and last of the events on record; null without any. */
export const journalExtent = queryOptions({
  queryKey: ["journalExtent"],
  queryFn: async ({ signal }) => {
    const [oldest, newest] = await Promise.all(
      [false, true].map((latest) =>
        call("get", "/api/v1/events", { query: { limit: 1, latest }, signal }),
      ),
    );
    const [first, last] = [oldest?.events[0], newest?.events[0]];
    if (!first || !last) return null;
    return { firstSeq: first.seq, lastSeq: last.seq, firstUs: first.at_us, lastUs: last.at_us };
  },
  refetchInterval: 10_000,
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
