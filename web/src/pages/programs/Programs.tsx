// All programs on record, filtered and sorted by the daemon.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import { programs, queryClient, workers } from "../../api/queries";
import type { ProgramView } from "../../api/types";
import { useWorkerNames } from "../../api/useWorkerNames";
import { plural } from "../../format/number";
import { useFeed } from "../../live/hooks";
import { DataTable } from "../../ui/DataTable";
import { Command, Empty, Failure, Loading, PageHead } from "../../ui/Panel";
import { columnsFor } from "./columns";
import { Filters, GroupFilters, type ProgramSearch } from "./Filters";
import { Groups } from "./Groups";

const REFRESH_MS = 3000;
const DEFAULT_SORT = "-created_at_us";

export function Programs() {
  const search = useSearch({ from: "/programs" });
  const isByGroup = search.by === "group";
  return (
    <div className="page fill">
      <PageHead
        title="Programs"
        note="One agent trajectory each: its steps, its tool calls, and every decision about it."
      />
      {isByGroup ? <GroupFilters search={search} /> : <Filters search={search} />}
      {!isByGroup ? <All search={search} /> : search.job ? <Groups job={search.job} /> : <NoJob />}
    </div>
  );
}

function NoJob() {
  return (
    <Empty icon="training" title="No training job chosen">
      <p>Programs have groups if they are members of a training run: choose one above.</p>
    </Empty>
  );
}

function All({ search }: { search: ProgramSearch }) {
  const navigate = useNavigate({ from: "/programs" });
  const { job, status, worker, parent, sort, find } = search;
  const { data: workerData } = useQuery(workers);
  const url = workerData?.workers.find((one) => one.id === worker)?.url ?? worker;
  const query = programs({ job, status, parent, worker: url, search: find, sort });
  const list = useInfiniteQuery(query);
  useLiveRefresh(query.queryKey, (list.data?.pages.length ?? 0) <= 2);
  const names = useWorkerNames();
  const columns = useMemo(() => columnsFor(names), [names]);
  const rows = useMemo(
    () => unique(list.data?.pages.flatMap((page) => page.programs) ?? []),
    [list.data],
  );
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = list;
  const onEnd = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetchingNextPage]);
  const filtered = Boolean(job || status || worker || parent || find);
  return (
    <>
      {list.isPending ? (
        <Loading rows={8} />
      ) : list.isError && !list.data ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <NoPrograms filtered={filtered} />
      ) : (
        <DataTable
          label="Programs"
          rows={rows}
          columns={columns}
          keyOf={(row) => row.program_id}
          sort={sort ?? DEFAULT_SORT}
          onSort={(next) => void navigate({ search: (old) => ({ ...old, sort: next }) })}
          onOpen={(row) =>
            void navigate({ to: "/programs/$program", params: { program: row.program_id } })
          }
          onEnd={onEnd}
          footer={footer(rows.length, hasNextPage)}
        />
      )}
    </>
  );
}

function footer(loaded: number, more: boolean): string {
  return more
    ? `${plural(loaded, "program")} loaded; scroll for more.`
    : `${plural(loaded, "program")}, that is all.`;
}

/** Pages that were read at different times may overlap. */
function unique(rows: ProgramView[]): ProgramView[] {
  const seen = new Set<string>();
  return rows.filter((row) => !seen.has(row.program_id) && seen.add(row.program_id));
}

/** Reads the list again some seconds after something happened. */
function useLiveRefresh(queryKey: readonly unknown[], enabled: boolean): void {
  const [dirty, setDirty] = useState(false);
  useFeed(() => setDirty(true));
  const key = JSON.stringify(queryKey);
  useEffect(() => {
    if (!dirty || !enabled) return;
    const timer = setTimeout(() => {
      setDirty(false);
      if (!document.hidden) void queryClient.invalidateQueries({ queryKey: JSON.parse(key) });
    }, REFRESH_MS);
    return () => clearTimeout(timer);
  }, [dirty, enabled, key]);
}

function NoPrograms({ filtered }: { filtered: boolean }) {
  const navigate = useNavigate({ from: "/programs" });
  if (filtered) {
    return (
      <Empty icon="search" title="No program matches">
        <p>Nothing on record fits all of the filters.</p>
        <button type="button" className="button" onClick={() => void navigate({ search: {} })}>
          Clear filters
        </button>
      </Empty>
    );
  }
  return (
    <Empty icon="programs" title="No programs yet">
      <p>A program begins with its first request. Send one and watch it appear here:</p>
      <Command>{`curl ${window.location.origin}/v1/chat/completions -H 'content-type: application/json' \\
  -d '{"model": "treadle-sim", "program_id": "first", "messages": [{"role": "user", "content": "Hello"}]}'`}</Command>
    </Empty>
  );
}
