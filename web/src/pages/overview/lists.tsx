// Workers and jobs on the overview.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { memory, workers } from "../../api/queries";
import type { WorkerView } from "../../api/types";
import { count, percent, plural, short } from "../../format/number";
import { type Endpoint, endpointsOf, loadOf } from "../../model/endpoints";
import { USES } from "../../model/states";
import { Meter } from "../../ui/Meter";
import { Command, Empty, Failure, Loading, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { hitRateOf, memoryParts, stateOf } from "../workers/parts";
import { StateBadge } from "../workers/StateBadge";

export function WorkersPanel() {
  const { data: list, error, refetch } = useQuery(workers);
  if (!list) {
    return (
      <Panel title="Workers">
        {error ? <Failure error={error} retry={() => void refetch()} /> : <Loading rows={4} />}
      </Panel>
    );
  }
  return <WorkerList workers={list.workers} />;
}

function WorkerList({ workers }: { workers: WorkerView[] }) {
  const { data } = useQuery(memory);
  if (workers.length === 0) {
    return (
      <Panel title="Workers">
        <Empty icon="workers" title="No workers">
          <p>Register an engine, and programs are placed on it at once:</p>
          <Command>treadle workers add http://gpu-1:8000</Command>
        </Empty>
      </Panel>
    );
  }
  const tellCached = workers.some((worker) => hitRateOf(worker) !== null);
  return (
    <Panel
      title="Workers"
      flush
      actions={
        <Link to="/workers" className="button small">
          All
        </Link>
      }
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Worker</th>
              <th className="wide-cell">KV memory</th>
              <th className="num">Used</th>
              <th className="num">Steps</th>
              {tellCached ? <th className="num wide-only">In cache</th> : null}
            </tr>
          </thead>
          <tbody>
            {endpointsOf(workers).map((endpoint) => (
              <EndpointRow
                key={endpoint.address}
                endpoint={endpoint}
                report={data}
                tellCached={tellCached}
              />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

interface RowProps {
  endpoint: Endpoint;
  report: Parameters<typeof memoryParts>[0];
  tellCached: boolean;
}

/** An engine, with all of its ranks. */
function EndpointRow({ endpoint, report, tellCached }: RowProps) {
  const { ranks } = endpoint;
  const { used, capacity, steps, imbalance } = loadOf(endpoint);
  const [first] = ranks;
  if (!first) return null;
  const name = `worker ${first.id}`;
  const lost = ranks.filter((rank) => !rank.is_healthy).length;
  const resting = ranks.find((rank) => stateOf(rank) !== "active");
  return (
    <tr>
      <td className="nowrap">
        <Link to="/workers" search={{ worker: first.id }}>
          {name}
        </Link>{" "}
        {ranks.length > 1 ? (
          <span className="dim">and {plural(ranks.length - 1, "more rank")} </span>
        ) : null}
        {lost > 0 ? (
          <Badge tone="bad">{lost < ranks.length ? `${lost} lost` : "lost"}</Badge>
        ) : null}
        {resting ? <StateBadge worker={resting} /> : null}
      </td>
      <td className="wide-cell">
        <Meter label={`KV memory of ${name}`} total={capacity} parts={memoryParts(report, ranks)} />
      </td>
      <td className="num" title={`${count(used)} tokens`}>
        {capacity ? percent(used / capacity) : short(used)}
        {ranks.length > 1 && imbalance !== null ? (
          <div
            className="dim nowrap"
            title="Tokens of the fullest rank, divided by the mean of all"
          >
            fullest {imbalance.toFixed(2)}×
          </div>
        ) : null}
      </td>
      <td className="num">{count(steps)}</td>
      {tellCached ? (
        <td className="num wide-only">{ranks.length > 1 ? "–" : percent(hitRateOf(first))}</td>
      ) : null}
    </tr>
  );
}

/** What each job cost: KV memory times time, by use. */
export function JobsPanel() {
  const { data, error, isPending, refetch } = useQuery(memory);
  if (isPending) return <Loading rows={3} />;
  if (error && !data) return <Failure error={error} retry={() => void refetch()} />;
  const jobs = [...(data?.jobs ?? [])].sort(
    (a, b) => total(b.token_seconds) - total(a.token_seconds),
  );
  const most = Math.max(1, ...jobs.map((job) => total(job.token_seconds)));
  if (jobs.length === 0) return null;
  return (
    <Panel title="What jobs cost" note="KV memory times time, in token-seconds" flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Job</th>
              <th className="wide-cell">By use, beside the dearest job</th>
              <th className="num">Token-seconds</th>
              <th className="num wide-only">Recomputed</th>
              <th className="num wide-only">Held for tools</th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => {
              const sum = total(job.token_seconds);
              return (
                <tr key={`${job.tenant}/${job.job}`}>
                  <td className="nowrap">
                    <Link to="/programs" search={{ job: job.job }}>
                      <Text value={job.job} max={60} />
                    </Link>
                  </td>
                  <td className="wide-cell">
                    <Meter
                      label="Cost by use"
                      total={most}
                      parts={USES.filter((use) => use.use !== "unused").map((use) => ({
                        label: use.label,
                        state: use.state,
                        value: job.token_seconds[use.use] ?? 0,
                      }))}
                    />
                  </td>
                  <td className="num">{short(sum)}</td>
                  <td className="num wide-only">
                    {percent((job.token_seconds.recompute ?? 0) / Math.max(1, sum), 1)}
                  </td>
                  <td className="num wide-only">
                    {percent((job.token_seconds.caching ?? 0) / Math.max(1, sum), 1)}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function total(uses: Record<string, number>): number {
  return Object.entries(uses).reduce(
    (sum, [use, value]) => (use === "unused" ? sum : sum + value),
    0,
  );
}
