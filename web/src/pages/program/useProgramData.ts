// Everything that is on record about one program, read again as events about it come in.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { decisions, programEvents, steps } from "../../api/programQueries";
import { children, program, queryClient } from "../../api/queries";
import type { DecisionView, EventView, ProgramView, StepView } from "../../api/types";
import { useWorkerNames, type WorkerNames } from "../../api/useWorkerNames";
import { journalNow } from "../../live/clock";
import { useFeed } from "../../live/hooks";
import { buildTimeline, type Timeline } from "../../model/timeline";

export interface ProgramData {
  view: ProgramView;
  steps: StepView[];
  decisions: DecisionView[];
  events: EventView[];
  timeline: Timeline;
  names: WorkerNames;
}

interface Answer {
  data: ProgramData | null;
  error: unknown;
  retry: () => void;
}

const REFRESH_MS = 1500;

export function useProgramData(id: string): Answer {
  const view = useQuery(program(id));
  const stepRows = useQuery(steps(id));
  const decisionRows = useQuery(decisions(id));
  const eventRows = useQuery(programEvents(id));
  const childRows = useQuery(children(id));
  const names = useWorkerNames();
  const now = useRefresh(id);
  const data = useMemo(() => {
    if (!view.data || !stepRows.data || !decisionRows.data || !eventRows.data) return null;
    const events = eventRows.data;
    const timeline = buildTimeline({
      steps: stepRows.data,
      decisions: decisionRows.data,
      events,
      children: childRows.data?.programs ?? [],
      now,
      endedAt: view.data.ended ? view.data.updated_at_us : null,
      nameOf: names.nameOf,
    });
    return {
      view: view.data,
      steps: stepRows.data,
      decisions: decisionRows.data,
      events,
      timeline,
      names,
    };
  }, [view.data, stepRows.data, decisionRows.data, eventRows.data, childRows.data, names, now]);
  const error = view.error ?? stepRows.error ?? decisionRows.error ?? eventRows.error;
  const retry = () => void refresh(id);
  return { data, error, retry };
}

function refresh(id: string): Promise<unknown> {
  return Promise.all(
    ["program", "steps", "decisions", "programEvents", "children"].map((key) =>
      queryClient.invalidateQueries({ queryKey: [key, id] }),
    ),
  );
}

/** Reads a live program again after events about it; returns the time of the last reading. */
function useRefresh(id: string): number {
  const [now, setNow] = useState(journalNow);
  const [dirty, setDirty] = useState(false);
  useFeed((events) => {
    if (events.some((event) => event.program === id)) setDirty(true);
  });
  useEffect(() => {
    if (!dirty) return;
    const timer = setTimeout(() => {
      setDirty(false);
      void refresh(id).then(() => setNow(journalNow()));
    }, REFRESH_MS);
    return () => clearTimeout(timer);
  }, [dirty, id]);
  return now;
}
