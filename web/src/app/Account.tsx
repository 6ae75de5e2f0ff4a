// The caller's identity and rights according to the daemon.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { tenants, whoami } from "../api/queries";
import { actIn, isSignedIn, signOut } from "../api/session";
import type { Scope, Whoami } from "../api/types";
import { visibleText } from "../format/text";
import { notify } from "../ui/notices";
import { Text } from "../ui/Text";
import { isLoopback, useHere } from "./here";

const RANK: Record<Scope, number> = { viewer: 0, job: 1, operator: 2, admin: 3 };

export interface Rights {
  /** May change programs, such as release them. */
  job: boolean;
  /** May register and remove workers. */
  operator: boolean;
  /** May change policies: that takes a token. */
  manage: boolean;
  /** May see tokens, tenants and the audit log. */
  admin: boolean;
}

/** What the caller may do. The daemon decides; the console only shows it. */
export function useRights(): Rights {
  const { data } = useQuery(whoami);
  const rank = data?.scope ? RANK[data.scope] : -1;
  const named = data !== undefined && data.who !== "anonymous";
  return {
    job: rank >= 1,
    operator: rank >= 2,
    manage: rank >= 3 || (rank >= 2 && named),
    admin: rank >= 3,
  };
}

function TenantChoice({ value }: { value: string }) {
  const { data } = useQuery(tenants);
  return (
    <select
      className="input"
      aria-label="Act in tenant"
      value={value}
      onChange={(event) => actIn(event.target.value)}
    >
      {(data?.tenants ?? []).map(({ tenant }) => (
        <option key={tenant} value={tenant}>
          {visibleText(tenant, 60)}
        </option>
      ))}
    </select>
  );
}

/** The caller's identity, and why callers without a token are accepted. */
function nameOf({ who, scope }: Whoami): { name: string; about: string } {
  if (who !== "anonymous") return { name: who, about: visibleText(who) };
  if (!scope) return { name: "Not signed in", about: "This daemon asks for a token." };
  return isLoopback()
    ? { name: "No token: loopback", about: "Local callers need no token to look around." }
    : { name: "No token", about: "This daemon lets callers without a token in." };
}

export function Account() {
  const { data } = useQuery(whoami);
  const then = useHere();
  if (!data) {
    return (
      <Link to="/sign-in" search={then ? { then } : {}} className="account-link">
        Sign in
      </Link>
    );
  }
  const { name, about } = nameOf(data);
  return (
    <div className="account">
      <div className="clip" title={about}>
        <Text value={name} max={60} />
      </div>
      <div className="dim">
        {data.scope ?? "no scope"} · <Text value={data.tenant} max={40} />
      </div>
      {data.root && data.tenants > 1 ? <TenantChoice value={data.tenant} /> : null}
      {isSignedIn() ? (
        <button
          type="button"
          className="account-link"
          onClick={() => void signOut().catch((error) => notify(String(error)))}
        >
          Sign out
        </button>
      ) : (
        <Link to="/sign-in" search={then ? { then } : {}} className="account-link">
          Sign in
        </Link>
      )}
    </div>
  );
}
