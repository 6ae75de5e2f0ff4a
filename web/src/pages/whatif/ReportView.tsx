// The report of a run: the sets side by side, and the first decisions that differ.
import type { RunView, WhatIfCuts, WhatIfRecorded, WhatIfReport, WhatIfSet } from "../../api/types";
import { count, plural, short } from "../../format/number";
import { duration } from "../../format/time";
import { windowText } from "../../model/window";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { AgainstFirst } from "./AgainstFirst";
import { Differences } from "./Differences";
import { MEASURES, type MeasureRow } from "./measures";
import { Verdict } from "./Verdict";
import { standing, winnerBy } from "./winners";

export function ReportView({ run, report }: { run: RunView; report: WhatIfReport }) {
  return (
    <>
      <Panel
        title={<Text value={run.sets.join(" · ")} max={120} />}
        note={
          <>
            <Text value={report.scenario ?? windowText(run.window)} max={240} />:{" "}
            {plural(report.programs, "program")}, {plural(report.steps, "step")},{" "}
            {plural(report.seeds, "seed")}, in {duration(report.took_s * 1e6)}
          </>
        }
        flush
      >
        <Verdict report={report} job={run.window.job ?? "*"} />
        <Comparison report={report} />
        <Caveats report={report} />
      </Panel>
      <AgainstFirst report={report} />
      {report.sets.slice(1).map((set) => (
        <Differences
          key={set.name}
          first={report.sets[0]?.name ?? ""}
          set={set}
          isTrace={run.trace}
        />
      ))}
    </>
  );
}

function Comparison({ report }: { report: WhatIfReport }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
    <div className="plain-scroll" tabIndex={0}>
      <table className="plain">
        <thead>
          <tr>
            <th>Measure</th>
            {report.recorded ? <th className="num">As recorded</th> : null}
            {report.sets.map((set) => (
              <th key={set.name} className="num">
                <Text value={set.name} max={60} />
              </th>
            ))}
            <th>Best beyond chance</th>
          </tr>
        </thead>
        <tbody>
          {MEASURES.map((row) => (
            <Row key={row.key} row={row} report={report} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ row, report }: { row: MeasureRow; report: WhatIfReport }) {
  const [first] = report.sets;
  const recorded = report.recorded?.[row.key as keyof WhatIfRecorded];
  const winner = winnerBy(report, row);
  return (
    <tr>
      <td className="nowrap">{row.label}</td>
      {report.recorded ? (
        <td className="num dim">{recorded === undefined ? "–" : shown(recorded, row.unit)}</td>
      ) : null}
      {report.sets.map((set) => (
        <td key={set.name} className="num nowrap">
          <Value row={row} set={set} first={set === first ? undefined : first} />
        </td>
      ))}
      <td>{winner ? <Text value={winner.name} max={60} /> : <span className="dim">–</span>}</td>
    </tr>
  );
}

interface ValueProps {
  row: MeasureRow;
  set: WhatIfSet;
  first: WhatIfSet | undefined;
}

const TONES = { better: "kind good", worse: "kind bad", chance: "dim" };

function Value({ row, set, first }: ValueProps) {
  const measure = set[row.key];
  const base = first?.[row.key]?.mean;
  if (!measure) return "–";
  return (
    <>
      {shown(measure.mean, row.unit)}
      {typeof measure.half_width === "number" ? (
        <span className="dim"> ± {shown(measure.half_width, row.unit)}</span>
      ) : null}
      {first && base && row.better !== "neither" ? (
        <div className={`change ${TONES[standing(set, first, row)]}`}>
          {measure.mean >= base ? "+" : "−"}
          {(Math.abs(measure.mean / base - 1) * 100).toFixed(0)} %
        </div>
      ) : null}
    </>
  );
}

function shown(value: number, unit: "s" | "share" | "number"): string {
  if (unit === "s") return duration(value * 1e6);
  return unit === "share" ? `${(value * 100).toFixed(1)} %` : short(value);
}

const CUTS: [keyof WhatIfCuts, string][] = [
  ["programs_begun_before", "programs had begun before the window"],
  ["programs_open_at_end", "programs were open at its end"],
  ["programs_without_answer", "programs had no answer"],
  ["steps_open_at_end", "steps were open at its end"],
  ["steps_without_answer", "steps had no answer"],
  ["worker_changes", "changes of workers are not replayed"],
];

/** Computing time of a set's policies per question. */
function fuelOf(set: WhatIfSet): string {
  const { fuel, answered, faults } = set.policies;
  return short(fuel / Math.max(1, answered + faults));
}

function Caveats({ report }: { report: WhatIfReport }) {
  const notes = CUTS.filter(([key]) => report.cuts[key] > 0).map(
    ([key, text]) => `${count(report.cuts[key])} ${text}`,
  );
  const faulty = report.sets.filter((set) => set.policies.given_up > 0);
  return (
    <div className="caveats soft">
      <p>
        Each figure is the mean over seeds ± half of its 95 % interval. Engines are models (
        <Text value={report.profile} max={60} />)
        {report.recorded ? (
          <>
            : where the set that was in force is far from <em>as recorded</em>, do not rely on the
            rest
          </>
        ) : null}
        .{notes.length > 0 ? ` The window cuts: ${notes.join(", ")}.` : ""}
      </p>
      {report.sets
        .filter((set) => set.policies.fuel > 0)
        .map((set) => (
          <p key={set.name}>
            <Text value={set.name} max={60} />: its policies used {fuelOf(set)} units of fuel for a
            question, about an instruction each.
          </p>
        ))}
      {faulty.map((set) => (
        <p key={set.name} className="kind bad">
          <Text value={set.name} max={60} /> was given up after faults: its figures are those of the
          built-in default from then on.
        </p>
      ))}
      {report.cut_short ? (
        <p className="kind bad">The run was cut short by its limit on time.</p>
      ) : null}
    </div>
  );
}
