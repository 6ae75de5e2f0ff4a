// The engines: what they are, how full they are, and how to add and remove them.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import { memory, workers } from "../../api/queries";
import type { WorkerView } from "../../api/types";
import { useRights } from "../../app/Account";
import { count, percent, plural, short } from "../../format/number";
import { visibleText } from "../../format/text";
import { duration } from "../../format/time";
import { type Endpoint, endpointsOf, loadOf, rankOf } from "../../model/endpoints";
import { USES } from "../../model/states";
import { Meter } from "../../ui/Meter";
import { Command, Empty, Failure, Loading, PageHead, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { AddWorker } from "./AddWorker";
import { hitRateOf, memoryParts } from "./parts";
import { Schedulers } from "./Schedulers";
import { StateBadge } from "./StateBadge";
import { WorkerDetail } from "./WorkerDetail";

export function Workers() {
  const { worker: chosen } = useSearch({ from: "/workers" });
  const list = useQuery(workers);
  const rights = useRights();
  const [adding, setAdding] = useState(false);
  const rows = list.data?.workers ?? [];
  const selected = rows.find((row) => row.id === chosen);
  return (
    <div className="page">
      <PageHead
        title="Workers"
        note={
          list.data
            ? `${enginesText(rows)}, ${rows.filter((row) => row.is_healthy).length} healthy`
            : undefined
        }
      >
        {rights.operator ? (
          <button type="button" className="button primary" onClick={() => setAdding(true)}>
            Add a worker
          </button>
        ) : null}
      </PageHead>
      {list.isPending ? (
        <Loading rows={6} />
      ) : list.error && !list.data ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <Empty icon="workers" title="No workers yet">
          <p>
            treadle recognises vLLM, SGLang and llama.cpp, and reads how much KV memory they have.
          </p>
          <Command>treadle workers add http://gpu-1:8000</Command>
        </Empty>
      ) : (
        <WorkerTable rows={rows} chosen={chosen} />
      )}
      {selected ? <WorkerDetail worker={selected} /> : null}
      {chosen && list.data && !selected ? (
        <p className="soft">Worker {chosen} is not registered any more.</p>
      ) : null}
      <Schedulers />
      <AddWorker open={adding} onOpenChange={setAdding} />
    </div>
  );
}

function enginesText(rows: WorkerView[]): string {
  const engines = endpointsOf(rows).length;
  const ranks = engines < rows.length ? ` with ${plural(rows.length, "rank")}` : "";
  return plural(engines, "engine") + ranks;
}

function WorkerTable({ rows, chosen }: { rows: WorkerView[]; chosen: string | undefined }) {
  const navigate = useNavigate({ from: "/workers" });
  const { data } = useQuery(memory);
  const open = (id: string) => void navigate({ search: { worker: id }, replace: true });
  return (
    <Panel title="Engines" flush actions={<UseLegend />}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Worker</th>
              <th>Health</th>
              <th>State</th>
              <th className="wide-only">Engine</th>
              <th className="wide-cell">KV memory</th>
              <th className="num">Used</th>
              <th className="num wide-only">Engine says</th>
              <th className="num wide-only">Programs</th>
              <th className="num">Steps</th>
              <th className="num wide-only">In cache</th>
              <th className="num wide-only">Prefill/s</th>
              <th className="num wide-only">Token</th>
            </tr>
          </thead>
          <tbody>
            {endpointsOf(rows).map((endpoint) => (
              <Fragment key={endpoint.address}>
                {endpoint.ranks.length > 1 ? (
                  <EndpointRow endpoint={endpoint} report={data} />
                ) : null}
                {endpoint.ranks.map((row) => (
                  <WorkerRow
                    key={row.id}
                    row={row}
                    isChosen={row.id === chosen}
                    open={() => open(row.id)}
                    report={data}
                  />
                ))}
              </Fragment>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

/** An engine with ranks: what all of them have, and how far they differ. */
function EndpointRow({ endpoint, report }: { endpoint: Endpoint; report: Report }) {
  const { steps, programs, used, capacity, imbalance } = loadOf(endpoint);
  return (
    <tr className="endpoint-row">
      <th scope="rowgroup" colSpan={3}>
        <Text value={endpoint.address} max={60} />
        <div className="dim">
          {plural(endpoint.ranks.length, "rank")} that step together
          {imbalance === null ? null : (
            <span title="Tokens of the fullest rank, divided by the mean of all: a step takes as long as at the rank with most to do">
              , the fullest has {imbalance.toFixed(2)} times the mean
            </span>
          )}
        </div>
      </th>
      <td className="wide-only" />
      <td className="wide-cell">
        <Meter
          label={`KV memory of ${visibleText(endpoint.address, 60)}`}
          total={capacity}
          parts={memoryParts(report, endpoint.ranks)}
        />
      </td>
      <td className="num nowrap">
        {capacity ? percent(used / capacity) : "–"}
        <div className="dim wide-only">
          {short(used)} of {short(capacity)}
        </div>
      </td>
      <td className="wide-only" />
      <td className="num wide-only">{count(programs)}</td>
      <td className="num">{count(steps)}</td>
      <td className="wide-only" colSpan={3} />
    </tr>
  );
}

type Report = Parameters<typeof memoryParts>[0];

interface RowProps {
  row: WorkerView;
  isChosen: boolean;
  open: () => void;
  report: Report;
}

function WorkerRow({ row, isChosen, open, report }: RowProps) {
  const rank = rankOf(row);
  return (
    <tr
      className={rank === null ? "row-link" : "row-link rank-row"}
      aria-current={isChosen ? "true" : undefined}
      onClick={open}
    >
      <td>
        <button type="button" className="account-link" onClick={open}>
          worker {row.id}
        </button>
        {rank === null ? (
          <div className="dim clip wide-only">
            <Text value={row.url} max={60} />
          </div>
        ) : (
          <div className="dim">rank {rank}</div>
        )}
      </td>
      <td>
        <Badge tone={row.is_healthy ? "good" : "bad"}>{row.is_healthy ? "healthy" : "lost"}</Badge>
      </td>
      <td>
        <StateBadge worker={row} />
      </td>
      <td className="wide-only">
        <Text value={row.engine} max={30} />
        {row.class ? (
          <div className="dim">
            <Text value={row.class} max={30} />
          </div>
        ) : null}
        {row.role ? <div className="dim">{row.role}</div> : null}
      </td>
      <td className="wide-cell">
        <Meter
          label={`KV memory of worker ${row.id}`}
          total={row.capacity_tokens ?? null}
          parts={memoryParts(report, [row])}
        />
      </td>
      <td className="num nowrap">
        {row.capacity_tokens ? percent(row.used_tokens / row.capacity_tokens) : "–"}
        <div className="dim wide-only">
          {short(row.used_tokens)} of {short(row.capacity_tokens)}
        </div>
      </td>
      <td className="num wide-only nowrap">
        <EngineSays worker={row} />
      </td>
      <td className="num wide-only">{count(row.programs)}</td>
      <td className="num">{count(row.load)}</td>
      <td className="num wide-only">{percent(hitRateOf(row))}</td>
      <td className="num wide-only">{short(row.prefill_tokens_per_s)}</td>
      <td className="num wide-only nowrap">{duration(row.token_us)}</td>
    </tr>
  );
}

/** What the engine reports, for comparison with the ledger beside it. */
function EngineSays({ worker }: { worker: WorkerView }) {
  const { used_tokens: used, running, waiting } = worker.engine_load ?? {};
  if ((used ?? running ?? null) === null) return <span className="dim">nothing</span>;
  return (
    <>
      {used && worker.capacity_tokens ? percent(used / worker.capacity_tokens) : short(used)}
      <div className="dim">
        {count(running)} run, {count(waiting)} wait
      </div>
    </>
  );
}

function UseLegend() {
  return (
    <div className="legend wide-only">
      {USES.filter((use) => use.use !== "unused").map((use) => (
        <span key={use.use} className="legend-item">
          <span className={`swatch state-${use.state}`} aria-hidden="true" />
          {use.label}
        </span>
      ))}
    </div>
  );
}
