// One worker: what treadle's ledger believes beside what the engine says, and where its memory
// went.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import { memory } from "../../api/queries";
import type { WorkerView } from "../../api/types";
import { count, percent, plural, short } from "../../format/number";
import { duration } from "../../format/time";
import { useHistory } from "../../live/hooks";
import { USES } from "../../model/states";
import { Icon } from "../../ui/Icon";
import { Meter } from "../../ui/Meter";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Fenced } from "./Fenced";
import { abilitiesOf, stateOf } from "./parts";
import { StateBadge } from "./StateBadge";
import { WorkerActions } from "./WorkerActions";

export function WorkerDetail({ worker }: { worker: WorkerView }) {
  return (
    <Panel
      title={`Worker ${worker.id}`}
      note={<Text value={worker.url} max={120} />}
      actions={
        <>
          <StateBadge worker={worker} />
          <Link to="/programs" search={{ worker: worker.id }} className="button small">
            Its programs
          </Link>
          <WorkerActions worker={worker} />
        </>
      }
    >
      {stateOf(worker) === "fenced" ? (
        <Fenced worker={worker} />
      ) : worker.problem ? (
        <p className="problem" role="status">
          <Icon name="warning" />
          <span>
            It makes no progress: <Text value={worker.problem} max={300} />.
          </span>
        </p>
      ) : null}
      <div className="grid-2">
        <LedgerBesideEngine worker={worker} />
        <Spent worker={worker} />
      </div>
    </Panel>
  );
}

function LedgerBesideEngine({ worker }: { worker: WorkerView }) {
  const metrics = useHistory().at(-1)?.metrics;
  const engine = worker.engine_load;
  const drift = metrics?.of("treadle_worker_ledger_drift_tokens", "worker", worker.url);
  const untracked = metrics?.of("treadle_worker_untracked_tokens", "worker", worker.url);
  const rows: [string, string, string][] = [
    ["KV memory in use, tokens", count(worker.used_tokens), count(engine?.used_tokens)],
    ["Steps running", count(worker.load), count(engine?.running)],
    ["Requests waiting in the engine", "–", count(engine?.waiting)],
    ["Requests beside treadle's, tokens", count(untracked), "–"],
    ["Held beyond the ledger, tokens", count(drift), "–"],
  ];
  const silent = !engine || Object.values(engine).every((value) => value === null);
  return (
    <div>
      <h3>The ledger beside the engine</h3>
      <table className="plain compare">
        <thead>
          <tr>
            <th>Measure</th>
            <th className="num">Ledger</th>
            <th className="num">Engine</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([label, ledger, said]) => (
            <tr key={label}>
              <td>{label}</td>
              <td className="num">{ledger}</td>
              <td className="num">{said}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {silent ? <p className="field-note">This engine reports no figures of its own.</p> : null}
      <EngineFacts worker={worker} />
    </div>
  );
}

/** What an engine does if not everything. */
const ROLES: Record<string, string> = {
  prefill: "prefill: it computes prompts for decode workers, and holds no programs",
  decode: "decode: its long prompts are computed by prefill workers first",
};

function EngineFacts({ worker }: { worker: WorkerView }) {
  const { missing } = worker.capabilities;
  const { can, cannot } = abilitiesOf(worker.capabilities);
  const words: [string, string | null | undefined][] = [
    ["It can", can.join(", ")],
    ["It cannot", cannot.join(", ")],
    ["What it lacks", missing],
    ["Class", worker.class],
    ["Log-probabilities", worker.capabilities.logprobs],
    ["Role", worker.role ? ROLES[worker.role] : null],
  ];
  return (
    <dl className="facts facts-below">
      <dt>Engine</dt>
      <dd>
        <Text value={[worker.engine, worker.version].filter(Boolean).join(" ")} max={80} />
      </dd>
      {words.map(([label, text]) =>
        text ? (
          <Fragment key={label}>
            <dt>{label}</dt>
            <dd>
              <Text value={text} max={400} />
            </dd>
          </Fragment>
        ) : null,
      )}
      <dt>KV memory</dt>
      <dd>{worker.capacity_tokens ? `${count(worker.capacity_tokens)} tokens` : "not known"}</dd>
      <dt>Longest context</dt>
      <dd>
        {worker.context_tokens_max ? `${count(worker.context_tokens_max)} tokens` : "not known"}
        {worker.slots ? `; ${plural(worker.slots, "slot")}` : ""}
        {worker.gpus ? `; ${plural(worker.gpus, "GPU")}` : ""}
      </dd>
      <dt>Offloads by itself to</dt>
      <dd>
        {worker.host_tokens > 0
          ? `${count(worker.host_tokens)} tokens of host memory`
          : "nothing seen"}
      </dd>
      <dt>Speed</dt>
      <dd>
        {short(worker.prefill_tokens_per_s)} prompt tokens a second, {duration(worker.token_us)} a
        token, {duration(worker.step_us)} more for each further step
      </dd>
    </dl>
  );
}

function Spent({ worker }: { worker: WorkerView }) {
  const { data } = useQuery(memory);
  const report = data?.workers.find((one) => one.id === worker.id);
  if (!report) return null;
  const total = Object.values(report.token_seconds).reduce((sum, value) => sum + value, 0);
  return (
    <div>
      <h3>Where its memory went</h3>
      <table className="plain compare">
        <thead>
          <tr>
            <th>Use</th>
            <th className="wide-cell wide-only">Share of memory times time</th>
            <th className="num">All along</th>
            <th className="num">Tokens now</th>
          </tr>
        </thead>
        <tbody>
          {USES.map((use) => {
            const value = report.token_seconds[use.use] ?? 0;
            return (
              <tr key={use.use}>
                <td className="nowrap">{use.label}</td>
                <td className="wide-cell wide-only">
                  <Meter
                    label={use.label}
                    total={total}
                    parts={[{ label: use.label, value, state: use.state }]}
                  />
                </td>
                <td className="num">{percent(value / Math.max(1, total), 1)}</td>
                <td className="num">{count(report.tokens_now[use.use])}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
