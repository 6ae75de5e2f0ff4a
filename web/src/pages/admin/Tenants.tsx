// Tenants and their limits.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { queryClient, tenants, whoami } from "../../api/queries";
import { visibleText } from "../../format/text";
import { shownLimit } from "../../model/limits";
import { notify } from "../../ui/notices";
import { Failure, Loading, Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { EditLimits } from "./EditLimits";

export function Tenants() {
  const { data, error, isPending, refetch } = useQuery(tenants);
  const { data: me } = useQuery(whoami);
  const [editing, setEditing] = useState<string | null>(null);
  const edited = data?.tenants.find((one) => one.tenant === editing);
  if (isPending) return <Loading rows={4} />;
  if (!data) return <Failure error={error} retry={() => void refetch()} />;
  return (
    <Panel
      title="Tenants"
      note="each sees only its own programs, jobs, policies and tokens"
      flush
      actions={me?.root ? <NewTenant /> : null}
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Tenant</th>
              <th className="num">Live programs</th>
              <th className="num">Steps</th>
              <th className="num">Requests/s</th>
              <th className="num">Body</th>
              <th className="num">Policies</th>
              <th>Unsigned policies</th>
              <th className="num">Made</th>
              <th>
                <span className="visually-hidden">Change</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.tenants.map(({ tenant, limits, created_at_us }) => (
              <tr key={tenant}>
                <td>
                  <Text value={tenant} max={80} />
                </td>
                {(
                  ["live_programs", "steps", "requests_per_s", "body_bytes", "plugins"] as const
                ).map((key) => (
                  <td key={key} className="num nowrap">
                    {shownLimit(key, limits[key])}
                  </td>
                ))}
                <td>{shownLimit("unsigned_plugins", limits.unsigned_plugins)}</td>
                <td className="num">
                  {created_at_us > 0 ? <Time us={created_at_us} clock="wall" /> : "at the start"}
                </td>
                <td className="num">
                  <button
                    type="button"
                    className="button small"
                    aria-label={`Change the limits of ${visibleText(tenant, 60)}`}
                    onClick={() => setEditing(tenant)}
                  >
                    Limits
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {edited ? (
        <EditLimits
          tenant={edited.tenant}
          limits={edited.limits}
          onClose={() => setEditing(null)}
        />
      ) : null}
    </Panel>
  );
}

function NewTenant() {
  const [name, setName] = useState("");
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call("post", "/api/v1/tenants", { body: { tenant: name.trim() } });
      notify(`The tenant ${name} was made.`);
      setName("");
      await queryClient.invalidateQueries({ queryKey: ["tenants"] });
    } catch (cause) {
      notify(cause instanceof ApiError ? cause.message : String(cause), "bad");
    }
  };
  return (
    <form className="toolbar" onSubmit={(event) => void submit(event)}>
      <input
        className="input"
        aria-label="Name of a new tenant"
        placeholder="New tenant"
        required
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <button type="submit" className="button">
        Make it
      </button>
    </form>
  );
}
