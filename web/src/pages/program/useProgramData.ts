// Everything that is on record about one program, read again as events about it come in.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { family } from "../../api/family";
import { decisions, programEvents, steps } from "../../api/programQueries";
import { program, queryClient } from "../../api/queries";
import type { DecisionView, EventView, ProgramView, StepView } from "../../api/types";
import { useWorkerNames, type WorkerNames } from "../../api/useWorkerNames";
import { journalNow } from "../../live/clock";
import { useFeed } from "../../live/hooks";
import type { Family } from "../../model/family";
import { buildTimeline, type Timeline } from "../../model/timeline";

export interface ProgramData {
  view: ProgramView;
  steps: StepView[];
  decisions: DecisionView[];
  events: EventView[];
  timeline: Timeline;
  names: WorkerNames;
  /** Nothing until it is read. */
  family: Family | undefined;
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
  const relatives = useQuery({ ...family(id, view.data?.parent), enabled: view.isSuccess });
  const names = useWorkerNames();
  const now = useRefresh(id, relatives.data);
  const data = useMemo(() => {
    if (!view.data || !stepRows.data || !decisionRows.data || !eventRows.data) return null;
    const events = eventRows.data;
    const timeline = buildTimeline({
      steps: stepRows.data,
      decisions: decisionRows.data,
      events,
      ...(relatives.data ? { family: relatives.data } : {}),
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
      family: relatives.data,
    };
  }, [view.data, stepRows.data, decisionRows.data, eventRows.data, relatives.data, names, now]);
  const error = view.error ?? stepRows.error ?? decisionRows.error ?? eventRows.error;
  const retry = () => void refresh(id);
  return { data, error, retry };
}

function refresh(id: string): Promise<unknown> {
  return Promise.all(
    ["program", "steps", "decisions", "programEvents", "family"].map((key) =>
      queryClient.invalidateQueries({ queryKey: [key, id] }),
    ),
  );
}

/** Reads a live program again after events about it or its subagents; returns when it was read last. */
function useRefresh(id: string, family: Family | undefined): number {
  const [now, setNow] = useState(journalNow);
  const [dirty, setDirty] = useState(false);
  const watched = useMemo(
    () => new Set([id, ...(family?.below.flat() ?? []).map((one) => one.program_id)]),
    [id, family],
  );
  useFeed((events) => {
    if (events.some((event) => event.program && watched.has(event.program))) setDirty(true);
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
