// Tool calls and rewards that treadle runs: their resources, their outcomes and times.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ActionFilter, actions, resources } from "../../api/queries";
import type { ActionView } from "../../api/types";
import { visibleText } from "../../format/text";
import { duration } from "../../format/time";
import { journalNow } from "../../live/clock";
import { amounts, endingOf, STATUSES, timesOf } from "../../model/actions";
import { Choice } from "../../ui/Choice";
import { JobChoice, useSearchFilters } from "../../ui/filters";
import { Icon } from "../../ui/Icon";
import { Meter } from "../../ui/Meter";
import { Command, Empty, Failure, Loading, PageHead, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { ActionDetail } from "./ActionDetail";
import { Resources } from "./Resources";

interface ActionSearch extends ActionFilter {
  action?: string | undefined;
}

export function Actions() {
  const search = useSearch({ from: "/actions" });
  const { data } = useQuery(resources);
  const { action: chosen, ...filter } = search;
  const list = useInfiniteQuery(actions(filter));
  const rows = list.data?.pages.flatMap((page) => page.actions) ?? [];
  const isFiltered = Object.values(filter).some(Boolean);
  const off = data && !data.enabled;
  return (
    <div className="page">
      <PageHead
        title="Actions"
        note={data ? `${data.waiting} wait, ${data.started} are started` : undefined}
      />
      {data?.enabled ? <Resources resources={data} /> : null}
      {chosen ? <ActionDetail action={Number(chosen)} /> : null}
      {list.isPending ? (
        <Loading rows={6} />
      ) : list.error && !list.data ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : rows.length === 0 && !isFiltered ? (
        <Empty icon="actions" title={off ? "This daemon runs no actions" : "No actions yet"}>
          <p>
            treadle can run tool calls and rewards itself, and share cores, GPUs and quotas among
            them one by one.
            {off ? " Its processes run as the daemon's user, so it is off by default:" : null}
          </p>
          <Command>
            {off ? "treadle serve --set actions.enabled=true" : "treadle actions run -- pytest -q"}
          </Command>
        </Empty>
      ) : (
        <>
          <Filters search={search} />
          <ActionTable rows={rows} chosen={chosen} />
          {list.hasNextPage ? (
            <button
              type="button"
              className="button"
              disabled={list.isFetchingNextPage}
              onClick={() => void list.fetchNextPage()}
            >
              Older actions
            </button>
          ) : null}
        </>
      )}
    </div>
  );
}

function Filters({ search }: { search: ActionSearch }) {
  const set = useSearchFilters("/actions");
  return (
    <div className="toolbar" role="search">
      <JobChoice value={search.job} set={set} />
      <Choice
        label="Status"
        all="Any status"
        value={search.status ?? ""}
        options={STATUSES.map((status) => [status, status])}
        onChange={(status) => set({ status })}
      />
      {search.program ? (
        <button type="button" className="button" onClick={() => set({ program: "" })}>
          Of {visibleText(search.program, 40)}
          <Icon name="close" />
        </button>
      ) : null}
    </div>
  );
}

function ActionTable({ rows, chosen }: { rows: ActionView[]; chosen: string | undefined }) {
  const navigate = useNavigate({ from: "/actions" });
  const open = (action: number) =>
    void navigate({ search: (old) => ({ ...old, action: String(action) }), replace: true });
  return (
    <Panel title="Newest first" flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Action</th>
              <th>State</th>
              <th className="wide-only">Job</th>
              <th className="wide-only">Program</th>
              <th className="wide-only">Needs</th>
              <th className="wide-cell">Time</th>
              <th className="num wide-only">Queue</th>
              <th className="num wide-only">Overhead</th>
              <th className="num">Run</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row
                key={row.action}
                row={row}
                isChosen={String(row.action) === chosen}
                open={() => open(row.action)}
              />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Row({ row, isChosen, open }: { row: ActionView; isChosen: boolean; open: () => void }) {
  const times = timesOf(row, journalNow());
  return (
    <tr className="row-link" aria-current={isChosen ? "true" : undefined} onClick={open}>
      <td className="nowrap">
        <button type="button" className="account-link" onClick={open}>
          {row.action}
        </button>{" "}
        <Text value={row.kind} max={40} />
      </td>
      <td>
        <ActionState action={row} />
      </td>
      <td className="wide-only">
        <Text value={row.job} max={40} />
      </td>
      <td className="wide-only">
        {row.program_id ? (
          <Link
            to="/programs/$program"
            params={{ program: row.program_id }}
            onClick={(event) => event.stopPropagation()}
          >
            <Text value={row.program_id} max={40} />
          </Link>
        ) : (
          "–"
        )}
      </td>
      <td className="wide-only">{amounts(row.cost)}</td>
      <td className="wide-cell">
        <Meter
          label={`Times of action ${row.action} in microseconds`}
          total={null}
          parts={[
            { label: "Queue", value: times.queue, state: "queued" },
            { label: "Overhead", value: times.overhead ?? 0, state: "migrating" },
            { label: "Run", value: times.run ?? 0, state: "tool" },
          ]}
        />
      </td>
      <td className="num wide-only nowrap">{duration(times.queue)}</td>
      <td className="num wide-only nowrap">{duration(times.overhead)}</td>
      <td className="num nowrap">{duration(times.run)}</td>
    </tr>
  );
}

/** Its end, or how far it is. */
export function ActionState({ action }: { action: ActionView }) {
  const ending = endingOf(action);
  if (!ending) return <Badge tone="accent">{action.status}</Badge>;
  return (
    <span title={ending.meaning}>
      <Badge tone={ending.tone}>{ending.text}</Badge>
    </span>
  );
}
