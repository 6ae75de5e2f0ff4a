// Which version each engine of a job holds, and why one gets no steps.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { workers } from "../../api/queries";
import type { HoldingView, JobWeights } from "../../api/types";
import { count, plural } from "../../format/number";
import { sentence } from "../../format/text";
import { sameEngine } from "../../model/endpoints";
import { phaseOf, reasonOf, versionText, versionToken } from "../../model/weights";
import { Panel } from "../../ui/Panel";
import { StateMark } from "../../ui/State";
import { Text } from "../../ui/Text";

/** Engines that are listed; those that get no steps come first. */
const SHOWN_MAX = 100;

export function Engines({ weights }: { weights: JobWeights }) {
  const { workers: engines, serving, update } = weights;
  const sorted = engines.toSorted(
    (a, b) => Number(b.fenced) - Number(a.fenced) || a.worker - b.worker,
  );
  const shown = sorted.slice(0, SHOWN_MAX);
  const fenced = engines.filter((one) => one.fenced).length;
  return (
    <Panel
      title="Engines"
      note={
        <>
          {serving ? `${versionText(serving)} is in service` : "no version is in service"}
          {update ? `; ${versionText(update.weights)} is being loaded (${stageText(update)})` : ""}
          {`; ${count(fenced)} of ${plural(engines.length, "engine")} fenced`}
        </>
      }
      flush={engines.length > 0}
    >
      {engines.length === 0 ? (
        <p className="soft">
          None. Engines are the job's as they come: treadle workers add http://gpu-1:8000
        </p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
        <div className="plain-scroll" tabIndex={0}>
          <table className="plain" aria-label="Engines and their versions">
            <thead>
              <tr>
                <th>Engine</th>
                <th>Version</th>
                <th>Phase</th>
                <th className="wide-cell">Why it gets no steps, and what helps</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((holding) => (
                <Row key={holding.worker} holding={holding} weights={weights} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {sorted.length > shown.length ? (
        <p className="field-note table-note">
          And {plural(sorted.length - shown.length, "more engine")}.
        </p>
      ) : null}
    </Panel>
  );
}

function stageText({ stage, rolling }: NonNullable<JobWeights["update"]>): string {
  if (stage === "driven") return "by its trainer";
  return `${stage}${rolling ? ", one engine after the other" : ""}`;
}

function Row({ holding, weights }: { holding: HoldingView; weights: JobWeights }) {
  const { state, label } = phaseOf(holding);
  const reason = reasonOf(holding, weights);
  const all = useQuery(workers).data?.workers ?? [];
  const own = all.find(({ id }) => id === String(holding.worker));
  const ranks = own ? sameEngine(own, all).length : 1;
  return (
    <tr>
      <td className="nowrap">
        <Link to="/workers" search={{ worker: String(holding.worker) }}>
          worker {holding.worker}
        </Link>
        {ranks > 1 ? <span className="dim"> and {plural(ranks - 1, "more rank")}</span> : null}
      </td>
      <td className="nowrap">
        <Version weights={holding.held} />
      </td>
      <td className="nowrap">
        <StateMark state={state} label={label} />
      </td>
      <td>{reason ? <Reason {...reason} /> : <span className="dim">It gets steps.</span>}</td>
    </tr>
  );
}

/** A version with its colour. */
export function Version({ weights }: { weights: HoldingView["held"] }) {
  const token = versionToken(weights ?? null);
  return (
    <span className="state" title={weights ? weights.folder : undefined}>
      <span className={`swatch state-${token}`} aria-hidden="true" />
      {versionText(weights)}
    </span>
  );
}

/** Why an engine gets no steps, and what has to happen. */
export function Reason({ cause, remedy }: { cause: string; remedy: string }) {
  return (
    <>
      <Text value={sentence(cause)} max={400} />
      <div className="soft">
        <Text value={remedy} max={400} />
      </div>
    </>
  );
}
