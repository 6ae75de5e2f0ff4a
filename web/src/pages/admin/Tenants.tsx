// Tenants and their limits.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { queryClient, tenants, whoami } from "../../api/queries";
import { bytes, count } from "../../format/number";
import { notify } from "../../ui/notices";
import { Failure, Loading, Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";

export function Tenants() {
  const { data, error, isPending, refetch } = useQuery(tenants);
  const { data: me } = useQuery(whoami);
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
            </tr>
          </thead>
          <tbody>
            {data.tenants.map(({ tenant, limits, created_at_us }) => (
              <tr key={tenant}>
                <td>
                  <Text value={tenant} max={80} />
                </td>
                <td className="num">{limit(limits.live_programs)}</td>
                <td className="num">{limit(limits.steps)}</td>
                <td className="num">{limit(limits.requests_per_s)}</td>
                <td className="num nowrap">
                  {limits.body_bytes ? bytes(limits.body_bytes) : "none"}
                </td>
                <td className="num">{limit(limits.plugins)}</td>
                <td>{limits.unsigned_plugins === false ? "refused" : "accepted"}</td>
                <td className="num">
                  {created_at_us > 0 ? <Time us={created_at_us} clock="wall" /> : "at the start"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function limit(value: number | null | undefined): string {
  return value === null || value === undefined ? "none" : count(value);
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
