// What each scope permits. The daemon enforces it.
import { useQuery } from "@tanstack/react-query";
import { whoami } from "../../api/queries";
import { Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";

const SCOPES: [string, string][] = [
  ["viewer", "look: programs, steps, decisions, events, engines, plugins, metrics"],
  ["job", "run and release programs, abort requests, start what-if runs"],
  ["operator", "upload policies, bind them; add and remove engines"],
  ["admin", "make, rotate and revoke tokens, tighten the tenant's limits, read the audit log"],
];

export function Scopes() {
  const { data } = useQuery(whoami);
  return (
    <Panel title="Scopes" note="each permits what those above it do, too" flush>
      <table className="plain">
        <thead>
          <tr>
            <th>Scope</th>
            <th>Permits</th>
          </tr>
        </thead>
        <tbody>
          {SCOPES.map(([scope, permits]) => (
            <tr key={scope}>
              <td className="nowrap">
                {scope} {data?.scope === scope ? <Badge tone="accent">you</Badge> : null}
              </td>
              <td className="soft">{permits}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}
