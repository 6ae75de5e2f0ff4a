// Who may do what, and who changed what.
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useRights } from "../../app/Account";
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
            <p>
              Sign in at the bottom of the navigation. The daemon's first start left one beside its
              store:
            </p>
            <Command>cat .treadle/admin-token</Command>
          </Empty>
          <Scopes />
        </>
      )}
    </div>
  );
}
