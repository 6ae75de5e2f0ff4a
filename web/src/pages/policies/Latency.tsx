// How long a policy's answers took.
import { count, percent } from "../../format/number";
import { duration } from "../../format/time";
import { Panel } from "../../ui/Panel";

/** Upper bounds of the buckets, as the daemon counts; a last one has no bound. */
const BOUNDS_US = [1, 2, 5, 10, 20, 50, 100, 250, 1000, 2500, 10_000, 100_000];

export function Latency({ counts }: { counts: number[] }) {
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
    </Panel>
  );
}
