// What a run found: the sets side by side, and the first decisions that differ.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { call } from "../../api/client";
import { bindings, plugins, queryClient } from "../../api/queries";
import type { RunView } from "../../api/types";
import { useRights } from "../../app/Account";
import { count, plural, short } from "../../format/number";
import { visibleText } from "../../format/text";
import { duration } from "../../format/time";
import { windowText } from "../../model/window";
import { Confirm } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { type Canary, digestOf, shortPolicy } from "../policies/types";
import { AgainstFirst } from "./AgainstFirst";
import { Differences } from "./Differences";
import { MEASURES, type Measure, type Report, type SetReport } from "./types";

export function ReportView({ run, report }: { run: RunView; report: Report }) {
  return (
    <>
      <Panel
        title={<Text value={run.sets.join(" · ")} max={120} />}
        note={
          <>
            <Text value={windowText(run.window)} max={120} />: {plural(report.programs, "program")},{" "}
            {plural(report.steps, "step")}, {plural(report.seeds, "seed")}, in{" "}
            {duration(report.took_s * 1e6)}
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
        <Differences key={set.name} first={report.sets[0]?.name ?? ""} set={set} />
      ))}
    </>
  );
}

/** The set with the shortest makespan, where it is shorter than the baseline's beyond chance. */
function winnerOf(report: Report): SetReport | null {
  const better = report.sets.filter((set) => {
    const ratio = set.against_first?.makespan_ratio;
    return typeof ratio?.half_width === "number" && ratio.mean + ratio.half_width < 1;
  });
  return better.sort((a, b) => a.makespan_s.mean - b.makespan_s.mean)[0] ?? null;
}

function Verdict({ report, job }: { report: Report; job: string }) {
  const winner = winnerOf(report);
  const first = report.sets[0];
  if (!first || report.sets.length < 2) return null;
  const ratio = winner?.against_first?.makespan_ratio;
  return (
    <div className="verdict">
      {winner && ratio ? (
        <p>
          <strong>
            <Text value={winner.name} max={80} />
          </strong>{" "}
          ends the work in {(ratio.mean * 100).toFixed(0)} % of the time of{" "}
          <Text value={first.name} max={80} /> (± {((ratio.half_width ?? 0) * 100).toFixed(0)}).
        </p>
      ) : report.seeds < 2 ? (
        <p>One seed does not tell a gain from chance: run at least two.</p>
      ) : (
        <p>
          No set is faster than <Text value={first.name} max={80} /> beyond chance.
        </p>
      )}
      {winner ? <CanaryWinner name={winner.name} job={job} /> : null}
    </div>
  );
}

/** Puts the winner on trial for the jobs that it won with, where it is a policy and not there yet. */
function CanaryWinner({ name, job }: { name: string; job: string }) {
  const rights = useRights();
  const { data } = useQuery(plugins);
  const { data: bound } = useQuery(bindings);
  const plugin = data?.plugins.find((one) => `${one.name}@${one.version}` === name);
  if (!data || !bound) return null;
  if (!plugin)
    return <p className="field-note">It is no stored policy, so it can't be a canary here.</p>;
  const ofWorld = bound.bindings.filter((one) => one.world === plugin.world);
  const own = ofWorld.find((one) => one.job === job);
  const binding = own ?? ofWorld.find((one) => one.job === "*");
  const canary = binding?.canary as Canary | null | undefined;
  const is = (policy: string | undefined) =>
    plugin.digest.startsWith(digestOf(policy ?? "") ?? "none");
  const role = is(binding?.policy) ? "active" : is(canary?.policy) ? "canary" : null;
  if (role)
    return (
      <p className="field-note">
        It is {role} already. <Link to="/policies">Watch it</Link>
      </p>
    );
  if (!rights.manage)
    return <p className="field-note">Sign in as an operator to make it a canary.</p>;
  const whose = job === "*" ? "of all jobs" : `of the job ${visibleText(job, 60)}`;
  const other = own && canary ? ` It replaces the canary ${shortPolicy(canary.policy)}.` : "";
  const bind = async () => {
    await call("put", "/api/v1/bindings", {
      body: { policy: plugin.digest, world: plugin.world, job, role: "canary", share: 0.1 },
    });
    notify(`${plugin.name} decides for a tenth of the programs ${whose}.`);
    await queryClient.invalidateQueries({ queryKey: ["bindings"] });
  };
  return (
    <Confirm
      title={`Canary ${visibleText(plugin.name, 80)}?`}
      text={`It decides for a tenth of the programs ${whose}, and is ended if they fare worse.${other}`}
      action="Start the canary"
      onConfirm={bind}
      trigger={(open) => (
        <button type="button" className="button primary small" onClick={open}>
          Canary it
        </button>
      )}
    />
  );
}

function Comparison({ report }: { report: Report }) {
  const first = report.sets[0];
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
    <div className="plain-scroll" tabIndex={0}>
      <table className="plain">
        <thead>
          <tr>
            <th>Measure</th>
            <th className="num">As recorded</th>
            {report.sets.map((set) => (
              <th key={set.name} className="num">
                <Text value={set.name} max={60} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {MEASURES.map((row) => {
            const recorded = (report.recorded as Record<string, number>)[row.key];
            return (
              <tr key={row.key}>
                <td className="nowrap">{row.label}</td>
                <td className="num dim">
                  {recorded === undefined ? "–" : shown(recorded, row.unit)}
                </td>
                {report.sets.map((set) => (
                  <td key={set.name} className="num nowrap">
                    <Value
                      measure={set[row.key as keyof SetReport] as Measure | undefined}
                      first={
                        set === first
                          ? undefined
                          : (first?.[row.key as keyof SetReport] as Measure | undefined)
                      }
                      better={row.better}
                      unit={row.unit}
                    />
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Value({
  measure,
  first,
  better,
  unit,
}: {
  measure: Measure | undefined;
  first: Measure | undefined;
  better: "less" | "more" | "neither";
  unit: "s" | "share" | "number";
}) {
  if (!measure) return "–";
  return (
    <>
      {shown(measure.mean, unit)}
      {typeof measure.half_width === "number" ? (
        <span className="dim"> ± {shown(measure.half_width, unit)}</span>
      ) : null}
      {first && better !== "neither" && first.mean !== 0 ? (
        <div className={`change ${toneOf(measure, first, better)}`}>
          {measure.mean >= first.mean ? "+" : "−"}
          {(Math.abs(measure.mean / first.mean - 1) * 100).toFixed(0)} %
        </div>
      ) : null}
    </>
  );
}

/** Good or bad only where the intervals are apart. */
function toneOf(measure: Measure, first: Measure, better: "less" | "more"): string {
  const widths = (measure.half_width ?? Number.NaN) + (first.half_width ?? Number.NaN);
  const apart = Math.abs(measure.mean - first.mean) > widths;
  if (!apart) return "dim";
  const less = measure.mean < first.mean;
  return less === (better === "less") ? "kind good" : "kind bad";
}

function shown(value: number, unit: "s" | "share" | "number"): string {
  if (unit === "s") return duration(value * 1e6);
  return unit === "share" ? `${(value * 100).toFixed(1)} %` : short(value);
}

const CUTS: Record<string, string> = {
  programs_begun_before: "programs had begun before the window",
  programs_open_at_end: "programs were open at its end",
  programs_without_answer: "programs had no answer",
  steps_open_at_end: "steps were open at its end",
  steps_without_answer: "steps had no answer",
  worker_changes: "changes of workers are not replayed",
};

function Caveats({ report }: { report: Report }) {
  const notes = Object.entries(CUTS)
    .filter(([key]) => (report.cuts[key] ?? 0) > 0)
    .map(([key, text]) => `${count(report.cuts[key])} ${text}`);
  const faulty = report.sets.filter((set) => (set.policies?.given_up ?? 0) > 0);
  return (
    <div className="caveats soft">
      <p>
        Each figure is the mean over seeds ± half of its 95 % interval. Engines are models (
        <Text value={report.profile} max={60} />
        ): where the set that was in force is far from <em>as recorded</em>, do not rely on the
        rest.
        {notes.length > 0 ? ` The window cuts: ${notes.join(", ")}.` : ""}
      </p>
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
