// Who decides: the bindings of each world, and the policies that could be bound.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { bindings, plugins } from "../../api/queries";
import { useRights } from "../../app/Account";
import { Icon } from "../../ui/Icon";
import { Failure, Loading, PageHead } from "../../ui/Panel";
import { Tabs } from "../../ui/Tabs";
import { Bindings } from "./Bindings";
import { PluginTable } from "./PluginTable";
import { UploadDialog } from "./Upload";

export function Policies() {
  const search = useSearch({ from: "/policies" });
  const navigate = useNavigate({ from: "/policies" });
  const rights = useRights();
  const bound = useQuery(bindings);
  const stored = useQuery(plugins);
  const [uploading, setUploading] = useState(false);
  const error = bound.error ?? stored.error;
  return (
    <div className="page">
      <PageHead
        title="Policies"
        note="Sandboxed WebAssembly that answers one kind of question each; else the built-in default."
      >
        {rights.manage ? (
          <button type="button" className="button primary" onClick={() => setUploading(true)}>
            <Icon name="upload" />
            Upload a policy
          </button>
        ) : (
          <span className="dim">Sign in as an operator to change policies</span>
        )}
      </PageHead>
      {error && !(bound.data && stored.data) ? (
        <Failure
          error={error}
          retry={() => void Promise.all([bound.refetch(), stored.refetch()])}
        />
      ) : !bound.data || !stored.data ? (
        <Loading rows={8} />
      ) : (
        <Tabs
          label="Policies"
          value={search.tab ?? "bindings"}
          onChange={(tab) => void navigate({ search: (old) => ({ ...old, tab }), replace: true })}
          tabs={[
            {
              id: "bindings",
              label: "Who decides",
              count: bound.data.bindings.length,
              content: (
                <Bindings
                  bindings={bound.data.bindings}
                  statistics={bound.data.statistics ?? null}
                />
              ),
            },
            {
              id: "plugins",
              label: "Library",
              count: stored.data.plugins.length,
              content: (
                <PluginTable
                  plugins={stored.data.plugins}
                  bindings={bound.data.bindings}
                  world={search.world}
                  onWorld={(world) =>
                    void navigate({
                      search: (old) => ({ ...old, world: world || undefined }),
                      replace: true,
                    })
                  }
                />
              ),
            },
          ]}
        />
      )}
      <UploadDialog open={uploading} onOpenChange={setUploading} />
    </div>
  );
}
