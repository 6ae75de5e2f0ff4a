// The programs of a job as lanes. Steps of a program are read again only when it has changed.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { call } from "../../api/client";
import { inPool } from "../../api/pool";
import { stepsAfter } from "../../api/programQueries";
import { queryClient } from "../../api/queries";
import type { EventView, ProgramView, StepView } from "../../api/types";
import { visibleText } from "../../format/text";
import { journalNow } from "../../live/clock";
import { endOf } from "../../model/critical";
import { stalenessOf } from "../../model/outlook";
import { buildTimeline, type Lane, type Span } from "../../model/timeline";

export interface ProgramLane extends Lane {
  program: ProgramView;
  /** The worker of each step, for colours. */
  workers: Map<number, string>;
  /** Versions of the weights that its job has seen since those of each step. */
  staleness: Map<number, number | null>;
  begun: number;
  /** When it ended, or the time now. */
  ended: number;
  /** When it ended, or is expected to; null where that is not known. */
  end: number | null;
}

export interface Lanes {
  lanes: ProgramLane[];
  /** There are older programs than these. */
  more: boolean;
}

const EVENTS = 2000;
const REFRESH_MS = 5000;

export function useLanes(job: string | undefined, limit: number, live: boolean) {
  return useQuery({
    queryKey: ["lanes", job, limit],
    queryFn: ({ signal }) => readLanes(job, limit, signal),
    placeholderData: keepPreviousData,
    refetchInterval: live ? REFRESH_MS : false,
  });
}

async function readLanes(
  job: string | undefined,
  limit: number,
  signal: AbortSignal,
): Promise<Lanes> {
  const [page, events] = await Promise.all([
    call("get", "/api/v1/programs", { query: { job, limit, sort: "-created_at_us" }, signal }),
    call("get", "/api/v1/events", { query: { job, latest: true, limit: EVENTS }, signal }),
  ]);
  const byProgram = Map.groupBy(events.events, (event) => event.program ?? "");
  const now = journalNow();
  const read = await inPool(page.programs, async (program) => ({
    program,
    steps: await stepsOf(program, signal),
  }));
  const staleness = stalenessOf(read.flatMap(({ steps }) => steps));
  const lanes = read.map(({ program, steps }) => ({
    ...laneOf(program, steps, byProgram.get(program.program_id) ?? [], now),
    staleness: new Map(steps.map((step) => [step.step, staleness(step)])),
  }));
  return {
    lanes: lanes.filter((lane) => lane.spans.length > 0).sort((a, b) => a.begun - b.begun),
    more: Boolean(page.next),
  };
}

function stepsOf(program: ProgramView, signal: AbortSignal): Promise<StepView[]> {
  const { program_id, steps, updated_at_us } = program;
  return queryClient.fetchQuery({
    queryKey: ["laneSteps", program_id, steps, updated_at_us],
    queryFn: () => stepsAfter(program_id, null, signal),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}

function laneOf(
  program: ProgramView,
  steps: StepView[],
  events: EventView[],
  now: number,
): Omit<ProgramLane, "staleness"> {
  const ended = program.ended ? program.updated_at_us : null;
  const timeline = buildTimeline({
    steps,
    decisions: [],
    events,
    now,
    endedAt: ended,
    nameOf: (worker) => worker,
  });
  const spans: Span[] = timeline.lanes
    .filter((lane) => lane.id !== "cache")
    .flatMap((lane) => lane.spans)
    .sort((a, b) => a.from - b.from);
  return {
    id: program.program_id,
    label: visibleText(program.program_id, 80),
    spans,
    program,
    workers: new Map(steps.map((step) => [step.step, step.worker ?? ""])),
    begun: timeline.from,
    ended: ended ?? now,
    end: endOf(program, steps, now),
  };
}
