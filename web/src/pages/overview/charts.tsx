// The charts of the overview.
import { useMemo } from "react";
import { percent } from "../../format/number";
import { duration } from "../../format/time";
import type { Point } from "../../live/history";
import {
  memoryShares,
  programStates,
  type Throughput as ThroughputSeries,
  throughputBetween,
} from "../../model/series";
import { USES } from "../../model/states";
import { Chart } from "../../ui/Chart";
import { Loading, Panel } from "../../ui/Panel";

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

/** Steps and tokens over time, from the daemon's samples. */
export function Throughput({ points }: { points: Point[] }) {
  const series = useMemo(() => throughputBetween(points), [points]);
  return (
    <Panel title="Throughput" note={spanOf(points)}>
      {points.length < 2 ? <Loading rows={4} /> : <ThroughputCharts series={series} />}
    </Panel>
  );
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
