// The audit log: who changed what, when, from where.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useCallback, useState } from "react";
import { audit } from "../../api/queries";
import type { ChangeView } from "../../api/types";
import { fullTime } from "../../format/time";
import { type Column, DataTable } from "../../ui/DataTable";
import { Dialog } from "../../ui/Dialog";
import { Json } from "../../ui/Json";
import { Empty, Failure, Loading } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";

const COLUMNS: Column<ChangeView>[] = [
  {
    id: "at",
    header: "When",
    width: "92px",
    cell: (row) => <Time us={row.at_us} clock="wall" />,
  },
  {
    id: "who",
    header: "Who",
    width: "minmax(110px, 1fr)",
    cell: (row) => <Text value={row.who} max={80} />,
  },
  {
    id: "action",
    header: "Action",
    width: "minmax(120px, 1fr)",
    cell: (row) => <Text value={row.action} max={60} />,
  },
  {
    id: "target",
    header: "Target",
    width: "minmax(140px, 2fr)",
    cell: (row) => <Text value={row.target} max={160} />,
  },
  {
    id: "address",
    header: "From",
    width: "minmax(110px, 1fr)",
    wideOnly: true,
    cell: (row) => <Text value={row.address ?? "–"} max={60} />,
  },
];

export function Audit() {
  const { action, who, target } = useSearch({ from: "/admin" });
  const list = useInfiniteQuery(audit({ action, who, target }));
  const [open, setOpen] = useState<ChangeView | null>(null);
  const rows = list.data?.pages.flatMap((page) => page.changes) ?? [];
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = list;
  const onEnd = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetchingNextPage]);
  return (
    <>
      <Filter />
      {list.isPending ? (
        <Loading rows={6} />
      ) : list.error && !list.data ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <Empty icon="admin" title="No change matches">
          <p>Clear a filter to see others.</p>
        </Empty>
      ) : (
        <div className="fixed-table">
          <DataTable
            label="Changes, newest first"
            rows={rows}
            columns={COLUMNS}
            keyOf={(row) => String(row.id)}
            onOpen={setOpen}
            onEnd={onEnd}
          />
        </div>
      )}
      <Dialog
        open={open !== null}
        onOpenChange={() => setOpen(null)}
        title={open ? `${open.action}` : ""}
        description={open ? fullTime(open.at_us) : undefined}
        wide
      >
        {open ? <Json value={open} /> : null}
      </Dialog>
    </>
  );
}

function Filter() {
  const search = useSearch({ from: "/admin" });
  const navigate = useNavigate({ from: "/admin" });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const value = (key: string) => String(form.get(key) ?? "").trim() || undefined;
    void navigate({
      search: {
        tab: "audit",
        action: value("action"),
        who: value("who"),
        target: value("target"),
      },
      replace: true,
    });
  };
  return (
    <form className="toolbar" role="search" onSubmit={submit}>
      <input
        className="input"
        name="action"
        aria-label="Action"
        placeholder="Action, such as token.created"
        defaultValue={search.action}
      />
      <input
        className="input"
        name="who"
        aria-label="Who"
        placeholder="Who"
        defaultValue={search.who}
      />
      <div className="grow">
        <input
          className="input"
          name="target"
          aria-label="Target"
          placeholder="Target"
          defaultValue={search.target}
        />
      </div>
      <button type="submit" className="button">
        Filter
      </button>
    </form>
  );
}
