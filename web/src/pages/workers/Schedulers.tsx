// Which daemon schedules which shard of the jobs, and in which epoch.
import { useQuery } from "@tanstack/react-query";
import { cluster } from "../../api/queries";
import { count } from "../../format/number";
import { duration } from "../../format/time";
import { Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";

export function Schedulers() {
  const { data } = useQuery(cluster);
  if (!data) return null;
  return (
    <Panel title="Schedulers" note={`this daemon's role: ${data.role}`} flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Shard of jobs</th>
              <th>Scheduler</th>
              <th className="num">Epoch</th>
              <th className="num wide-only">Since</th>
              <th className="num wide-only">Last heard of</th>
            </tr>
          </thead>
          <tbody>
            {data.shards.map(({ shard, here, scheduler }) => (
              <tr key={shard}>
                <td>
                  <Text value={shard} max={60} />
                </td>
                <td>
                  {scheduler ? <Text value={scheduler.name} max={80} /> : "nobody"}{" "}
                  {here ? <Badge tone="accent">here</Badge> : null}
                </td>
                <td className="num">{count(scheduler?.epoch)}</td>
                <td className="num wide-only">
                  {scheduler ? <Time us={scheduler.since_us} clock="wall" /> : "–"}
                </td>
                <td className="num wide-only">
                  {scheduler ? `${duration(scheduler.silent_ms * 1000)} ago` : "–"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
