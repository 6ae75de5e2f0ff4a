// How sure the gain or loss of each set against the first one is, over the seeds.
import type { WhatIfReport, WhatIfSet } from "../../api/types";
import { plural } from "../../format/number";
import { type Confidence, confidenceOf } from "../../model/confidence";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { MEASURES, type MeasureRow } from "./measures";

/** The measures that are compared seed by seed. */
const ROWS = MEASURES.filter((row) => row.ratio);

const VERDICTS: Record<Confidence["verdict"], { text: string; tone: string }> = {
  better: { text: "better beyond chance", tone: "kind good" },
  worse: { text: "worse beyond chance", tone: "kind bad" },
  chance: { text: "may be chance", tone: "dim" },
  "one seed": { text: "one seed tells nothing of chance", tone: "dim" },
};

export function AgainstFirst({ report }: { report: WhatIfReport }) {
  const first = report.sets[0];
  const others = report.sets.slice(1).filter((set) => set.against_first);
  if (!first || others.length === 0) return null;
  return (
    <Panel
      title={
        <>
          Against <Text value={first.name} max={60} />, seed by seed
        </>
      }
      note="95 % intervals of the ratios; what is common to both under a seed cancels out"
      flush
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Set</th>
              <th>Measure</th>
              <th className="num">Of the first</th>
              <th className="num">95 % interval</th>
              <th className="num">Better under</th>
              <th>Verdict</th>
            </tr>
          </thead>
          <tbody>
            {others.flatMap((set) =>
              ROWS.map((row, at) => (
                <Row key={`${set.name} ${row.ratio}`} row={row} set={set} first={first} at={at} />
              )),
            )}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Row({
  row,
  set,
  first,
  at,
}: {
  row: MeasureRow;
  set: WhatIfSet;
  first: WhatIfSet;
  at: number;
}) {
  const ratio = row.ratio && set.against_first?.[row.ratio];
  if (!ratio || row.better === "neither") return null;
  const figures = (of: WhatIfSet) => of.seeds.map((seed) => seed[row.key]);
  const sure = confidenceOf(ratio, figures(set), figures(first), row.better);
  const { text, tone } = VERDICTS[sure.verdict];
  return (
    <tr>
      <td>{at === 0 ? <Text value={set.name} max={60} /> : null}</td>
      <td className="nowrap">{row.label}</td>
      <td className="num">{share(ratio.mean)}</td>
      <td className="num nowrap">
        {sure.interval ? `${share(sure.interval[0])} to ${share(sure.interval[1])}` : "–"}
      </td>
      <td className="num nowrap">{`${sure.wins} of ${plural(sure.seeds, "seed")}`}</td>
      <td className={`nowrap ${tone}`}>{text}</td>
    </tr>
  );
}

function share(ratio: number): string {
  return `${(ratio * 100).toFixed(1)} %`;
}
