// What an operator should look at, each with where to look.
import type { Health, WorkerView } from "../api/types";
import { count, percent, plural } from "../format/number";
import { duration } from "../format/time";
import type { Metrics } from "../live/metrics";

export interface Alarm {
  id: string;
  tone: "bad" | "warn";
  title: string;
  text: string;
  link:
    | { to: "/workers"; search: { worker?: string } }
    | { to: "/events"; search: { kind?: string } }
    | { to: "/policies"; search: { tab?: string } }
    | { to: "/programs"; search: { status?: string; sort?: string } };
}

/** Everything that is out of order now. */
export function alarmsOf(
  health: Health | undefined,
  workers: WorkerView[],
  metrics: Metrics | null,
): Alarm[] {
  return [
    ...healthAlarms(health),
    ...workerAlarms(workers),
    ...(metrics ? [...ledgerAlarms(metrics), ...counterAlarms(metrics)] : []),
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

function workerAlarms(workers: WorkerView[]): Alarm[] {
  return workers.flatMap((worker): Alarm[] => {
    const link = { to: "/workers" as const, search: { worker: worker.id } };
    if (!worker.is_healthy) {
      const text = `${worker.url} is not answering. Its programs continue elsewhere.`;
      return [
        { id: `lost-${worker.id}`, tone: "bad", title: `Worker ${worker.id} is lost`, text, link },
      ];
    }
    const { capacity_tokens: capacity, used_tokens: used } = worker;
    if (!capacity || used <= capacity) return [];
    const text = `The ledger has ${count(used)} of ${count(capacity)} tokens (${percent(used / capacity)}).`;
    return [
      {
        id: `full-${worker.id}`,
        tone: "warn",
        title: `Worker ${worker.id} is over its KV memory`,
        text,
        link,
      },
    ];
  });
}

function ledgerAlarms(metrics: Metrics): Alarm[] {
  return metrics
    .all("treadle_worker_ledger_drift_alarm")
    .filter((sample) => sample.value > 0)
    .map((sample) => ({
      id: `drift-${sample.labels.worker}`,
      tone: "warn" as const,
      title: "The ledger is off",
      text: `${sample.labels.worker} holds over a tenth of its memory beside what the ledger believes.`,
      link: { to: "/workers" as const, search: {} },
    }));
}

/** Faults of policies that are no alarm, as a share of their answers. */
const FAULTS_BORNE = 0.001;

function counterAlarms(metrics: Metrics): Alarm[] {
  const alarms: Alarm[] = [];
  const add = (metric: string, alarm: (value: number) => Omit<Alarm, "id">) => {
    const value = metrics.sum(metric);
    if (value) alarms.push({ id: metric, ...alarm(value) });
  };
  add("treadle_policy_rollbacks_total", (value) => ({
    tone: "bad",
    title: "A policy was given up",
    text: `${plural(value, "binding")} rolled back after faults since the daemon began.`,
    link: { to: "/events", search: { kind: "policy_rolled_back" } },
  }));
  const faults = metrics.sum("treadle_policy_faults_total") ?? 0;
  const share = faults / Math.max(1, metrics.sum("treadle_policy_answers_total") ?? 0);
  if (share > FAULTS_BORNE) {
    alarms.push({
      id: "faults",
      tone: "warn",
      title: "Policies have faults",
      text: `${percent(share, 1)} of the questions went to the built-in default instead.`,
      link: { to: "/policies", search: { tab: "plugins" } },
    });
  }
  add("treadle_journal_refused_records_total", (value) => ({
    tone: "bad",
    title: "The store refused records",
    text: `${plural(value, "row")} are not on record; the daemon's log names them.`,
    link: { to: "/events", search: { kind: "record_refused" } },
  }));
  add("treadle_steps_refused_total", (value) => ({
    tone: "warn",
    title: "Steps were refused",
    text: `${plural(value, "step")} since the daemon began, most after too long a wait.`,
    link: { to: "/programs", search: { sort: "-updated_at_us" } },
  }));
  add("treadle_steps_failed_total", (value) => ({
    tone: "warn",
    title: "Engines failed steps",
    text: `${plural(value, "step")} for good since the daemon began.`,
    link: { to: "/events", search: { kind: "step_failed" } },
  }));
  return alarms;
}
