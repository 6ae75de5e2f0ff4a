// A program's life as spans of time in lanes, from its steps, decisions and events.
import type { DecisionView, EventView, StepView } from "../api/types";
import { cacheSpans } from "./cache";
import { ALONE, type Family, familyLanes, type Hidden } from "./family";
import { type Interval, union } from "./scale";
import type { State } from "./states";

export interface Span extends Interval {
  state: State;
  label: string;
  /** Its colour, if it is not that of its state. */
  token?: string;
  /** The step that it belongs to. */
  step?: number;
  /** The program that it stands for. */
  program?: string;
  /** It has not ended yet. */
  open?: boolean;
}

export interface Lane {
  id: string;
  label: string;
  spans: Span[];
}

export interface Timeline extends Interval {
  lanes: Lane[];
  /** When a step waited or ran, or a subagent was at work. */
  busy: Interval[];
  /** Subagents that are in no lane. */
  hidden: Hidden[];
}

export interface TimelineInput {
  steps: StepView[];
  decisions: DecisionView[];
  events: EventView[];
  family?: Family;
  /** The end of spans that are still open. */
  now: number;
  /** When the program ended, if it did. */
  endedAt: number | null;
  nameOf: (worker: string) => string;
}

/** Lays out the records of a program. */
export function buildTimeline(input: TimelineInput): Timeline {
  const { steps, events, now, endedAt } = input;
  const end = endedAt ?? now;
  const queue: Span[] = [];
  const byWorker = new Map<string, Span[]>();
  for (const step of steps) {
    const spans = spansOfStep(step, end, endedAt === null);
    if (spans.queued) queue.push(spans.queued);
    if (!step.worker) continue;
    const lane = byWorker.get(step.worker) ?? [];
    lane.push(...spans.running);
    byWorker.set(step.worker, lane);
  }
  const workerLanes = [...byWorker]
    .map(([worker, spans]) => ({ id: worker, label: input.nameOf(worker), spans }))
    .sort((a, b) => a.label.localeCompare(b.label, "en", { numeric: true }));
  const tools = toolSpans(steps, events, end, endedAt === null);
  const cache = cacheSpans(input.decisions, events, end, input.nameOf);
  const family = input.family ?? ALONE;
  const { above, below, hidden } = familyLanes(family, now, input.nameOf);
  const lanes = [
    ...above,
    { id: "queue", label: "Queue", spans: queue },
    ...workerLanes,
    { id: "tool", label: "Tools", spans: tools },
    ...below,
    { id: "cache", label: "KV cache", spans: cache },
  ];
  const atWork = family.below.flat().map((program) => ({
    from: program.created_at_us,
    to: program.updated_at_us,
  }));
  const busy = steps
    .map((step) => ({ from: step.arrived_at_us, to: step.finished_at_us ?? end }))
    .concat(atWork);
  const from = Math.min(...steps.map((step) => step.arrived_at_us), end);
  const to = Math.max(from + 1, end, ...busy.map((one) => one.to));
  return { from, to, lanes, busy, hidden };
}

/** The spans of one step: how long it waited, and what its worker did. */
function spansOfStep(
  step: StepView,
  end: number,
  live: boolean,
): { queued: Span | null; running: Span[] } {
  const done = step.finished_at_us ?? null;
  const over = done ?? end;
  const sent = step.dispatched_at_us ?? null;
  const open = live && done === null;
  const queuedTo = sent ?? over;
  const queued: Span | null =
    queuedTo > step.arrived_at_us
      ? {
          state: "queued",
          from: step.arrived_at_us,
          to: queuedTo,
          step: step.step,
          label: "Queued",
          open: open && sent === null,
        }
      : null;
  if (sent === null) return { queued, running: [] };
  const failed = isFailed(step.outcome);
  const base = { step: step.step, open };
  const first = step.first_token_at_us ?? null;
  if (first === null) {
    const label = failed ? `Failed: ${step.outcome}` : "Decode";
    return {
      queued,
      running: [{ ...base, state: failed ? "failed" : "decode", from: sent, to: over, label }],
    };
  }
  return {
    queued,
    running: [
      { ...base, open: false, state: "prefill", from: sent, to: first, label: "Prefill" },
      {
        ...base,
        state: failed ? "failed" : "decode",
        from: first,
        to: over,
        label: failed ? `Failed: ${step.outcome}` : "Decode",
      },
    ],
  };
}

/** Whether a step did not succeed. */
export function isFailed(outcome: string | null | undefined): boolean {
  return ["failed", "cancelled", "interrupted", "refused"].includes(outcome ?? "");
}

function toolSpans(steps: StepView[], events: EventView[], end: number, live: boolean): Span[] {
  const spans: Span[] = [];
  const open = new Map<string, Span>();
  for (const { kind, at_us, event } of events) {
    const body = event as Record<string, unknown>;
    if (kind === "action_started") {
      const span: Span = {
        state: "tool",
        from: at_us,
        to: end,
        label: String(body.tool),
        open: live,
      };
      open.set(String(body.action), span);
      spans.push(span);
    }
    if (kind === "action_finished") {
      const span = open.get(String(body.action));
      if (!span) continue;
      span.to = at_us;
      span.open = false;
      if (body.ok === false) {
        span.state = "failed";
        span.label += " (failed)";
      }
      open.delete(String(body.action));
    }
  }
  return [...spans, ...outside(gaps(steps, live ? end : null), union(spans))].sort(
    (a, b) => a.from - b.from,
  );
}

/** Those of the spans that touch none of the sorted intervals. */
function outside(spans: Span[], intervals: Interval[]): Span[] {
  let at = 0;
  return spans.filter((span) => {
    while ((intervals[at]?.to ?? Number.POSITIVE_INFINITY) <= span.from) at += 1;
    return (intervals[at]?.from ?? Number.POSITIVE_INFINITY) >= span.to;
  });
}

/** Where no tool runner reports a call: the time between an answer and the next step, or now. */
function gaps(steps: StepView[], now: number | null): Span[] {
  return steps.flatMap((step, at) => {
    const next = steps[at + 1];
    const done = step.finished_at_us;
    const until = next?.arrived_at_us ?? now;
    if (!done || until === null || until <= done) return [];
    const label = "Between steps (no tool call reported)";
    return [{ state: "tool" as const, from: done, to: until, label, open: !next }];
  });
}
