import { describe, expect, it } from "vitest";
import type { EventView, HoldingView, JobWeights, WeightsView } from "../api/types";
import { lanesOf, phaseOf, reasonOf, updateRows, versionText, versionToken } from "./weights";
import { replayWeights } from "./weightsHistory";
import type { WeightsHistory } from "./weightsReplay";

const weightsOf = (version: number): WeightsView => ({
  ...{ version, lineage: 0, name: `0.${version}`, folder: `/weights/${version}` },
});

/**
 * The journal of a daemon with three simulated SGLang engines, in milliseconds: version 2 tears
 * engine 2, version 3 goes from one engine to the next, and version 4 is refused by engine 0.
 */
const RECORDED = `
0 publish 1
6 2 done
8 0 done
9 1 done
180 0 done
353 1 done
353 2 done
1101 0 done
1456 0 reports 0.1 a49d
1458 0 done
1638 1 done
1976 1 reports 0.1 a49d
1992 2 done
1996 1 done
2298 2 reports 0.1 a49d
2389 2 done
2452 0 done
2458 2 done
2458 1 done
3627 publish 2
3652 1 done
3653 0 done
3653 2 done
3835 0 done
3899 1 done
3955 2 done
4743 0 done
5054 0 reports 0.2 177c
5057 0 done
5154 1 done
5463 1 reports 0.2 177c
5472 1 done
5559 2 failed The full weights of the ModelRunner are partially updated.
5864 2 reports 0.1 3a09
5876 0 done
5876 1 done
5884 2 done
6163 2 done
7789 2 done
8097 2 reports 0.2 177c
8100 2 done
8101 2 done
15850 publish 3 rolling
15869 0 done
15869 2 done
15869 1 done
16038 0 done
16954 0 done
17259 0 reports 0.3 e194
17261 0 done
17267 0 done
17480 1 done
18734 1 done
19039 1 reports 0.3 e194
19083 1 done
19088 1 done
19362 2 done
20966 2 done
21286 2 reports 0.3 e194
21293 2 done
21298 2 done
25086 publish 4
25197 1 done
25197 2 done
25197 0 done
25464 0 done
25495 1 done
25587 2 done
26400 0 failed out of memory
26711 0 reports 0.3 e194
26843 1 done
27151 1 reports 0.4 aed6
27186 1 done
27195 2 done
27501 2 reports 0.4 aed6
27512 2 done
27524 2 done
27524 1 done
27560 0 done
27724 0 done
28674 0 done
29020 0 reports 0.4 aed6
29077 0 done
29082 0 done
`;

function answerOf(words: string[]): unknown {
  const [how, ...rest] = words;
  if (how === "done") return "done";
  if (how === "failed" || how === "refused") return { [how]: { cause: rest.join(" ") } };
  const [name, value] = rest;
  const whole = false;
  return { reports: { name, checksum: { layout: "l", value }, whole } };
}

function eventsOf(text: string): EventView[] {
  const lines = text.trim().split("\n");
  return lines.map((line, at) => {
    const [ms, first = "", ...rest] = line.split(" ");
    const base = { seq: at + 1, at_us: Number(ms) * 1000, job: "math", program: null };
    if (first === "publish") {
      const plan = { quorum: 0, ready_s: 600, rolling: rest[1] === "rolling" };
      const event = { weights: weightsOf(Number(rest[0])), plan };
      return { ...base, kind: "weights_published", event: event as never };
    }
    if (/^\D/.test(first)) {
      const event = { worker: Number(rest[0]) };
      return { ...base, kind: first, event: event as never };
    }
    const event = { worker: Number(first), answer: answerOf(rest) };
    return { ...base, kind: "weights_call_ended", event: event as never };
  });
}

function replay(text: string, now = 40_000, workers = [0, 1, 2]): WeightsHistory {
  return replayWeights({ events: eventsOf(text), workers, now: now * 1000, tokenOf: versionToken });
}

const statesOf = (history: WeightsHistory, worker: number) =>
  history.engines.get(worker)?.map(({ state }) => state);

describe("versions over time, found from the journal", () => {
  const history = replay(RECORDED);
  const rows = updateRows(history, null, 40e6).toReversed();

  it("took as long, and exposed as long, as the daemon said", () => {
    const told = [
      [2.457885, 2.449121],
      [2.248537, 2.223361],
      [5.448372, 5.428856],
      [2.438215, 2.326524],
    ];
    rows.forEach(({ tookUs, exposedUs }, at) => {
      const [took = 0, exposed = 0] = told[at] ?? [];
      expect(Math.abs((tookUs ?? 0) / 1e6 - took)).toBeLessThan(0.01);
      expect(Math.abs((exposedUs ?? 0) / 1e6 - exposed)).toBeLessThan(0.01);
    });
    expect(rows.map(({ stage }) => stage)).toEqual([null, null, null, null]);
  });

  it("left the engines behind that the daemon left behind, for the same reasons", () => {
    expect(rows.map(({ held }) => held)).toEqual([3, 2, 3, 2]);
    expect(rows.map(({ behind }) => behind)).toEqual([
      [],
      [{ worker: 2, cause: "it reports version `0.1` instead of `0.2`" }],
      [],
      [{ worker: 0, cause: "it reports version `0.3` instead of `0.4`" }],
    ]);
  });

  it("counts how long engines that took part were paused", () => {
    expect(rows[0]?.pausedMaxUs).toBe(2_272_000);
    expect(rows[1]?.pausedSumUs).toBeLessThan(2 * (rows[1]?.pausedMaxUs ?? 0));
    expect(rows[2]?.pausedMaxUs).toBeLessThan((rows[2]?.tookUs ?? 0) / 2);
  });

  it("has the phases of an update in their order, and then the version", () => {
    const phases = ["preparing", "held", "pausing", "loading", "verifying", "clearing"];
    expect(statesOf(history, 0)?.slice(0, 9)).toEqual([...phases, "awaiting", "resuming", "held"]);
    const held = history.engines.get(1)?.filter(({ state }) => state === "held");
    const versions = ["version 1", "version 2", "version 3", "version 4"];
    expect([...new Set(held?.map(({ label }) => label))]).toEqual(expect.arrayContaining(versions));
    expect(held?.at(-1)).toMatchObject({ label: "version 4", open: true, token: "migrating" });
  });

  it("fences one that is torn until it is loaded as a whole", () => {
    const spans = history.engines.get(2) ?? [];
    const fenced = spans.findIndex(({ state }) => state === "fenced");
    expect(spans[fenced]?.label).toBe("it reports version `0.1` instead of `0.2`");
    const after = spans.slice(fenced + 1, fenced + 6).map(({ state }) => state);
    expect(after).toEqual(["pausing", "loading", "verifying", "clearing", "resuming"]);
    const overlaps = spans.some((span, at) => at > 0 && span.from < (spans[at - 1]?.to ?? 0));
    expect(overlaps).toBe(false);
  });

  it("keeps serving at the others while it goes from one engine to the next", () => {
    const third = rows[2];
    const during = history.engines
      .get(2)
      ?.filter(
        ({ from, to }) => from < (third?.began ?? 0) + 3e6 && to > (third?.began ?? 0) + 1e6,
      );
    expect(during?.map(({ state, label }) => [state, label])).toEqual([["held", "version 2"]]);
  });
});

describe("updates that do not end well", () => {
  it("fails if too few engines are ready, and nothing is paused", () => {
    const text = "0 publish 1\n5 0 refused no\n6 1 refused no\n7 2 done";
    const [row] = updateRows(replay(text, 10), null, 10_000);
    expect(row).toMatchObject({ stage: null, held: 0, exposedUs: 0, pausedMaxUs: null });
    expect(row?.behind.map(({ cause }) => cause)).toEqual([
      "prepare failed: no",
      "prepare failed: no",
    ]);
  });

  it("is under way until all engines that take part have it", () => {
    const history = replay("0 publish 1\n5 0 done\n6 1 done\n7 2 done\n9 1 done", 20);
    const [row] = updateRows(history, null, 20_000);
    expect(row).toMatchObject({ stage: "loading", ended: null, exposedUs: 13_000 });
    expect(statesOf(history, 1)).toEqual(["preparing", "held", "pausing", "loading"]);
    expect(history.engines.get(1)?.at(-1)).toMatchObject({ from: 9000, to: 20_000, open: true });
  });

  it("goes on without an engine that is lost", () => {
    const ready = "0 publish 1\n5 0 done\n6 1 done\n7 2 done\n8 worker_lost 1\n9 0 done";
    const history = replay(ready, 20);
    expect(history.updates[0]?.behind.get(1)).toBe("it was lost during the update");
    expect(statesOf(history, 1)?.at(-1)).toBe("fenced");
  });

  it("is over, and all are fenced, when the run goes back", () => {
    const history = replay("0 publish 1\n5 0 done\n6 1 done\n7 2 done\n8 rolled_back", 20);
    expect(history.updates[0]?.ended).toBe(8000);
    for (const worker of [0, 1, 2]) expect(statesOf(history, worker)?.at(-1)).toBe("fenced");
  });

  it("does not believe an engine whose answer was lost, and that is the only one", () => {
    const loading =
      "0 publish 1\n1 0 done\n2 0 done\n3 daemon_restarted\n4 0 reports 0.1 a\n5 0 done";
    const history = replay(loading, 20, [0]);
    expect(statesOf(history, 0)).toEqual([
      "preparing",
      "pausing",
      "loading",
      "verifying",
      "clearing",
      "fenced",
    ]);
  });

  it("says nothing about what was before the first update on record", () => {
    const history = replay("0 0 done\n1 worker_lost 0\n5 publish 2\n6 0 done", 20, [0]);
    expect(history.updates).toHaveLength(1);
    expect(history.engines.get(0)?.[0]).toMatchObject({ from: 5000, state: "preparing" });
  });

  it("draws no lane after the engine was removed or the job released", () => {
    const one = "0 publish 1\n1 0 done\n2 0 done\n3 0 done\n4 0 reports 0.1 a\n5 0 done\n6 0 done";
    const removed = replay(`${one}\n9 worker_removed 0`, 20, [0]);
    expect(removed.engines.get(0)?.at(-1)).toMatchObject({ from: 6000, to: 9000, open: false });
    const released = replay(`${one}\n9 weights_released\n12 0 done`, 20, [0]);
    expect(released.engines.get(0)?.at(-1)).toMatchObject({ from: 6000, to: 9000, open: false });
  });
});

describe("what the daemon says of the present counts", () => {
  const history = replay("0 publish 1\n5 0 done\n6 1 done\n7 2 done\n9 1 done", 20);
  const view: JobWeights = { job: "math", serving: weightsOf(1), workers: [] };

  it("has the last update's figures from it", () => {
    const last = { weights: weightsOf(1), held: 3, took_s: 0.5, exposed_s: 0.25, behind: [] };
    const [row, ...others] = updateRows(history, { ...view, last }, 20_000);
    expect(others).toEqual([]);
    expect(row).toMatchObject({ tookUs: 500_000, exposedUs: 250_000, held: 3, stage: null });
  });

  it("has an update that the journal no longer has", () => {
    const last = { weights: weightsOf(7), held: 1, took_s: 1, exposed_s: 1, behind: [] };
    const none: WeightsHistory = { updates: [], engines: new Map() };
    expect(updateRows(none, { ...view, last }, 0)).toMatchObject([{ began: null, tookUs: 1e6 }]);
  });

  it("names the stage", () => {
    const update = { weights: weightsOf(1), stage: "cutting", rolling: false, workers: 3 };
    const [row] = updateRows(history, { ...view, update: { ...update, behind: [] } }, 20_000);
    expect(row?.stage).toBe("cutting");
  });
});

describe("lanes", () => {
  it("are cut to the updates that are chosen", () => {
    const history = replay(RECORDED);
    const rows = updateRows(history, null, 40e6);
    const second = rows[2];
    const lanes = lanesOf(history, second ? [second] : [], 40e6, (id) => `worker ${id}`);
    const began = second?.began ?? 0;
    expect(lanes?.from).toBeLessThan(began);
    expect(lanes?.to).toBeLessThan(rows[1]?.began ?? 0);
    for (const { spans } of lanes?.lanes ?? [])
      for (const span of spans) {
        expect(span.from).toBeGreaterThanOrEqual(lanes?.from ?? 0);
        expect(span.to).toBeLessThanOrEqual(lanes?.to ?? 0);
      }
    expect(lanes?.lanes.map(({ label }) => label)).toEqual(["worker 0", "worker 1", "worker 2"]);
    expect(lanesOf(history, [], 40e6, String)).toBeNull();
  });
});

describe("words about an engine", () => {
  const holding: HoldingView = { worker: 0, state: "held", fenced: false, held: weightsOf(1) };
  const view: JobWeights = { job: "math", serving: weightsOf(2), workers: [] };
  const update = { weights: weightsOf(3), stage: "loading", rolling: false, workers: 2 };

  it("are its phase", () => {
    expect(phaseOf(holding)).toEqual({ state: "held", label: "held" });
    const torn = { ...holding, state: "torn", fenced: true };
    expect(phaseOf(torn)).toEqual({ state: "fenced", label: "torn, fenced" });
    expect(phaseOf({ ...torn, call: "prepare" }).state).toBe("fenced");
    expect(phaseOf({ ...holding, state: "paused", fenced: true, call: "apply" }).state).toBe(
      "loading",
    );
  });

  it("are the reason and what helps", () => {
    const fenced = { ...holding, fenced: true, cause: "it reports version `x`" };
    expect(reasonOf(holding, view)).toBeNull();
    expect(reasonOf(fenced, view)).toMatchObject({ cause: fenced.cause });
    expect(reasonOf(fenced, view)?.remedy).toContain("loads version 2 there as a whole");
    expect(reasonOf(fenced, { ...view, serving: null })?.remedy).toContain("weights publish");
    const during = { ...view, update: { ...update, behind: [] } };
    expect(reasonOf({ ...holding, fenced: true }, during)).toEqual({
      cause: "version 3 is being loaded",
      remedy: "It gets steps again once the update is over.",
    });
    const behind = [{ worker: 0, cause: "it was lost during the update" }];
    const left = reasonOf({ ...holding, fenced: true }, { ...view, update: { ...update, behind } });
    expect(left?.cause).toBe("it was lost during the update");
    expect(left?.remedy).toContain("once the update is over");
  });

  it("name another lineage than the first", () => {
    expect(versionText(weightsOf(3))).toBe("version 3");
    expect(versionText({ ...weightsOf(3), lineage: 2 })).toBe("version 3 of lineage 2");
    expect(versionToken(weightsOf(3))).not.toBe(versionToken(weightsOf(4)));
  });
});
