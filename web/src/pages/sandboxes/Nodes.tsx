// Machines that have sandboxes for this daemon.
import { useQuery } from "@tanstack/react-query";
import { call } from "../../api/client";
import { nodes, queryClient } from "../../api/queries";
import type { NodeRow } from "../../api/types";
import { useRights } from "../../app/Account";
import { bytes, count } from "../../format/number";
import { notify } from "../../ui/notices";
import { Failure, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";

const TONES = { ready: "good", cordoned: "warn", away: "bad" } as const;

export function Nodes() {
  const { data, error, refetch } = useQuery(nodes);
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (!data || data.nodes.length === 0) return null;
  return (
    <Panel title="Nodes" flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Node</th>
              <th>State</th>
              <th className="num">Sandboxes</th>
              <th className="num">Actions</th>
              <th className="num">Cores</th>
              <th className="num">Memory free</th>
              <th className="wide-only">Reached at</th>
              <th>
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.nodes.map((row) => (
              <Row key={row.mark} row={row} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Row({ row }: { row: NodeRow }) {
  const rights = useRights();
  const cordoned = row.state === "cordoned";
  const change = () =>
    void call("patch", "/api/v1/nodes/{node}", {
      path: { node: row.mark },
      body: { state: cordoned ? "ready" : "cordoned" },
    })
      .then(() => queryClient.invalidateQueries({ queryKey: ["nodes"] }))
      .catch((error: unknown) => notify(String(error), "bad"));
  return (
    <tr>
      <td className="nowrap">
        <Text value={row.name} max={40} /> <code>{row.mark}</code>
      </td>
      <td>
        <Badge tone={TONES[row.state as keyof typeof TONES] ?? "neutral"}>{row.state}</Badge>
      </td>
      <td className="num">{count(row.sandboxes)}</td>
      <td className="num">{count(row.actions)}</td>
      <td className="num">{count(row.cores)}</td>
      <td className="num nowrap">{bytes(row.memory_free_bytes)}</td>
      <td className="wide-only">
        <Text value={row.url} max={60} />
      </td>
      <td className="nowrap">
        {rights.operator && row.state !== "away" ? (
          <button type="button" className="button small" onClick={change}>
            {cordoned ? "Activate" : "Cordon"}
          </button>
        ) : null}
      </td>
    </tr>
  );
}
