// Programs by the groups of a training run: the spread of their rewards, and what a group waits for.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { isGone, trainingGroups } from "../../api/training";
import { plural } from "../../format/number";
import { type GroupedRow, groupedRows, rangeOf } from "../../model/groups";
import { DataTable } from "../../ui/DataTable";
import { Empty, Failure, Loading } from "../../ui/Panel";
import { groupColumns } from "./groupColumns";

export function Groups({ job }: { job: string }) {
  const { group: open } = useSearch({ from: "/programs" });
  const navigate = useNavigate({ from: "/programs" });
  const list = useInfiniteQuery(trainingGroups(job, true));
  const groups = useMemo(() => list.data?.pages.flatMap((page) => page.groups) ?? [], [list.data]);
  const columns = useMemo(() => groupColumns(rangeOf(groups)), [groups]);
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = list;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetchingNextPage]);
  if (list.isPending) return <Loading rows={8} />;
  if (isGone(list.error)) return <NoGroups job={job} why="It is not declared." />;
  if (list.error && !list.data) {
    return <Failure error={list.error} retry={() => void list.refetch()} />;
  }
  if (groups.length === 0) {
    return <NoGroups job={job} why="Those that began are in batches, which its page shows." />;
  }
  const openRow = ({ group, member }: GroupedRow) => {
    if (member) {
      const params = { program: member.program };
      void navigate({ to: "/programs/$program", params });
      return;
    }
    const { group: key } = group;
    void navigate({
      search: ({ group: before, ...old }) => (before === key ? old : { ...old, group: key }),
      replace: true,
    });
  };
  return (
    <DataTable
      label="Groups"
      rows={groupedRows(groups, open)}
      columns={columns}
      keyOf={({ group, member }) => (member ? `member ${member.program}` : `group ${group.group}`)}
      selected={open === undefined ? undefined : `group ${open}`}
      onOpen={openRow}
      onEnd={more}
      footer={`${plural(groups.length, "group")} with members and in no batch${hasNextPage ? "; scroll for more." : ", that is all."}`}
    />
  );
}

function NoGroups({ job, why }: { job: string; why: string }) {
  return (
    <Empty icon="training" title="No group of this job runs">
      <p>{why}</p>
      <Link to="/training/$job" params={{ job }} search={{}} className="button">
        Its training run
      </Link>
    </Empty>
  );
}
