// Alarms for operators, each with a link to its cause.
import type { Health, WorkerView } from "../api/types";
import { count, percent, plural } from "../format/number";
import { duration } from "../format/time";
import { type Point, recent, risen } from "../live/history";
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

/** All current alarms. */
export function alarmsOf(
  health: Health | undefined,
  workers: WorkerView[],
  points: Point[],
): Alarm[] {
  const metrics = points.at(-1)?.metrics;
  return [
    ...healthAlarms(health),
    ...workers.flatMap(workerAlarms),
    ...(metrics ? ledgerAlarms(metrics, workers) : []),
    ...countedAlarms(points),
    ...faultAlarms(points),
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
        text: `${worker ? `Worker ${worker.id}` : url} uses over a tenth of its memory more or less than the ledger counts.`,
        link: { to: "/workers" as const, search: worker ? { worker: worker.id } : {} },
      };
    });
}

/** Period in which a rise counts as an alarm. */
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
    title: "A policy was rolled back",
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

/** Share of answers that may be faults of policies without an alarm. */
const FAULTS_BORNE = 0.001;

function faultAlarms(points: Point[]): Alarm[] {
  const faults = risen(points, FAULTS, RECENT_US);
  const answers = risen(points, "treadle_policy_answers_total", RECENT_US);
  const share = faults / Math.max(1, answers);
  if (share <= FAULTS_BORNE) return [];
  const policy = faultyPolicy(points);
  const [name, digest] = policy?.split("+") ?? [];
  return [
    {
      id: "faults",
      tone: "warn",
      title: name ? `${name} has faults` : "Policies have faults",
      text: `${percent(Math.min(1, share), 1)} of the questions ${RECENTLY} went to the built-in default instead.`,
      link: digest
        ? { to: "/policies/$plugin", params: { plugin: digest }, search: { tab: "calls" } }
        : { to: "/policies", search: { tab: "plugins" } },
    },
  ];
}

const FAULTS = "treadle_policy_faults_total";
const FAULTS_OF = "treadle_policy_version_faults_total";

/** The policy with most recent faults. */
function faultyPolicy(points: Point[]): string | null {
  const [first, last] = recent(points, FAULTS, RECENT_US) ?? [];
  const rises = new Map<string, number>();
  const add = (point: Point | undefined, sign: 1 | -1) => {
    for (const { labels, value } of point?.metrics.all(FAULTS_OF) ?? [])
      rises.set(labels.policy ?? "", (rises.get(labels.policy ?? "") ?? 0) + sign * value);
  };
  add(first, -1);
  add(last, 1);
  const [worst] = [...rises].sort(([, a], [, b]) => b - a);
  return worst && worst[1] > 0 ? worst[0] : null;
}
