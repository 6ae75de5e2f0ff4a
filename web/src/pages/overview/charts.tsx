// The charts of the overview.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { call } from "../../api/client";
import type { EventView } from "../../api/types";
import { percent } from "../../format/number";
import { duration } from "../../format/time";
import type { Point } from "../../live/history";
import { useFeed } from "../../live/hooks";
import {
  memoryShares,
  programStates,
  type Throughput as ThroughputSeries,
  throughputBetween,
  throughputOf,
} from "../../model/series";
import { USES } from "../../model/states";
import { Chart } from "../../ui/Chart";
import { Empty, Failure, Loading, Panel } from "../../ui/Panel";

const EVENTS_MAX = 20_000;
const STRETCHES = 60;
const REDRAW_MS = 2000;
const HOUR_US = 3600e6;

/** Steps and tokens of the last hour, from the journal: also from before the page was opened. */
export function Throughput() {
  const past = useQuery({
    queryKey: ["throughput"],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/events", {
        query: { kind: "step_finished", latest: true, limit: EVENTS_MAX },
        signal,
      }),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  const events = useFinished(past.data?.events);
  const series = useMemo(() => throughputOf(events, STRETCHES), [events]);
  const first = events[0]?.at_us ?? 0;
  const last = events.at(-1)?.at_us ?? 0;
  return (
    <Panel
      title="Throughput"
      note={last > first ? `last ${duration(last - first)}, from the journal` : undefined}
    >
      {past.isPending ? (
        <Loading rows={4} />
      ) : past.error ? (
        <Failure error={past.error} retry={() => void past.refetch()} />
      ) : series.times.length === 0 ? (
        <Empty icon="overview" title="No step has finished yet">
          <p>Steps and tokens are counted here as answers come in.</p>
        </Empty>
      ) : (
        <ThroughputCharts series={series} />
      )}
    </Panel>
  );
}

function ThroughputCharts({ series }: { series: ThroughputSeries }) {
  return (
    <div className="chart-pair">
      <Chart
        label="Steps a minute over time"
        times={series.times}
        height={110}
        series={[{ label: "Steps/min", color: "accent", values: series.stepsPerMin }]}
      />
      <Chart
        label="Generated tokens a second over time"
        times={series.times}
        height={110}
        series={[{ label: "Tokens/s", color: "state-decode", values: series.tokensPerS }]}
      />
    </div>
  );
}

/** Steps and tokens over time, from the daemon's samples: of days. */
export function Rates({ points }: { points: Point[] }) {
  const series = useMemo(() => throughputBetween(points), [points]);
  return (
    <Panel title="Throughput" note={spanOf(points)}>
      {points.length < 2 ? <Loading rows={4} /> : <ThroughputCharts series={series} />}
    </Panel>
  );
}

/** Finished steps: those on record, and those that come in. */
function useFinished(past: EventView[] | undefined): EventView[] {
  const [live, setLive] = useState<EventView[]>([]);
  const [shown, setShown] = useState<EventView[]>([]);
  useFeed((events) => {
    const finished = events.filter((event) => event.kind === "step_finished");
    if (finished.length > 0) setLive((before) => [...before, ...finished].slice(-EVENTS_MAX));
  });
  const latest = useRef(live);
  latest.current = live;
  useEffect(() => {
    const merge = () => {
      const last = past?.at(-1)?.seq ?? -1;
      const all = [...(past ?? []), ...latest.current.filter((event) => event.seq > last)];
      const from = (all.at(-1)?.at_us ?? 0) - HOUR_US;
      setShown(all.filter((event) => event.at_us >= from));
    };
    merge();
    const timer = setInterval(merge, REDRAW_MS);
    return () => clearInterval(timer);
  }, [past]);
  return shown;
}

/** The time that points are of. */
function spanOf(points: Point[]): string {
  const [first, last] = [points[0], points.at(-1)];
  return first && last ? `last ${duration(last.at - first.at)}` : "";
}

/** Programs by what they do. */
export function States({ points }: { points: Point[] }) {
  const times = useMemo(() => points.map((point) => point.at), [points]);
  const series = useMemo(() => {
    const states = programStates(points);
    return [
      { label: "Running", color: "state-decode", values: states.running },
      { label: "Queued", color: "state-queued", values: states.queued },
      { label: "Tool, cache held", color: "state-tool", values: states.tool },
      { label: "Tool, paused", color: "state-paused", values: states.paused },
    ];
  }, [points]);
  return (
    <Panel title="Programs by state" note={spanOf(points)}>
      {points.length < 2 ? (
        <Loading rows={4} />
      ) : (
        <Chart
          label="Programs by state over time"
          times={times}
          series={series}
          stacked
          height={246}
        />
      )}
    </Panel>
  );
}

const USE_NAMES = USES.map((one) => one.use);

/** What the memory of all workers was used for. */
export function Memory({ points }: { points: Point[] }) {
  const times = useMemo(() => points.slice(1).map((point) => point.at), [points]);
  const series = useMemo(() => {
    const shares = memoryShares(points, USE_NAMES).map((values) => values.slice(1));
    return USES.map((use, at) => ({
      label: use.label,
      color: `state-${use.state}`,
      values: shares[at] ?? [],
    }));
  }, [points]);
  return (
    <Panel
      title="Use of KV memory"
      note={["cost ledger: share of all workers' memory", spanOf(points)]
        .filter(Boolean)
        .join(", ")}
    >
      {points.length < 3 ? (
        <Loading rows={4} />
      ) : (
        <Chart
          label="Use of KV memory over time"
          times={times}
          series={series}
          stacked
          max={1}
          height={170}
          format={(value) => (value === null || value === undefined ? "–" : percent(value))}
        />
      )}
    </Panel>
  );
}
