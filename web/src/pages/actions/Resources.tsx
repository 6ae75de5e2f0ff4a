// What actions draw from, and how much of it is in use.
import type { Resources as Shown } from "../../api/types";
import { duration } from "../../format/time";
import { amount } from "../../model/actions";
import { Meter } from "../../ui/Meter";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

export function Resources({ resources }: { resources: Shown }) {
  return (
    <Panel title="What they draw from" note={`isolation: ${resources.isolation}`} flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Resource</th>
              <th className="wide-cell">In use</th>
              <th className="num">Used</th>
              <th className="num">Of</th>
            </tr>
          </thead>
          <tbody>
            {resources.resources.map((one) => (
              <tr key={one.name}>
                <td>
                  <Text value={one.name} max={60} />
                </td>
                <td className="wide-cell">
                  <Meter
                    label={`Use of ${one.name}`}
                    total={one.total ?? null}
                    parts={[{ label: "Used", value: one.used, state: "tool" }]}
                  />
                </td>
                <td className="num">{amount(one.name, one.used)}</td>
                <td className="num">
                  {one.total == null ? "no bound" : amount(one.name, one.total)}
                </td>
              </tr>
            ))}
            {resources.services.map((one) => (
              <tr key={`service ${one.name}`}>
                <td>
                  service <Text value={one.name} max={60} />
                </td>
                <td className="wide-cell dim" colSpan={3}>
                  onto devices in {loadsOf(one)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function loadsOf({ load_ms, loads_ms }: Shown["services"][number]): string {
  const learnt = Object.entries(loads_ms as Record<string, number>).map(
    ([devices, ms]) => `${duration(ms * 1000)} on ${devices}`,
  );
  return learnt.join(", ") || `${duration(load_ms * 1000)} as declared`;
}
