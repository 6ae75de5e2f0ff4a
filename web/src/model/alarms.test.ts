// Alarms lead to what caused them, and end.
import { expect, it } from "vitest";
import type { WorkerView } from "../api/types";
import { metricsOf } from "../live/metrics";
import { alarmsOf } from "./alarms";

const point = (minutes: number, values: Record<string, number>) => ({
  at: minutes * 60e6,
  metrics: metricsOf(values),
});
const worker = (fields: Partial<WorkerView>): WorkerView =>
  ({ id: "3", url: "http://a", is_healthy: true, used_tokens: 0, ...fields }) as WorkerView;

it("counters are an alarm while they have risen lately", () => {
  const refused = (minutes: number, value: number) =>
    point(minutes, { treadle_steps_refused_total: value });
  const titles = (last: number) =>
    alarmsOf(undefined, [], [refused(0, 5), refused(10, 7), refused(last, 7)]);
  expect(titles(11)).toMatchObject([
    { text: expect.stringMatching(/^2 steps/), link: { search: { outcome: "refused" } } },
  ]);
  expect(titles(30)).toEqual([]);
});

it("workers and policies are linked by id", () => {
  const drift = point(0, { 'treadle_worker_ledger_drift_alarm{worker="http://a"}': 1 });
  const [stuck, off] = alarmsOf(undefined, [worker({ problem: "nowhere to go" })], [drift]);
  expect(stuck).toMatchObject({ text: "nowhere to go.", link: { search: { worker: "3" } } });
  expect(off?.link).toEqual({ to: "/workers", search: { worker: "3" } });
  const faults = (minutes: number, value: number) =>
    point(minutes, {
      treadle_policy_faults_total: value,
      treadle_policy_answers_total: 10,
      'treadle_policy_version_faults_total{policy="own@1+abc",cause="trap"}': value,
      'treadle_policy_version_faults_total{policy="old@1+def",cause="trap"}': 7,
    });
  expect(alarmsOf(undefined, [], [faults(0, 0), faults(1, 2)])).toMatchObject([
    { title: "own@1 has faults", link: { params: { plugin: "abc" } } },
  ]);
});
