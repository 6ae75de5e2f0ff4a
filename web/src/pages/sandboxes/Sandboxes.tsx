// Where programs' commands run: how far each sandbox is, and what it has.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ApiError, call } from "../../api/client";
import { queryClient, sandboxes } from "../../api/queries";
import type { SandboxView } from "../../api/types";
import { useRights } from "../../app/Account";
import { bytes, count } from "../../format/number";
import { Confirm } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { Command, Empty, Failure, Loading, PageHead, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { Nodes } from "./Nodes";

const TONES = {
  preparing: "accent",
  ready: "good",
  paused: "neutral",
  stopped: "neutral",
  failed: "bad",
} as const;

export function Sandboxes() {
  const { data, error, isPending, refetch } = useQuery(sandboxes);
  const off = error instanceof ApiError && error.code === "sandboxes_disabled";
  const rows = data?.sandboxes ?? [];
  return (
    <div className="page">
      <PageHead title="Sandboxes" note={data ? count(rows.length) : undefined} />
      {isPending ? (
        <Loading rows={6} />
      ) : error && !off ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : rows.length === 0 ? (
        <Empty icon="sandboxes" title={off ? "This daemon has no sandboxes" : "No sandboxes yet"}>
          <p>
            A sandbox is where a program's commands run: apart from the machine, from others and
            from the network. Clients of E2B, SWE-ReX and SandboxFusion use it by changing a URL.
          </p>
          <Command>
            {off
              ? "treadle serve --set actions.enabled=true --set sandboxes.enabled=true"
              : "treadle sandboxes create"}
          </Command>
        </Empty>
      ) : (
        <Table rows={rows} />
      )}
      <Nodes />
    </div>
  );
}

function Table({ rows }: { rows: SandboxView[] }) {
  return (
    <Panel title="Oldest first" flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Sandbox</th>
              <th>State</th>
              <th className="wide-only">Node</th>
              <th className="wide-only">Image</th>
              <th className="wide-only">Job</th>
              <th className="wide-only">Program</th>
              <th className="num">Commands</th>
              <th className="num">Memory</th>
              <th className="num">Disk</th>
              <th className="wide-only">Ends</th>
              <th>
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={row.id} row={row} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Row({ row }: { row: SandboxView }) {
  const tone = TONES[row.state as keyof typeof TONES] ?? "neutral";
  return (
    <tr>
      <td className="nowrap">
        <code>{row.id}</code>
      </td>
      <td>
        <span title={row.cause ?? undefined}>
          <Badge tone={tone}>{row.state}</Badge>
        </span>
      </td>
      <td className="wide-only">
        {row.node ? <Text value={row.node} max={30} /> : "this machine"}
      </td>
      <td className="wide-only">
        <Text value={row.image} max={40} />
      </td>
      <td className="wide-only">
        <Text value={row.job} max={40} />
      </td>
      <td className="wide-only">
        {row.program_id ? (
          <Link to="/programs/$program" params={{ program: row.program_id }}>
            <Text value={row.program_id} max={40} />
          </Link>
        ) : (
          "–"
        )}
      </td>
      <td className="num">{count(row.commands)}</td>
      <td className="num nowrap">{bytes(row.memory_bytes)}</td>
      <td className="num nowrap">{bytes(row.disk_bytes)}</td>
      <td className="wide-only nowrap">
        {row.expires_at_us ? <Time us={row.expires_at_us} clock="wall" ahead /> : "–"}
      </td>
      <td className="nowrap">
        <Changes row={row} />
      </td>
    </tr>
  );
}

function Changes({ row }: { row: SandboxView }) {
  const rights = useRights();
  if (!rights.operator) return null;
  const path = { sandbox: row.id };
  const again = () => queryClient.invalidateQueries({ queryKey: ["sandboxes"] });
  const failed = (error: unknown) => notify(String(error), "bad");
  const pause = () =>
    void call("post", "/api/v1/sandboxes/{sandbox}/pause", { path }).then(again).catch(failed);
  const resume = () =>
    void call("post", "/api/v1/sandboxes/{sandbox}/resume", { path }).then(again).catch(failed);
  const remove = async () => {
    await call("delete", "/api/v1/sandboxes/{sandbox}", { path });
    notify(`Sandbox ${row.id} was removed.`);
    await again();
  };
  return (
    <>
      {row.state === "ready" ? (
        <button type="button" className="button small" onClick={pause}>
          Pause
        </button>
      ) : null}
      {row.state === "paused" ? (
        <button type="button" className="button small" onClick={resume}>
          Resume
        </button>
      ) : null}{" "}
      <Confirm
        title={`Remove sandbox ${row.id}?`}
        text="Its processes end, and its files go with it."
        action="Remove"
        danger
        onConfirm={remove}
        trigger={(open) => (
          <button type="button" className="button small danger" onClick={open}>
            Remove
          </button>
        )}
      />
    </>
  );
}
