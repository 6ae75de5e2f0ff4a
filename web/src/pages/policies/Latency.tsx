// How long a policy's answers took, and how long they may take.
import { count, percent } from "../../format/number";
import { duration } from "../../format/time";
import { Panel, Stat } from "../../ui/Panel";
import { BOUNDS_US, DEADLINES, quantileUs } from "./deadlines";
import type { Statistics } from "./types";

/** The time that a share of the calls kept to, in words. */
function within(counts: number[], share: number): string {
  const us = quantileUs(counts, share);
  if (us === null) return "–";
  return us === Number.POSITIVE_INFINITY ? `> ${duration(BOUNDS_US.at(-1))}` : `≤ ${duration(us)}`;
}

/** The time of a call beside its deadline. */
export function ComputeTime({ world, statistics }: { world: string; statistics: Statistics }) {
  const { calls, compute_us, latency_counts, slowest_us } = statistics;
  return (
    <>
      <Stat
        label="Time of a call, p50"
        value={within(latency_counts, 0.5)}
        note={calls > 0 ? `mean ${duration(compute_us / calls)}` : undefined}
      />
      <Stat
        label="Time of a call, p99"
        value={within(latency_counts, 0.99)}
        note={`default deadline ${DEADLINES[world]}`}
      />
      <Stat label="Slowest call" value={duration(slowest_us)} />
    </>
  );
}

export function Latency({ world, counts }: { world: string; counts: number[] }) {
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
            const bound = BOUNDS_US[at];
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
        A call is stopped at its deadline, by default {DEADLINES[world]}; fuel bounds replays alone.{" "}
        <code>plugins.hot_deadline_ms</code> is the deadline of calls that scheduling waits for.
      </p>
    </Panel>
  );
}
