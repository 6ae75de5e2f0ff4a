// Repeats recorded work under other policies, in virtual time, and compares them.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { call } from "../../api/client";
import { queryClient, whatIfRun, whatIfRuns } from "../../api/queries";
import type { RunView } from "../../api/types";
import { useRights } from "../../app/Account";
import { percent, plural } from "../../format/number";
import { duration } from "../../format/time";
import { notify } from "../../ui/notices";
import { Empty, Failure, Loading, PageHead, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { NewRun } from "./NewRun";
import { ReportView } from "./ReportView";

export function WhatIf() {
  const search = useSearch({ from: "/what-if" });
  const navigate = useNavigate({ from: "/what-if" });
  const rights = useRights();
  const { data, error, isPending, refetch } = useQuery(whatIfRuns);
  const run = search.run ?? data?.runs[0]?.run;
  const open = (id: string) => void navigate({ search: { run: id } });
  return (
    <div className="page">
      <PageHead
        title="What-if"
        note="How would this work have run under other policies? The journal or a trace is replayed in virtual time; engines are models."
      />
      <div className="grid-side whatif">
        <div className="stack">{run ? <Run id={run} /> : <Intro />}</div>
        <div className="stack">
          {rights.job ? <NewRun onStarted={open} /> : null}
          <Panel title="Runs" note="the latest 16, until the daemon ends" flush>
            {isPending ? (
              <Loading rows={3} />
            ) : !data ? (
              <Failure error={error} retry={() => void refetch()} />
            ) : data.runs.length === 0 ? (
              <p className="pad soft">No run yet.</p>
            ) : (
              <ul className="runs">
                {data.runs.map((one) => (
                  <RunRow key={one.run} run={one} chosen={one.run === run} onOpen={open} />
                ))}
              </ul>
            )}
          </Panel>
        </div>
      </div>
    </div>
  );
}

function Intro() {
  return (
    <Panel title="A comparison">
      <Empty icon="whatif" title="Compare two sets of policies">
        <p>
          Choose sets and a window on this page and start a run. The first set is the baseline; the
          others are compared to it, seed by seed. Try <code>recorded</code> beside{" "}
          <code>sticky</code>.
        </p>
      </Empty>
    </Panel>
  );
}

const TONES: Record<string, "good" | "bad" | "accent" | "neutral"> = {
  done: "good",
  failed: "bad",
  running: "accent",
  queued: "neutral",
  cancelled: "neutral",
};

function RunRow({
  run,
  chosen,
  onOpen,
}: {
  run: RunView;
  chosen: boolean;
  onOpen: (id: string) => void;
}) {
  return (
    <li>
      <button
        type="button"
        className={chosen ? "run chosen" : "run"}
        aria-current={chosen ? "true" : undefined}
        onClick={() => onOpen(run.run)}
      >
        <span className="clip">
          {run.trace ? <Badge>trace</Badge> : null} <Text value={run.sets.join(" · ")} max={120} />
        </span>
        <Badge tone={TONES[run.status] ?? "neutral"}>
          {run.status === "running" ? percent(run.progress.share) : run.status}
        </Badge>
        <span className="dim">
          <Time us={run.created_at_us} clock="wall" />
        </span>
      </button>
    </li>
  );
}

function Run({ id }: { id: string }) {
  const { data, error, isPending, refetch } = useQuery(whatIfRun(id));
  if (isPending) return <Loading rows={6} />;
  if (!data) return <Failure error={error} retry={() => void refetch()} />;
  if (data.status === "done" && data.report) {
    return <ReportView run={data} report={data.report} />;
  }
  return (
    <Panel title={<Text value={data.sets.join(" · ")} max={120} />} note={data.status}>
      {data.error ? (
        <div className="failure" role="alert">
          <div>
            <Text value={data.error.message} max={1000} />
          </div>
        </div>
      ) : null}
      {data.status === "queued" || data.status === "running" ? <Progress run={data} /> : null}
      {data.status === "cancelled" ? <p className="soft">This run was cancelled.</p> : null}
    </Panel>
  );
}

function Progress({ run }: { run: RunView }) {
  const { share, steps, steps_done } = run.progress;
  const cancel = async () => {
    await call("delete", "/api/v1/what-if/runs/{run}", { path: { run: run.run } });
    notify("The run was cancelled.");
    await queryClient.invalidateQueries({ queryKey: ["whatIf"] });
  };
  return (
    <div className="form">
      <progress className="progress" max={1} value={share} aria-label="Progress" />
      <p className="soft">
        {run.status === "queued"
          ? "It waits for its turn: one run executes at a time."
          : `${plural(steps_done, "step")} of ${steps}, ${duration(Date.now() * 1000 - run.created_at_us)} since it was asked for`}
      </p>
      <button type="button" className="button" onClick={() => void cancel()}>
        Cancel the run
      </button>
    </div>
  );
}
