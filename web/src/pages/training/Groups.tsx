// The groups of a job that are in no batch, by key.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import { type TrainingGroup, type TrainingJob, trainingGroups } from "../../api/training";
import { count, plural } from "../../format/number";
import { toneOfGroup } from "../../model/training";
import { type Column, DataTable } from "../../ui/DataTable";
import { Failure, Loading, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { GroupMembers } from "./Members";

function figure(
  id: keyof TrainingGroup & string,
  header: string,
  wideOnly = true,
): Column<TrainingGroup> {
  const cell = (row: TrainingGroup) => count(row[id] as number | null);
  return { id, header, width: "72px", numeric: true, wideOnly, cell };
}

const COLUMNS: Column<TrainingGroup>[] = [
  {
    id: "group",
    header: "Group",
    width: "minmax(120px, 2fr)",
    cell: (row) => <Text value={row.group} max={120} />,
  },
  {
    id: "state",
    header: "State",
    width: "84px",
    cell: (row) => <Badge tone={toneOfGroup(row.state)}>{row.state}</Badge>,
  },
  figure("size", "Size"),
  figure("begun", "Begun", false),
  figure("ended", "Ended", false),
  figure("rewarded", "Rewarded"),
  figure("version", "Version"),
  figure("failures", "Failures"),
  figure("returned", "Returned"),
];

export function Groups({ job }: { job: TrainingJob }) {
  const { group } = useSearch({ from: "/training/$job" });
  const navigate = useNavigate({ from: "/training/$job" });
  const list = useInfiniteQuery(trainingGroups(job.job));
  const rows = list.data?.pages.flatMap((page) => page.groups) ?? [];
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = list;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetchingNextPage]);
  return (
    <>
      <Panel title="Groups in no batch" note="by key">
        {list.isPending ? (
          <Loading rows={3} />
        ) : list.error && !list.data ? (
          <Failure error={list.error} retry={() => void list.refetch()} />
        ) : rows.length === 0 ? (
          <p className="soft">None: each group that was submitted is in a batch.</p>
        ) : (
          <div className="bounded-table">
            <DataTable
              label="Groups in no batch"
              rows={rows}
              columns={COLUMNS}
              keyOf={(row) => row.group}
              selected={group}
              onOpen={(row) =>
                void navigate({
                  search: (old) => ({ ...old, group: row.group }),
                  replace: true,
                  resetScroll: false,
                })
              }
              onEnd={more}
              footer={`${plural(rows.length, "group")}${hasNextPage ? " loaded; scroll for more." : ", that is all."}`}
            />
          </div>
        )}
      </Panel>
      {group !== undefined ? <GroupMembers group={group} job={job} /> : null}
    </>
  );
}
