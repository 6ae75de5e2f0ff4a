// What an operator should look at, each with where to look.
import type { Health, WorkerView } from "../api/types";
import { count, percent, plural } from "../format/number";
import { duration } from "../format/time";
import { type Point, risen } from "../live/history";
import type { Metrics } from "../live/metrics";

export interface Alarm {
  id: string;
  tone: "bad" | "warn";
  title: string;
  text: string;
  link:
    | { to: "/workers"; search: { worker?: string } }
    | { to: "/steps"; search: { outcome?: string } }
    | { to: "/events"; search: { kind?: string } }
    | { to: "/policies"; search: { tab?: string } }
    | { to: "/policies/$plugin"; params: { plugin: string }; search: { tab?: string } };
}

/** A policy by its name and the digest that the API knows it by. */
export interface Named {
  name: string;
  digest: string;
}

/** Everything that is out of order now; `faulty` is the policy with most faults, if that is known. */
export function alarmsOf(
  health: Health | undefined,
  workers: WorkerView[],
  points: Point[],
  faulty: Named | null,
): Alarm[] {
  const metrics = points.at(-1)?.metrics;
  return [
    ...healthAlarms(health),
    ...workers.flatMap(workerAlarms),
    ...(metrics ? ledgerAlarms(metrics, workers) : []),
    ...countedAlarms(points),
    ...faultAlarms(points, faulty),
  ];
}

function healthAlarms(health: Health | undefined): Alarm[] {
  const alarms: Alarm[] = [];
  if (health && health.status !== "ok") {
    alarms.push({
      id: "health",
      tone: "bad",
      title: "The daemon can't serve programs",
      text: health.detail,
      link: { to: "/workers", search: {} },
    });
  }
  const broker = health?.broker;
  if (broker?.degraded) {
    const since = broker.since_us ? ` for ${duration(Date.now() * 1000 - broker.since_us)}` : "";
    alarms.push({
      id: "broker",
      tone: "warn",
      title: "The broker lags behind",
      text: `${plural(broker.lag_events, "event")} wait${since}. ${broker.cause ?? ""}`,
      link: { to: "/events", search: {} },
    });
  }
  return alarms;
}

function workerAlarms(worker: WorkerView): Alarm[] {
  const link = { to: "/workers" as const, search: { worker: worker.id } };
  const alarm = (id: string, tone: Alarm["tone"], title: string, text: string): Alarm => ({
    id: `${id}-${worker.id}`,
    tone,
    title: `Worker ${worker.id} ${title}`,
    text,
    link,
  });
  if (!worker.is_healthy) {
    const text = `${worker.url} is not answering. Its programs continue elsewhere.`;
    return [alarm("lost", "bad", "is lost", text)];
  }
  const { capacity_tokens: capacity, used_tokens: used, problem } = worker;
  const alarms = problem ? [alarm("stuck", "bad", "makes no progress", `${problem}.`)] : [];
  if (capacity && used > capacity) {
    const text = `The ledger has ${count(used)} of ${count(capacity)} tokens (${percent(used / capacity)}).`;
    alarms.push(alarm("full", "warn", "is over its KV memory", text));
  }
  return alarms;
}

function ledgerAlarms(metrics: Metrics, workers: WorkerView[]): Alarm[] {
  return metrics
    .all("treadle_worker_ledger_drift_alarm")
    .filter((sample) => sample.value > 0)
    .map(({ labels: { worker: url = "" } }) => {
      const worker = workers.find((one) => one.url === url);
      return {
        id: `drift-${url}`,
        tone: "warn" as const,
        title: "The ledger is off",
        text: `${worker ? `Worker ${worker.id}` : url} holds over a tenth of its memory beside what the ledger believes.`,
        link: { to: "/workers" as const, search: worker ? { worker: worker.id } : {} },
      };
    });
}

/** How long what was counted is an alarm. */
const RECENT_US = 15 * 60e6;
const RECENTLY = `in the last ${duration(RECENT_US)}`;

/** Counters whose rise is an alarm. */
const COUNTED: (Pick<Alarm, "tone" | "title" | "link"> & {
  metric: string;
  text: (risen: number) => string;
})[] = [
  {
    metric: "treadle_policy_rollbacks_total",
    tone: "bad",
    title: "A policy was given up",
    text: (risen) => `${plural(risen, "binding")} lost a policy after faults ${RECENTLY}.`,
    link: { to: "/events", search: { kind: "policy_failed" } },
  },
  {
    metric: "treadle_journal_refused_records_total",
    tone: "bad",
    title: "The store refused records",
    text: (risen) =>
      `${plural(risen, "row")} of ${RECENTLY.slice(3)} are not on record; the daemon's log names them.`,
    link: { to: "/events", search: { kind: "record_refused" } },
  },
  {
    metric: "treadle_steps_refused_total",
    tone: "warn",
    title: "Steps were refused",
    text: (risen) => `${plural(risen, "step")} ${RECENTLY}, most after too long a wait.`,
    link: { to: "/steps", search: { outcome: "refused" } },
  },
  {
    metric: "treadle_steps_failed_total",
    tone: "warn",
    title: "Engines failed steps",
    text: (risen) => `${plural(risen, "step")} for good ${RECENTLY}.`,
    link: { to: "/steps", search: { outcome: "failed" } },
  },
];

function countedAlarms(points: Point[]): Alarm[] {
  return COUNTED.flatMap(({ metric, text, ...alarm }) => {
    const rise = risen(points, metric, RECENT_US);
    return rise > 0 ? [{ id: metric, text: text(rise), ...alarm }] : [];
  });
}

/** Faults of policies that are no alarm, as a share of their answers. */
const FAULTS_BORNE = 0.001;

/** Whether policies have had more faults lately than are borne, as a share of their answers. */
export function faultShare(points: Point[]): number | null {
  const faults = risen(points, "treadle_policy_faults_total", RECENT_US);
  const answers = risen(points, "treadle_policy_answers_total", RECENT_US);
  const share = faults / Math.max(1, answers);
  return share > FAULTS_BORNE ? share : null;
}

function faultAlarms(points: Point[], faulty: Named | null): Alarm[] {
  const share = faultShare(points);
  if (share === null) return [];
  return [
    {
      id: "faults",
      tone: "warn",
      title: faulty ? `${faulty.name} has faults` : "Policies have faults",
      text: `${percent(Math.min(1, share), 1)} of the questions ${RECENTLY} went to the built-in default instead.`,
      link: faulty
        ? { to: "/policies/$plugin", params: { plugin: faulty.digest }, search: { tab: "calls" } }
        : { to: "/policies", search: { tab: "plugins" } },
    },
  ];
}
