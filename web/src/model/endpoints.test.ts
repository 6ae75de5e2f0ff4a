import { expect, test } from "vitest";
import type { WorkerView } from "../api/types";
import { endpointsOf, loadOf, rankOf, sameEngine } from "./endpoints";

const worker = (id: number, url: string, used_tokens: number, load = 1): WorkerView => ({
  ...{ id: String(id), url, worker_type: "regular", is_healthy: true, state: "active" },
  ...{
    engine: "vllm",
    capabilities: { continues: false },
    load,
    programs: 2,
    used_tokens,
    host_tokens: 0,
  },
  capacity_tokens: 1000,
});
/** As ids come when engines with ranks are registered side by side. */
const WORKERS = [
  worker(0, "http://a:1#0", 100),
  worker(1, "http://b:1", 70),
  worker(2, "http://a:1#10", 600, 3),
  worker(3, "http://a:1#2", 200),
];

test("ranks of one address are one engine, in the order of their numbers", () => {
  const engines = endpointsOf(WORKERS);
  expect(engines.map(({ address, ranks }) => [address, ranks.map(({ id }) => id)])).toEqual([
    ["http://a:1", ["0", "3", "2"]],
    ["http://b:1", ["1"]],
  ]);
  expect(WORKERS.map(rankOf)).toEqual([0, null, 10, 2]);
  expect(sameEngine(worker(3, "http://a:1#2", 0), WORKERS)).toEqual([0, 2, 3]);
});

test("the fullest rank is compared with the mean of all", () => {
  const [first, second] = endpointsOf(WORKERS).map(loadOf);
  expect(first).toEqual({ steps: 5, programs: 6, used: 900, capacity: 3000, imbalance: 2 });
  expect(second).toMatchObject({ used: 70, imbalance: 1 });
  const idle = { ...worker(4, "http://c:1", 0), capacity_tokens: null };
  expect(endpointsOf([idle]).map(loadOf)[0]).toMatchObject({ capacity: null, imbalance: null });
});
