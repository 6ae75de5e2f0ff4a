// How long a policy's answers took, and how long they may take.
import type { VersionFigures } from "../../api/types";
import { count, percent } from "../../format/number";
import { duration } from "../../format/time";
import { Panel, Stat } from "../../ui/Panel";

/** The time of a call beside its deadline. */
export function ComputeTime({ statistics }: { statistics: VersionFigures }) {
  const { calls, compute_us, deadline_ms, p50_us, p99_us, slowest_us } = statistics;
  return (
    <>
      <Stat
        label="Time of a call, p50"
        value={duration(p50_us)}
        note={calls > 0 ? `mean ${duration(compute_us / calls)}` : undefined}
      />
      <Stat
        label="Time of a call, p99"
        value={duration(p99_us)}
        note={`deadline ${duration(deadline_ms * 1000)}`}
      />
      <Stat label="Slowest call" value={duration(slowest_us)} />
    </>
  );
}

export function Latency({ statistics }: { statistics: VersionFigures }) {
  const { deadline_ms, latency_bounds_us: bounds, latency_counts: counts } = statistics;
  const total = counts.reduce((sum, value) => sum + value, 0);
  const most = Math.max(1, ...counts);
  return (
    <Panel title="Time for an answer" note={`${count(total)} calls`}>
      <table className="bars">
        <thead className="visually-hidden">
          <tr>
            <th>At most</th>
            <th>Calls</th>
            <th>Share</th>
          </tr>
        </thead>
        <tbody>
          {counts.map((value, at) => {
            const bound = bounds[at];
            const label = bound === undefined ? "longer" : `≤ ${duration(bound)}`;
            return (
              <tr key={label}>
                <th scope="row" className="dim num">
                  {label}
                </th>
                <td>
                  <span
                    className="bar state-decode"
                    style={{ width: `${(value / most) * 100}%` }}
                  />
                </td>
                <td className="num">{value > 0 ? percent(value / Math.max(1, total), 1) : ""}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <p className="field-note">
        p50 and p99 are of at most the latest 512 answers. An answer may take{" "}
        {duration(deadline_ms * 1000)}; past that, the built-in default answers. If scheduling waits
        for it, <code>plugins.hot_deadline_ms</code> sets that. Fuel limits only replays.
      </p>
    </Panel>
  );
}
