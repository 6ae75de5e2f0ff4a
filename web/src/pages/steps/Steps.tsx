// The steps of all programs that have ended: the slowest, and those that came to no good end.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { listedSteps, workers } from "../../api/queries";
import { useWorkerNames } from "../../api/useWorkerNames";
import { plural } from "../../format/number";
import { DataTable } from "../../ui/DataTable";
import { Empty, Failure, Loading, PageHead } from "../../ui/Panel";
import { columnsFor } from "./columns";
import { Filters } from "./Filters";

const DEFAULT_SORT = "-finished_at_us";

export function Steps() {
  const search = useSearch({ from: "/steps" });
  const navigate = useNavigate({ from: "/steps" });
  const { job, worker, outcome, sort } = search;
  const { data: workerData } = useQuery(workers);
  const url = workerData?.workers.find((one) => one.id === worker)?.url ?? worker;
  const list = useInfiniteQuery(listedSteps({ job, outcome, worker: url, sort }));
  const names = useWorkerNames();
  const columns = useMemo(() => columnsFor(names), [names]);
  const rows = list.data?.pages.flatMap((page) => page.steps) ?? [];
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = list;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetchingNextPage]);
  return (
    <div className="page fill">
      <PageHead
        title="Steps"
        note="LLM calls of all programs that have ended. By how long they took: those of the last hour."
      />
      <Filters search={search} />
      {list.isPending ? (
        <Loading rows={8} />
      ) : list.isError && !list.data ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <NoSteps outcome={outcome} more={hasNextPage ? more : null} />
      ) : (
        <DataTable
          label="Steps"
          rows={rows}
          columns={columns}
          keyOf={(row) => `${row.program_id}/${row.step}`}
          sort={sort ?? DEFAULT_SORT}
          onSort={(next) => void navigate({ search: (old) => ({ ...old, sort: next }) })}
          onOpen={(row) =>
            void navigate({
              to: "/programs/$program",
              params: { program: row.program_id },
              search: { tab: "steps", step: String(row.step) },
            })
          }
          onEnd={more}
          footer={`${plural(rows.length, "step")}${hasNextPage ? " loaded; scroll for more." : ", that is all."}`}
        />
      )}
    </div>
  );
}

function NoSteps({ outcome, more }: { outcome: string | undefined; more: (() => void) | null }) {
  return (
    <Empty icon="search" title={more ? "None so far back" : "No step matches"}>
      <p>
        {outcome === "refused"
          ? "Refused are steps that waited for too long. What waits now is among the programs that are queued."
          : "A step is listed here once it has ended."}
      </p>
      {more ? (
        <button type="button" className="button" onClick={more}>
          Look further back
        </button>
      ) : null}
    </Empty>
  );
}
