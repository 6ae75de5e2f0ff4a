// The weights of a job's engines: what each holds, how they came to it, and what that cost.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { queryClient } from "../../api/queries";
import type { TrainingJob } from "../../api/training";
import { jobWeights, weightsEvents } from "../../api/weights";
import { journalNow } from "../../live/clock";
import { useFeed } from "../../live/hooks";
import { UPDATES_SHOWN, type UpdateRow, updateRows, versionToken } from "../../model/weights";
import { replayWeights, WEIGHTS_KINDS } from "../../model/weightsHistory";
import type { WeightsHistory } from "../../model/weightsReplay";
import { Command, Empty, Failure, Loading } from "../../ui/Panel";
import { Engines } from "./Engines";
import { Updates } from "./Updates";
import { WeightsLanes } from "./WeightsLanes";

const REFRESH_MS = 500;

export function Weights({ job: { job } }: { job: Pick<TrainingJob, "job"> }) {
  const { data: weights, error, refetch, dataUpdatedAt } = useQuery(jobWeights(job));
  const events = useQuery(weightsEvents(job));
  useRefresh(job);
  const seen = events.data?.events;
  const workers = weights?.workers.map(({ worker }) => worker).join() ?? "";
  const history = useMemo(() => {
    const known = workers === "" ? [] : workers.split(",").map(Number);
    const now = seen?.at(-1)?.at_us ?? 0;
    return replayWeights({ events: seen ?? [], workers: known, now, tokenOf: versionToken });
  }, [seen, workers]);
  const view = useMemo(() => {
    if (weights === undefined || dataUpdatedAt === 0) return null;
    const now = journalNow();
    return { history, rows: updateRows(history, weights, now), now };
  }, [weights, history, dataUpdatedAt]);
  if (error && weights === undefined) return <Failure error={error} retry={() => void refetch()} />;
  if (weights === undefined || !view || events.isPending) return <Loading rows={6} />;
  if (!weights && view.rows.length === 0) return <None job={job} />;
  return (
    <>
      {weights ? <Engines weights={weights} /> : <Released />}
      {events.error ? (
        <Failure error={events.error} retry={() => void events.refetch()} />
      ) : (
        <History view={view} more={events.data?.more ?? false} />
      )}
    </>
  );
}

interface View {
  history: WeightsHistory;
  rows: UpdateRow[];
  now: number;
}

function History({ view: { history, rows, now }, more }: { view: View; more: boolean }) {
  const { updates } = useSearch({ from: "/training/$job" });
  const navigate = useNavigate({ from: "/training/$job" });
  const choose = (key: string | undefined) =>
    void navigate({
      search: (old) => ({ ...old, updates: key }),
      replace: true,
      resetScroll: false,
    });
  const one = rows.find((row) => row.key === updates);
  const shown = one ? [one] : updates === "all" ? rows : rows.slice(0, UPDATES_SHOWN);
  return (
    <>
      <WeightsLanes
        history={history}
        rows={shown}
        now={now}
        chosen={one ? one.key : updates === "all" ? "all" : ""}
        all={rows}
        onChoose={choose}
      />
      <Updates rows={rows} chosen={one?.key} more={more} onChoose={choose} />
    </>
  );
}

function None({ job }: { job: string }) {
  return (
    <Empty icon="workers" title="treadle loads no weights for this job">
      <p>
        The trainer loads them itself, and reports versions. To have treadle load each version into
        the engines, and fence those that have not proven it, publish one: a folder that each engine
        can read. docs/weights.md has the order.
      </p>
      <Command>{`treadle weights publish /shared/${job}/1 --job ${job} --version 1`}</Command>
    </Empty>
  );
}

function Released() {
  return (
    <p className="soft">
      treadle no longer loads weights for this job: its engines serve what they had. Publish a
      version to have it load them again.
    </p>
  );
}

/** Reads again after events about the job's weights, or about workers. */
function useRefresh(job: string): void {
  const [dirty, setDirty] = useState(false);
  useFeed((events) => {
    const kinds: readonly string[] = WEIGHTS_KINDS;
    const concerns = (kind: string, of: string) =>
      kinds.includes(kind) && (of === job || /^(worker|daemon)/.test(kind));
    if (events.some((event) => concerns(event.kind, event.job))) setDirty(true);
  });
  useEffect(() => {
    if (!dirty) return;
    const timer = setTimeout(() => {
      setDirty(false);
      for (const key of ["jobWeights", "weightsEvents"])
        void queryClient.invalidateQueries({ queryKey: [key, job] });
    }, REFRESH_MS);
    return () => clearTimeout(timer);
  }, [dirty, job]);
}
