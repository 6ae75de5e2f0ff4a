// A program's timeline in the trace event format that Perfetto and chrome://tracing read.
import type { Timeline } from "./timeline";

interface TraceEvent {
  name: string;
  ph: "X" | "M";
  pid: number;
  tid: number;
  ts?: number;
  dur?: number;
  cat?: string;
  args: Record<string, unknown>;
}

/** The trace as JSON. */
export function toTrace(programId: string, timeline: Timeline): string {
  const events: TraceEvent[] = [
    { name: "process_name", ph: "M", pid: 1, tid: 0, args: { name: programId } },
  ];
  timeline.lanes.forEach((lane, at) => {
    const tid = at + 1;
    events.push({ name: "thread_name", ph: "M", pid: 1, tid, args: { name: lane.label } });
    events.push({ name: "thread_sort_index", ph: "M", pid: 1, tid, args: { sort_index: tid } });
    for (const span of lane.spans) {
      events.push({
        name: span.label,
        cat: span.state,
        ph: "X",
        pid: 1,
        tid,
        ts: span.from,
        dur: Math.max(0, span.to - span.from),
        args: span.step === undefined ? {} : { step: span.step },
      });
    }
  });
  return JSON.stringify({ displayTimeUnit: "ms", traceEvents: events });
}
