import { describe, expect, it } from "vitest";
import type { EventView, HoldingView, JobWeights } from "../api/types";
import { reasonOf, updateRows, versionToken } from "./weights";
import { replayWeights } from "./weightsHistory";
import type { WeightsHistory } from "./weightsReplay";

/** Lines of a journal: milliseconds, then a kind, or an engine with a trainer's call or an answer. */
function eventsOf(text: string): EventView[] {
  return text
    .trim()
    .split("\n")
    .map((line, at) => {
      const [ms, first = "", what = "", ...rest] = line.split(" ");
      const base = { seq: at + 1, at_us: Number(ms) * 1000, job: "math", program: null };
      const of = (kind: string, event: object) => ({ ...base, kind, event: event as never });
      if (/^\D/.test(first)) return of(first, { worker: Number(what) });
      const worker = Number(first);
      if (what === "calls") return of("weights_relayed", { worker, all: true, call: callOf(rest) });
      const kind = what === "trainer" ? "weights_relay_ended" : "weights_call_ended";
      return of(kind, { worker, answer: answerOf(what === "trainer" ? rest : [what, ...rest]) });
    });
}

function callOf([verb = "", name]: string[]): unknown {
  if (["join", "begin", "begin_own", "resume"].includes(verb)) return verb;
  return { [verb]: verb === "pause" ? { own: name === "own" } : { name: name ?? null } };
}

function answerOf([how = "", ...rest]: string[]): unknown {
  if (how === "done") return "done";
  if (how !== "reports") return { [how]: { cause: rest.join(" ") } };
  const [name, value] = rest;
  return { reports: { name, checksum: { layout: "l", value }, whole: false } };
}

function replay(text: string, now = 100, workers = [0, 1]): WeightsHistory {
  const tokenOf = versionToken;
  return replayWeights({ events: eventsOf(text), workers, now: now * 1000, tokenOf });
}

const statesOf = (history: WeightsHistory, worker: number) =>
  history.engines.get(worker)?.map(({ state }) => state);

/** Two engines get version 7 in parts, as by the calls of vLLM. */
const UPDATE = `
0 0 calls pause
0 1 calls pause
2 0 trainer done
3 1 trainer done
5 0 calls begin
5 1 calls begin
6 0 trainer done
6 1 trainer done
7 0 calls part
7 1 calls part
20 0 trainer done
22 1 trainer done
23 0 calls end 7
23 1 calls end 7
24 0 trainer done
25 1 trainer done
30 0 reports 7 a
31 1 reports 7 a
32 0 done
34 1 done
40 0 calls resume
40 1 calls resume
41 0 done
43 1 done`;

/**
 * The journal of a daemon with three simulated engines, in milliseconds: all get version 5 in parts,
 * then two of them, one after the other, version 7.
 */
const RECORDED = `
0 0 calls pause
3 1 calls pause
6 2 calls pause
118 0 trainer done
128 2 trainer done
137 1 trainer done
2178 0 calls begin
2179 1 calls begin
2179 2 calls begin
2251 0 trainer done
2259 2 trainer done
2261 1 trainer done
2585 0 calls part
2586 1 calls part
2586 2 calls part
2703 0 trainer done
2704 1 trainer done
2705 2 trainer done
4193 0 calls part
4223 1 calls part
4254 2 calls part
4398 0 trainer done
4415 1 trainer done
4416 2 trainer done
5870 0 calls part
5872 1 calls part
5872 2 calls part
5907 0 trainer done
5915 1 trainer done
5917 2 trainer done
7236 0 calls end 5
7240 1 calls end 5
7240 2 calls end 5
7297 0 trainer done
7351 1 trainer done
7361 2 trainer done
7807 0 reports 5 99c4
7807 2 reports 5 99c4
7923 1 reports 5 99c4
8215 1 done
8217 2 done
8227 0 done
9984 0 calls resume
9985 1 calls resume
9985 2 calls resume
10042 2 done
10043 0 done
10045 1 done
151518 0 calls pause
151594 0 trainer done
151738 0 calls begin
151893 0 trainer done
152120 0 calls part
152147 0 trainer done
152364 0 calls end 7
152387 0 trainer done
152422 0 reports 7 3c33
152455 0 done
152586 0 calls resume
152644 0 done
152844 1 calls pause
152914 1 trainer done
153163 1 calls begin
153194 1 trainer done
153428 1 calls part
153511 1 trainer done
153782 1 calls end 7
153817 1 trainer done
153900 1 reports 7 3c33
154033 1 done
154061 1 calls resume
154111 1 done
`;

describe("an update that a trainer drives", () => {
  it("took as long as the daemon said, from the first call to the last answer", () => {
    const recorded = replay(RECORDED, 200_000, [0, 1, 2]);
    const rows = updateRows(recorded, null, 200e6).toReversed();
    expect(rows.map(({ weights, held }) => [weights.version, held])).toEqual([
      [5, 3],
      [7, 1],
      [7, 2],
    ]);
    // As `GET …/weights` said after the first and the last.
    expect((rows[0]?.exposedUs ?? 0) / 1e6).toBeCloseTo(10.045464, 2);
    expect((rows[2]?.tookUs ?? 0) / 1e6).toBeCloseTo(1.266861, 2);
    expect(recorded.engines.get(2)?.at(-1)).toMatchObject({
      ...{ state: "fenced", label: "it has version 5" },
    });
  });

  const history = replay(UPDATE);
  const [row, ...others] = updateRows(history, null, 100_000);

  it("costs what it took, and the time for which each engine was paused", () => {
    expect(others).toEqual([]);
    expect(row?.weights).toMatchObject({ version: 7, name: "7" });
    expect(row).toMatchObject({ driven: true, stage: null, held: 2, behind: [] });
    expect(row).toMatchObject({ began: 0, ended: 43_000, tookUs: 43_000, exposedUs: 43_000 });
    expect(row).toMatchObject({ pausedMaxUs: 40_000, pausedSumUs: 79_000 });
  });

  it("has the trainer's phases, then treadle's, and shows who is waited for", () => {
    const first = ["pausing", "idle", "loading", "verifying", "clearing", "awaiting", "resuming"];
    for (const worker of [0, 1]) expect(statesOf(history, worker)).toEqual([...first, "held"]);
    const spans = history.engines.get(0) ?? [];
    expect(spans[2]).toMatchObject({ label: "loads weights in parts", from: 5000, to: 24_000 });
    expect(spans[5]?.label).toBe("has proven version 7 and waits for its trainer");
    expect(spans.at(-1)).toMatchObject({ label: "version 7", open: true, to: 100_000 });
  });

  it("is not there if the trainer pauses and loads nothing", () => {
    const paused = replay("0 0 calls pause\n1 0 trainer done\n9 0 calls resume\n10 0 done");
    expect(paused.updates).toEqual([]);
    expect(statesOf(paused, 0)).toEqual(["pausing", "idle", "resuming", "held"]);
  });

  it("leaves an engine behind whose call failed, until it is loaded as a whole", () => {
    const torn = UPDATE.replace("20 0 trainer done", "20 0 trainer failed no memory")
      .split("\n")
      .filter((line) => !/^(2[3-9]|[34]\d) 0/.test(line))
      .join("\n");
    const after = replay(torn);
    const [left] = updateRows(after, null, 100_000);
    const cause = "a trainer's call failed: no memory";
    expect(left).toMatchObject({ held: 1, behind: [{ worker: 0, cause }] });
    expect(after.engines.get(0)?.at(-1)).toMatchObject({ state: "fenced", label: cause });
    const next = UPDATE.replaceAll("7", "8").replaceAll(/^(\d+) /gm, (_, ms) => `${+ms + 50} `);
    const [mended] = updateRows(replay(`${torn}${next}`), null, 100_000);
    expect(mended).toMatchObject({ held: 2, behind: [], weights: { version: 8 } });
  });

  it("tears an engine with another checksum than the others", () => {
    const workers = [0, 1, 2];
    const third = UPDATE.trim()
      .split("\n")
      .flatMap((line) => (/^\d+ 1 /.test(line) ? [line, line.replace(/ 1 /, " 2 ")] : [line]))
      .join("\n")
      .replace("31 2 reports 7 a", "31 2 reports 7 b")
      .replace("40 2 calls resume\n", "")
      .replace("43 2 done", "");
    const [row] = updateRows(replay(third.trim(), 100, workers), null, 100_000);
    const cause = "its checksum differs from that of other engines";
    expect(row).toMatchObject({ held: 2, behind: [{ worker: 2, cause }] });
  });

  it("loses what the daemon's restart and a lost engine took", () => {
    const upTo = (ms: number) =>
      UPDATE.split("\n")
        .filter((line) => line !== "" && Number(line.split(" ")[0]) < ms)
        .join("\n");
    const restarted = replay(`${upTo(8)}\n9 daemon_restarted`);
    expect(restarted.updates[0]?.behind.get(1)).toMatch(/^a trainer's call failed: the daemon/);
    const lost = replay(`${upTo(26)}\n26 worker_lost 1`);
    expect(lost.updates[0]?.behind.get(1)).toBe("it was lost during the update");
    expect(statesOf(lost, 1)?.at(-1)).toBe("fenced");
  });

  it("is named by what engines report if the trainer names none", () => {
    const unnamed = UPDATE.replaceAll("calls end 7", "calls end").replaceAll(
      "reports 7",
      "reports w",
    );
    const [row] = updateRows(replay(unnamed), null, 100_000);
    expect(row).toMatchObject({ weights: { version: 1, name: "w" }, held: 2 });
  });

  it("does not begin with engines that join a process group", () => {
    const history = replay("0 0 calls join\n0 1 calls join\n9 0 trainer done");
    expect(history.updates).toEqual([]);
    expect(statesOf(history, 0)).toEqual(["awaiting", "held"]);
    expect(statesOf(history, 1)).toEqual(["awaiting"]);
    const hung = replay("0 0 calls join\n9 0 trainer failed it hangs");
    expect(hung.engines.get(0)?.at(-1)?.label).toContain("may wait for a process group for ever");
  });

  it("goes on at a server that has no begin, and ends what treadle began", () => {
    const older = replay(
      "0 0 calls pause\n1 0 trainer done\n2 0 calls begin_own\n3 0 trainer refused 404\n4 0 calls part",
    );
    expect(statesOf(older, 0)).toEqual(["pausing", "idle", "loading", "idle", "loading"]);
    expect(older.updates[0]?.behind.size).toBe(0);
    const newer = replay(
      "0 0 calls pause\n1 0 trainer done\n2 0 calls begin_own\n3 0 trainer done\n4 0 calls part\n5 0 trainer done\n6 0 calls pause\n7 0 trainer done",
    );
    expect(newer.engines.get(0)?.at(-1)?.label).toContain(
      "parts of an update that its trainer left",
    );
  });

  it("ends unfinished when a trainer that never pauses begins another one", () => {
    const load = (ms: number, worker: number, name: string) => `
${ms} ${worker} calls load ${name}
${ms + 4} ${worker} trainer done
${ms + 4} ${worker} calls resume
${ms + 5} ${worker} reports ${name} a
${ms + 6} ${worker} done
${ms + 7} ${worker} done`;
    const paused = "0 0 calls pause own\n0 1 calls pause own\n1 0 trainer done\n1 1 trainer done";
    const { updates } = replay(`${paused}${load(2, 0, "1")}${load(20, 1, "2")}`);
    expect(updates.map(({ weights, held }) => [weights.version, held])).toEqual([
      [1, 1],
      [2, 1],
    ]);
    expect(updates[0]?.behind.get(1)).toMatch(/left the update to version `1` unfinished/);
  });

  it("follows versions that treadle loaded before they were released", () => {
    const weights = { version: 1, lineage: 0, name: "0.1", folder: "/w" };
    const published = { seq: 0, at_us: 0, job: "math", program: null, kind: "weights_published" };
    const own: EventView[] = [
      { ...published, event: { weights } as never },
      ...eventsOf("1 weights_released"),
      ...eventsOf(UPDATE.replaceAll(/^(\d+) /gm, (_, ms) => `${+ms + 50} `)),
    ];
    const tokenOf = versionToken;
    const { updates } = replayWeights({ events: own, workers: [0, 1], now: 100_000, tokenOf });
    expect(updates.map(({ stage }) => stage)).toEqual(["preparing", "driven"]);
  });
});

describe("words about an engine that a trainer loads", () => {
  it("name the trainer as who has to mend it", () => {
    const serving = { version: 2, lineage: 0, name: "2", folder: "" };
    const view: JobWeights = { job: "math", serving, workers: [] };
    const torn: HoldingView = { worker: 0, state: "torn", fenced: true, cause: "no memory" };
    expect(reasonOf(torn, view)?.cause).toBe("no memory");
    expect(reasonOf(torn, view)?.remedy).toMatch(/^Its trainer has to/);
    const held: HoldingView = { worker: 0, state: "held", fenced: true };
    expect(reasonOf(held, view)?.cause).toBe("it has not proven that it has version 2");
  });
});
