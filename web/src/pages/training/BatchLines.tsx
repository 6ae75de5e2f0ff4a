// Rewards, tokens, lags and losses of a job as lines, by batch, by version or over time.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { queryClient } from "../../api/queries";
import { batchEvents, type TrainingBatch, type TrainingJob } from "../../api/training";
import { short } from "../../format/number";
import { type Axis, type Lines, linesOf, recordOf } from "../../model/batchLines";
import { rewardText } from "../../model/training";
import { Chart } from "../../ui/Chart";

const HEIGHT = 120;
const AXES: [Axis, string][] = [
  ["batch", "By batch"],
  ["version", "By version"],
  ["time", "Over time"],
];

export function axisOf(named: string | undefined): Axis {
  return AXES.find(([axis]) => axis === named)?.[0] ?? "batch";
}

export function AxisChoice({ axis }: { axis: Axis }) {
  const navigate = useNavigate({ from: "/training/$job" });
  const choose = (next: string) =>
    void navigate({
      search: (old) => ({ ...old, axis: next === "batch" ? undefined : next }),
      replace: true,
      resetScroll: false,
    });
  return (
    <select
      className="input"
      aria-label="Lines"
      value={axis}
      onChange={(event) => choose(event.target.value)}
    >
      {AXES.map(([id, text]) => (
        <option key={id} value={id}>
          {text}
        </option>
      ))}
    </select>
  );
}

interface Props {
  batches: TrainingBatch[];
  job: TrainingJob;
  axis: Axis;
}

export function BatchLines({ batches, job: { job, next_batch, version }, axis }: Props) {
  const { data } = useQuery(batchEvents(job));
  // biome-ignore lint/correctness/useExhaustiveDependencies: a batch was cut, or a version came
  useEffect(() => {
    const queryKey = ["batchEvents", job];
    void queryClient.invalidateQueries({ queryKey }, { cancelRefetch: false });
  }, [job, next_batch, version]);
  const record = useMemo(() => recordOf(data?.events ?? [], data?.more ?? true), [data]);
  const lines = useMemo(() => linesOf(batches, record, axis), [batches, record, axis]);
  if (lines.at.length === 0)
    return (
      <p className="soft batch-lines">The journal no longer has when these batches were cut.</p>
    );
  return (
    <div className="batch-lines">
      <div className="grid-2">
        {CHARTS.map(({ what, series, format }) => (
          <Chart
            key={what}
            label={`${what} ${axis === "time" ? "over time" : `by ${axis}`}`}
            times={lines.at}
            {...(axis === "time" ? { few: true } : { unit: axis })}
            height={HEIGHT}
            series={series.map(([line, label, color]) => ({ label, color, values: lines[line] }))}
            format={format}
          />
        ))}
      </div>
      <p className="field-note">{NOTES[axis]}</p>
    </div>
  );
}

type Line = Exclude<keyof Lines, "at">;

const CHARTS: {
  what: string;
  series: [Line, string, string][];
  format: (value: number | null | undefined) => string;
}[] = [
  { what: "Mean reward", series: [["rewards", "Mean reward", "accent"]], format: rewardText },
  { what: "Mean tokens", series: [["tokens", "Mean tokens", "state-decode"]], format: short },
  {
    what: "Lag of groups",
    series: [
      ["lagMax", "Largest lag", "series-2"],
      ["lagMean", "Mean lag", "series-1"],
    ],
    format: rewardText,
  },
  {
    what: "Lost members",
    series: [
      ["failed", "Failed", "state-failed"],
      ["cut", "Cut or left out", "series-3"],
    ],
    format: short,
  },
];

const NOTES: Record<Axis, string> = {
  batch: "Lost members are those since the batch before.",
  version:
    "Members by the version that sampled their first token, groups by their oldest, lost members by the version that engines had then.",
  time: "A batch stands where it was cut. Lost members are those since the batch before.",
};
