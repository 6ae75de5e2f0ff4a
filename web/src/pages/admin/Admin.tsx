// Who may do what, and who changed what.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { whoami } from "../../api/queries";
import { useRights } from "../../app/Account";
import { useHere } from "../../app/here";
import { Command, Empty, PageHead } from "../../ui/Panel";
import { Tabs } from "../../ui/Tabs";
import { Audit } from "./Audit";
import { Scopes } from "./Scopes";
import { Tenants } from "./Tenants";
import { Tokens } from "./Tokens";

export function Admin() {
  const { tab } = useSearch({ from: "/admin" });
  const navigate = useNavigate({ from: "/admin" });
  const rights = useRights();
  const { data: me } = useQuery(whoami);
  const then = useHere();
  return (
    <div className="page">
      <PageHead title="Admin" note="Tokens, tenants, and every administrative change." />
      {rights.admin ? (
        <Tabs
          label="Administration"
          value={tab ?? "tokens"}
          onChange={(next) => void navigate({ search: { tab: next }, replace: true })}
          tabs={[
            { id: "tokens", label: "Tokens", content: <Tokens /> },
            { id: "tenants", label: "Tenants", content: <Tenants /> },
            { id: "roles", label: "Scopes", content: <Scopes /> },
            { id: "audit", label: "Audit log", content: <Audit /> },
          ]}
        />
      ) : (
        <>
          <Empty icon="admin" title="This page takes an admin's token">
            {me && me.who !== "anonymous" ? (
              <p>
                You are signed in with the scope {me.scope ?? "none"}.{" "}
                <Link to="/sign-in" search={then ? { then } : {}}>
                  Sign in as an admin
                </Link>{" "}
                to see tokens, tenants and the audit log.
              </p>
            ) : (
              <>
                <p>
                  Sign in at the bottom of the navigation. The daemon's first start left one beside
                  its store:
                </p>
                <Command>cat .treadle/admin-token</Command>
              </>
            )}
          </Empty>
          <Scopes />
        </>
      )}
    </div>
  );
}
