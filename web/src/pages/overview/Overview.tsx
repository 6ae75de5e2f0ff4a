// The whole at a glance.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { bindings, health, workers } from "../../api/queries";
import { count, percent, plural, short } from "../../format/number";
import { feed } from "../../live/feed";
import { rateOf, sampled } from "../../live/history";
import { useHistory, useTick } from "../../live/hooks";
import { type Alarm, alarmsOf } from "../../model/alarms";
import { hitRates } from "../../model/series";
import { Icon } from "../../ui/Icon";
import { Command, Empty, Failure, PageHead, Panel, Stat } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { Memory, States, Throughput } from "./charts";
import { Demo } from "./Demo";
import { JobsPanel, WorkersPanel } from "./lists";

/** The hours that charts show; the last one is drawn as it goes on. */
const PERIODS: [string, string, number][] = [
  ["", "1 h", 1],
  ["8h", "8 h", 8],
  ["1d", "1 d", 24],
  ["3d", "3 d", 72],
];
const RESAMPLE_MS = 30_000;

export function Overview() {
  const points = useHistory();
  const { period = "" } = useSearch({ from: "/" });
  const hours = PERIODS.find(([id]) => id === period)?.[2] ?? 1;
  const past = useQuery({
    queryKey: ["history", hours],
    queryFn: () => sampled(hours),
    enabled: hours > 1,
    refetchInterval: RESAMPLE_MS,
  });
  // A young daemon has no longer past than the last hour.
  const shown = hours > 1 && past.data && past.data.length > 2 ? past.data : points;
  const { data: healthData } = useQuery(health);
  const { data: workerData } = useQuery(workers);
  const metrics = points.at(-1)?.metrics ?? null;
  const list = workerData?.workers ?? [];
  const alarms = useMemo(() => alarmsOf(healthData, list, points), [healthData, list, points]);
  const idle = metrics !== null && (metrics.sum("treadle_steps_arrived_total") ?? 0) === 0;
  return (
    <div className="page">
      <PageHead title="Overview" note={<Mode mode={healthData?.mode} />}>
        <PeriodChoice value={period} />
      </PageHead>
      <Demo />
      <Figures />
      <Alarms alarms={alarms} />
      {idle ? <FirstStep /> : null}
      {past.error && !past.data ? (
        <Failure error={past.error} retry={() => void past.refetch()} />
      ) : null}
      <div className="grid-2">
        <Throughput points={shown} />
        <States points={shown} />
      </div>
      <div className="grid-2">
        <WorkersPanel />
        <Memory points={shown} />
      </div>
      <JobsPanel />
    </div>
  );
}

function PeriodChoice({ value }: { value: string }) {
  const navigate = useNavigate({ from: "/" });
  return (
    <fieldset className="segments">
      <legend className="visually-hidden">Period of the charts</legend>
      {PERIODS.map(([id, label]) => (
        <button
          key={id}
          type="button"
          className="segment"
          aria-pressed={id === value}
          onClick={() => void navigate({ search: id ? { period: id } : {}, replace: true })}
        >
          {label}
        </button>
      ))}
    </fieldset>
  );
}

function Mode({ mode }: { mode: string | undefined }) {
  const { data } = useQuery(bindings);
  const eviction = data?.bindings.find((one) => one.world === "eviction" && one.job === "*");
  if (!mode) return null;
  return (
    <>
      Mode <strong>{mode}</strong>
      {eviction ? (
        <>
          , caches decided by{" "}
          <Link to="/policies">
            <Text value={eviction.policy.split("+")[0] ?? eviction.policy} max={80} />
          </Link>
        </>
      ) : null}
    </>
  );
}

function Figures() {
  const points = useHistory();
  const metrics = points.at(-1)?.metrics;
  const sum = (name: string) => metrics?.sum(name) ?? null;
  const steps = rateOf(points, "treadle_steps_finished_total");
  const output = rateOf(points, "treadle_output_tokens_total");
  const hit = hitRates(points).at(-1) ?? null;
  const programs = sum("treadle_programs");
  return (
    <dl className="stats">
      <Stat label="Steps a minute" value={short(steps === null ? null : steps * 60)} />
      <Stat label="Tokens a second" value={short(output)} note="generated" />
      <Stat label="Found in cache" value={percent(hit)} note="of prompt tokens" />
      <Stat
        label="Programs"
        value={<Link to="/programs">{count(programs)}</Link>}
        note={`${count(sum("treadle_programs_opened_total"))} opened`}
      />
      <Stat
        label="Running steps"
        value={count(sum("treadle_steps_running"))}
        note={`${count(sum("treadle_queue_steps"))} wait`}
      />
      <Stat
        label="Paused"
        value={
          <Link to="/programs" search={{ status: "paused" }}>
            {count(sum("treadle_programs_paused"))}
          </Link>
        }
        note={`${count(sum("treadle_kv_held_programs"))} in host memory`}
      />
      <EventLag />
    </dl>
  );
}

/** How old the newest event is that came in here, and how many wait to leave the daemon. */
function EventLag() {
  const { data } = useQuery(health);
  useTick();
  const newest = feed.kept.at(-1);
  const broker = data?.broker;
  return (
    <Stat
      label="Event lag"
      value={<Link to="/events">{newest ? <Time us={newest.at_us} /> : "none"}</Link>}
      note={broker ? `${count(broker.lag_events)} wait for the broker` : "newest event"}
    />
  );
}

function Alarms({ alarms }: { alarms: Alarm[] }) {
  if (alarms.length === 0) return null;
  return (
    <Panel title={plural(alarms.length, "alarm")} flush>
      <ul className="alarms">
        {alarms.map((alarm) => (
          <li key={alarm.id} className={alarm.tone}>
            <Icon name="warning" />
            <div>
              <strong>{alarm.title}</strong>{" "}
              <span className="soft">
                <Text value={alarm.text} max={300} />
              </span>
            </div>
            <Link {...alarm.link} className="button small">
              Look
            </Link>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function FirstStep() {
  return (
    <Panel title="No step has arrived yet">
      <Empty icon="play" title="Send the first request">
        <p>
          Clients change a base URL, and name their program in the request. Everything below fills
          itself as steps arrive.
        </p>
        <Command>{`curl ${window.location.origin}/v1/chat/completions -H 'content-type: application/json' \\
  -d '{"model": "treadle-sim", "program_id": "first", "messages": [{"role": "user", "content": "Hello"}]}'`}</Command>
      </Empty>
    </Panel>
  );
}
