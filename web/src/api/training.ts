// Training jobs: what the daemon answers about them, and the queries of the page. The types are
// written by hand, because the generated schema does not have these paths yet.
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { BATCH_KINDS } from "../model/batchLines";
import { batchNumbers, settledBatches } from "../model/training";
import { ApiError, send, urlOf } from "./client";
import { type Kept, readKind, together } from "./journal";
import { inPool } from "./pool";
import { queryClient } from "./queries";

export interface TrainingJob {
  job: string;
  settings: TrainingSettings;
  /** How often the trainer went back to a checkpoint. */
  lineage: number;
  /** The weights that engines have; null after the trainer went back, until it reports them. */
  version: number | null;
  digest: string | null;
  /** The next batch to be cut. */
  next_batch: number;
  /** The last batch in a checkpoint; 0 before the first. */
  checkpoint: number;
  queued: number;
  running: number;
  ready: number;
  /** Programs that wait to begin. */
  held: number;
  waits: TrainingWait[];
  account: BiasAccount;
  /** What members need; absent before the first has ended. */
  profile?: TrainingProfile | null;
}

/** What members need, by domain, and the classes of hardware that they prefer. */
export interface TrainingProfile {
  domains: Record<string, DomainNeeds>;
  /** Classes that treadle chose last, which act once they are chosen again. */
  proposed?: Record<string, string>;
  /** A declaration that looks wrong, with figures. */
  note?: string | null;
}

/** Means over the latest members of a domain. */
export interface DomainNeeds {
  class?: string | null;
  members: number;
  turns: number;
  prefill_tokens: number;
  output_tokens: number;
  /** Seconds that a member takes on each class whose speeds are learnt. */
  seconds: Record<string, number>;
}

export interface TrainingSettings {
  model: string | null;
  group_size: number;
  batch_groups: number;
  lag_max: number;
  pipeline: number;
  stale: string;
  failures_max: number;
  starved_after: number;
  rewarded: boolean;
  /** What is captured of requests that treadle forwards. */
  capture: "none" | "tokens";
  /** Which prompts continue captured answers. */
  history: "as_sent" | "as_sampled";
  member_timeout_s: number;
  /** The class of hardware that programs prefer, by domain; or "auto". */
  affinity?: Record<string, string> | "auto";
  /** The action that computes rewards. */
  reward?: object;
}

export interface TrainingWait {
  who: string;
  waits_for: string;
  message: string;
}

/** What became of members. */
export interface MemberOutcomes {
  begun: number;
  finished: MemberTally;
  served: MemberTally;
  /** By how members ended. */
  lost: Record<string, MemberTally>;
}

/** What became of all members of a job. */
export interface BiasAccount extends MemberOutcomes {
  /** What became of those of groups with a domain. */
  domains: Record<string, MemberOutcomes>;
  /** Steps of samples that continue no earlier one, by why they don't. */
  breaks: Record<string, number>;
  returned: number;
  never_served: number;
  surplus: number;
  /** Largest lag of a group in a batch. */
  lag: number;
}

export interface MemberTally {
  members: number;
  tokens: number;
  turns: number;
  rewarded: number;
  reward_mean: number | null;
}

/** A group that is in no batch. */
export interface TrainingGroup {
  group: string;
  state: string;
  size: number;
  begun: number;
  ended: number;
  rewarded: number;
  version: number | null;
  failures: number;
  returned: number;
  /** Programs that named it when it had all its members. */
  surplus: number;
  members: GroupMember[];
  /** Members that it lost lately, the latest last. */
  lost: LostMember[];
}

/** A member of a group that is in no batch. */
export interface GroupMember {
  program: string;
  begun_at_us: number;
  /** How it ended; null while it runs. */
  end: string | null;
  reward: number | null;
  version: number;
  tokens: number;
  turns: number;
  sample: string | null;
  /** Why the tokens of a step could not be captured. */
  incomplete?: string;
}

export interface LostMember {
  program: string;
  end: string;
  cause: string | null;
}

/** A batch without the contents of its groups and what clients added to members. */
export interface TrainingBatch {
  batch: number;
  lineage: number;
  trained: boolean;
  groups: BatchGroup[];
}

export interface BatchGroup {
  group: string;
  version: number;
  lag: number;
  members: BatchMember[];
}

export interface BatchMember {
  program: string;
  end: string;
  reward: number | null;
  version: number;
  tokens: number;
  turns: number;
  sample: string | null;
}

interface GroupsPage {
  groups: TrainingGroup[];
  next?: string;
}

export const JOBS = "/api/v1/jobs";
const REFRESH_MS = 3000;
const GROUPS_PAGE = 100;
/** Maximum number of groups of one batch that are read; of a larger batch, every n-th group is. */
export const BATCH_GROUPS_MAX = 256;

/** Refreshes a query until the job is gone. */
function refresh({ state }: { state: { error: Error | null } }): number | false {
  return isGone(state.error) ? false : REFRESH_MS;
}

/** Whether a request failed because the daemon has no such job. */
export function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.code === "job_unknown";
}

/** Reads an answer that the console has a type of its own for. */
export async function read<T>(
  path: string,
  values: Record<string, string | number>,
  query: Record<string, unknown>,
  signal: AbortSignal,
): Promise<T> {
  const response = await send(urlOf(path, values, query), { signal });
  return (await response.json()) as T;
}

export const trainingJobs = queryOptions({
  queryKey: ["trainingJobs"],
  queryFn: ({ signal }) => read<{ jobs: TrainingJob[] }>(JOBS, {}, {}, signal),
  refetchInterval: REFRESH_MS,
});

export const trainingJob = (job: string) =>
  queryOptions({
    queryKey: ["trainingJob", job],
    queryFn: ({ signal }) => readJob(job, signal),
    refetchInterval: refresh,
  });

function readJob(job: string, signal: AbortSignal): Promise<TrainingJob> {
  return read(`${JOBS}/{job}`, { job }, {}, signal);
}

/** The groups that are in no batch, or only those of them with members. */
export const trainingGroups = (job: string, begun = false) =>
  infiniteQueryOptions({
    queryKey: ["trainingGroups", job, begun],
    queryFn: ({ pageParam, signal }) => {
      const query = { begun, after: pageParam, limit: GROUPS_PAGE };
      return read<GroupsPage>(`${JOBS}/{job}/groups`, { job }, query, signal);
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next ?? undefined,
    // Rows must not move for a reader who has scrolled.
    refetchInterval: (query) =>
      (query.state.data?.pages.length ?? 0) > 1 ? false : refresh(query),
  });

/** One group; null if it is in a batch, or unknown. */
export const trainingGroup = (job: string, group: string) =>
  queryOptions({
    queryKey: ["trainingGroup", job, group],
    queryFn: async ({ signal }) => {
      const page = await read<GroupsPage>(`${JOBS}/{job}/groups`, { job }, { group }, signal);
      return page.groups[0] ?? null;
    },
    refetchInterval: refresh,
  });

/** The latest batches that no checkpoint has released, the newest first. */
export const trainingBatches = (job: string) =>
  queryOptions({
    queryKey: ["trainingBatches", job],
    queryFn: async ({ signal }) => {
      // Asking for a batch that does not exist cuts it. The job tells which ones do, and it is read
      // here because one that was read earlier may have been forgotten and declared again.
      const view = await readJob(job, signal);
      const known = queryClient.getQueryData<TrainingBatch[]>(["trainingBatches", job]) ?? [];
      const settled = settledBatches(known, view);
      const slices = Math.ceil(view.settings.batch_groups / BATCH_GROUPS_MAX);
      const batches = await inPool(
        batchNumbers(view),
        async (batch) => settled.get(batch) ?? (await readBatch(job, batch, slices, signal)),
      );
      return batches.filter((batch) => batch !== null);
    },
    refetchInterval: refresh,
  });

/** The job's events that tell when batches were cut, and what was lost. */
export const batchEvents = (job: string) =>
  queryOptions({
    queryKey: ["batchEvents", job],
    queryFn: async ({ signal }) => {
      const before = queryClient.getQueryData<{ kept: Map<string, Kept> }>(["batchEvents", job]);
      const read = await inPool([...BATCH_KINDS], async (kind): Promise<[string, Kept]> => {
        return [kind, await readKind({ kind, job }, before?.kept.get(kind), signal)];
      });
      return { kept: new Map(read), ...together(read.map(([, own]) => own)) };
    },
    staleTime: Number.POSITIVE_INFINITY,
    structuralSharing: false,
  });

/** A batch, or the first of its slices; null if a checkpoint has released it meanwhile. */
async function readBatch(
  job: string,
  batch: number,
  slices: number,
  signal: AbortSignal,
): Promise<TrainingBatch | null> {
  const query = slices > 1 ? { rank: 0, of: slices } : {};
  try {
    const path = `${JOBS}/{job}/batches/{batch}`;
    const answer = await read<TrainingBatch | { ready: false }>(
      path,
      { job, batch },
      query,
      signal,
    );
    return "groups" in answer ? lean(answer) : null;
  } catch (error) {
    if (error instanceof ApiError && error.code === "batch_released") return null;
    throw error;
  }
}

/** Contents and infos are up to 1 MiB each, and not shown. */
function lean({ batch, lineage, trained, groups }: TrainingBatch): TrainingBatch {
  const memberOf = ({ program, end, reward, version, tokens, turns, sample }: BatchMember) => ({
    ...{ program, end, reward, version, tokens, turns, sample },
  });
  const groupOf = ({ group, version, lag, members }: BatchGroup) => ({
    ...{ group, version, lag, members: members.map(memberOf) },
  });
  return { batch, lineage, trained, groups: groups.map(groupOf) };
}
