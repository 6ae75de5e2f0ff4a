// The logic behind the pages.
import { describe, expect, it } from "vitest";
import type { DecisionView, EventView, ProgramView, StepView } from "../api/types";
import { short } from "../format/number";
import { cut, visiblePieces, visibleText } from "../format/text";
import { duration } from "../format/time";
import { JournalClock } from "../live/clock";
import type { Point } from "../live/history";
import { metricsOf, parseMetrics } from "../live/metrics";
import { SseParser } from "../live/sse";
import { verdictsOf } from "./checks";
import { explain } from "./explain";
import { changesOf, textsOf } from "./limits";
import { messagesOf } from "./messages";
import { FoldedScale, union } from "./scale";
import { configOf, fieldsOf } from "./schemaForm";
import { cachedOf, hitRates, throughputBetween } from "./series";
import { stateOfProgram } from "./states";
import { buildTimeline } from "./timeline";
import { toTrace } from "./trace";
import { localTime, type WindowForm, windowOf } from "./window";

const step = (fields: Partial<StepView>): StepView => ({
  step: 1,
  program_id: "p",
  arrived_at_us: 0,
  dispatched_at_us: 10,
  first_token_at_us: 20,
  finished_at_us: 50,
  worker: "http://a",
  prompt_tokens: 1,
  output_tokens: 1,
  outcome: "stop",
  waited_us: 10,
  ...fields,
});
const event = (seq: number, at_us: number, kind: string, body: object = {}): EventView =>
  ({ seq, at_us, kind, job: "j", program: "p", event: body }) as EventView;
const decision = (seq: number, at_us: number, kind: string, why: object = {}): DecisionView =>
  ({ seq, at_us, kind, worker: "w0", policy: "p@1", why }) as DecisionView;

describe("text", () => {
  it("names what can't be seen and keeps the rest", () => {
    expect(visibleText("a\u202eb\u200b\u001b[31m")).toBe("a‹RLO›b‹ZWSP›‹ESC›[31m");
    expect(visiblePieces("a\nb", true)).toEqual([{ text: "a\nb", hidden: false }]);
    expect(visibleText("\u{e0041}")).toBe("‹U+E0041›");
  });
  it("never cuts a character in two", () => {
    expect(cut("a😀b", 2)).toEqual({ text: "a", left: 3 });
    expect(cut("x".repeat(1_000_000), 10).left).toBe(999_990);
  });
});

describe("numbers and times", () => {
  it("shortens", () => {
    expect([0, 9.876, 999, 1234, 999_999, 5e9].map(short)).toEqual([
      "0",
      "9.88",
      "999",
      "1.23k",
      "1M",
      "5G",
    ]);
  });
  it("says durations in two units", () => {
    expect([12, 3400, 1.5e6, 59.96e6, 61e6, 3600e6, 90061e6].map(duration)).toEqual([
      "12 µs",
      "3.4 ms",
      "1.50 s",
      "60.0 s",
      "1 min 1 s",
      "1 h",
      "1 d 1 h",
    ]);
  });
});

describe("event stream", () => {
  it("joins chunks, whatever they are cut at", () => {
    const parser = new SseParser();
    const text = 'id: 7\r\ndata: {"a":1}\r\n\r\n: comment\n\nid: 8\ndata: x\ndata: y\n\n';
    const messages = [...text].flatMap((character) => parser.push(character));
    expect(messages).toEqual([
      { id: "7", data: '{"a":1}' },
      { id: "8", data: "x\ny" },
    ]);
  });
});

describe("clock", () => {
  it("learns how fast the journal's clock runs", () => {
    const clock = new JournalClock();
    for (let at = 0; at <= 10; at += 1) clock.note(5e15 + at * 1e7, at * 1000);
    expect(clock.rate()).toBeCloseTo(10);
    expect(clock.now(11_000)).toBeCloseTo(5e15 + 11e7, -4);
  });
});

describe("metrics", () => {
  it("reads labels and sums", () => {
    const metrics = parseMetrics('# HELP a b\na{w="x\\"y",u="1"} 2\na{w="z",u="1"} 3\nb 1e3\n');
    expect(metrics.sum("a")).toBe(5);
    expect(metrics.of("a", "w", 'x"y')).toBe(2);
    expect(metrics.sum("b")).toBe(1000);
    expect(metrics.sum("c")).toBeNull();
  });
});

describe("folded scale", () => {
  it("merges what overlaps", () => {
    expect(
      union([
        { from: 5, to: 9 },
        { from: 0, to: 6 },
      ]),
    ).toEqual([{ from: 0, to: 9 }]);
  });
  it("folds idle time and maps back", () => {
    const busy = [
      { from: 0, to: 100 },
      { from: 10_000, to: 10_100 },
    ];
    const scale = new FoldedScale(0, 10_100, busy);
    expect(scale.folds).toHaveLength(1);
    expect(scale.length).toBeLessThan(250);
    for (const time of [0, 50, 100, 5000, 10_000, 10_050])
      expect(scale.time(scale.place(time))).toBeCloseTo(time, 6);
  });
});

describe("timeline", () => {
  const input = {
    steps: [
      step({}),
      step({
        step: 2,
        arrived_at_us: 200,
        dispatched_at_us: null,
        first_token_at_us: null,
        finished_at_us: null,
        outcome: null,
      }),
    ],
    decisions: [decision(1, 5, "place"), decision(3, 60, "offload"), decision(5, 210, "restore")],
    events: [
      event(2, 55, "action_started", { tool: "bash", action: "x" }),
      event(4, 70, "program_offloaded"),
      event(5, 190, "action_finished", { action: "x", ok: false }),
      event(6, 230, "program_loaded", { to: 0 }),
    ],
    now: 300,
    endedAt: null,
    nameOf: (worker: string) => worker,
  };
  it("shows each phase in its lane", () => {
    const lanes = Object.fromEntries(
      buildTimeline(input).lanes.map((lane) => [lane.id, lane.spans]),
    );
    expect(lanes.queue?.map((span) => [span.from, span.to, span.open])).toEqual([
      [0, 10, false],
      [200, 300, true],
    ]);
    expect(lanes["http://a"]?.map((span) => span.state)).toEqual(["prefill", "decode"]);
    expect(lanes.tool).toMatchObject([{ from: 55, to: 190, state: "failed" }]);
    expect(lanes.cache?.map((span) => span.state)).toEqual([
      "shared",
      "migrating",
      "offloaded",
      "migrating",
      "shared",
    ]);
  });
  it("becomes a trace", () => {
    const trace = JSON.parse(toTrace("p", buildTimeline(input)));
    const spans = trace.traceEvents.filter((one: { ph: string }) => one.ph === "X");
    expect(spans[0]).toMatchObject({ ts: 0, dur: 10, cat: "queued", args: { step: 1 } });
  });
});

describe("explanations", () => {
  it("says what would have changed a decision", () => {
    const why = {
      because: "room_on_worker",
      need_tokens: 100,
      used_tokens: 500,
      capacity_tokens: 1000,
    };
    const words = explain(decision(1, 0, "place", why), () => "worker 0");
    expect(words.title).toBe("Placed on worker 0");
    expect(words.figures).toContain("500 of 1,000 tokens (50 %)");
    expect(words.otherwise).toContain("400 tokens");
  });
  it("says so of every cause, and of a tight fit too", () => {
    const causes = [
      "worker_gone",
      "worker_draining",
      "routed",
      "faster_worker",
      "class_has_room",
      "tool_about_to_end",
      "long_prompt",
      "adopted",
    ];
    for (const because of causes)
      expect(explain(decision(1, 0, "place", { because }), () => "").otherwise).toMatch(/It would/);
    const tight = {
      because: "room_on_worker",
      need_tokens: 9,
      used_tokens: 5,
      capacity_tokens: 10,
    };
    expect(explain(decision(1, 0, "place", tight), () => "").otherwise).toMatch(
      /at most one program is working/,
    );
  });
  it("name the programs that were in question", () => {
    const alternatives = [
      { program: 4, key: "other", score: 0.5 },
      { program: 5, score: 1 },
    ];
    expect(explain(decision(1, 0, "pause", { alternatives }), () => "").alternatives).toEqual([
      { program: 4, key: "other", score: "0.5" },
      { program: 5, score: "1" },
    ]);
  });
  it("passes on causes that it does not know", () => {
    expect(explain(decision(1, 0, "place", { because: "new_cause" }), () => "").because).toBe(
      "new cause",
    );
  });
});

describe("configuration forms", () => {
  const schema = {
    type: "object",
    properties: {
      hold: { type: "number", minimum: 0, maximum: 10, default: 1 },
      order: { enum: ["a", "b", null], type: ["string", "null"] },
    },
  };
  it("reads and checks values", () => {
    const fields = fieldsOf(schema) ?? [];
    expect(configOf(fields, { hold: "2.5", order: "a" }).config).toEqual({ hold: 2.5, order: "a" });
    expect(configOf(fields, { hold: "11", order: "c" }).errors).toEqual({
      hold: "At most 10.",
      order: "One of a, b.",
    });
  });
  it("leaves nested schemas to the editor", () => {
    expect(fieldsOf({ properties: { a: { type: "object" } } })).toBeNull();
  });
});

describe("messages", () => {
  it("are read from requests, answers and streams", () => {
    const request = JSON.stringify({ messages: [{ role: "user", content: [{ text: "a" }] }] });
    expect(messagesOf(request)).toEqual([{ role: "user", text: "a" }]);
    const answer = JSON.stringify({ choices: [{ message: { role: "assistant", content: "b" } }] });
    expect(messagesOf(answer)).toEqual([{ role: "assistant", text: "b" }]);
    const piece = (content: string) =>
      `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}`;
    expect(messagesOf(`${piece("c")}\n\n${piece("d")}\n\ndata: [DONE]`)).toEqual([
      { role: "assistant", text: "cd" },
    ]);
    expect(messagesOf("[1]")).toBeNull();
  });
});

describe("checks of uploads", () => {
  it("stop at the one that failed", () => {
    expect(verdictsOf("smoke-trap").at(-1)).toBe("failed");
    expect(verdictsOf("forbidden-import").slice(1, 4)).toEqual(["passed", "failed", "not reached"]);
    expect(new Set(verdictsOf(null))).toEqual(new Set(["passed"]));
  });
});

describe("what was found in caches", () => {
  it("is of steps whose engine says it: unknown is no miss", () => {
    const step = (prompt_tokens: number, cached_tokens: number | null) => ({
      prompt_tokens,
      cached_tokens,
    });
    expect(cachedOf([step(100, 80), step(900, null)])).toEqual({ cached: 80, prompt: 100 });
    expect(cachedOf([step(900, null)])).toEqual({ cached: 0, prompt: 0 });
    const at = (told: number, cached: number): Point => ({
      at: told,
      metrics: metricsOf({
        treadle_prompt_tokens_total: 1000 + told,
        treadle_cache_reported_prompt_tokens_total: told,
        treadle_cached_tokens_total: cached,
      }),
    });
    expect(hitRates([at(0, 0), at(100, 80)])).toEqual([null, 0.8]);
    expect(hitRates([at(0, 0), at(0, 0)])).toEqual([null, null]);
  });
});

describe("the state of a program", () => {
  const state = (fields: Partial<ProgramView>, now = 1e9) =>
    stateOfProgram(
      { status: "active", phase: "acting", ended: null, updated_at_us: 0, ...fields },
      now,
    );

  it("says of one that was abandoned that it is silent, live or ended", () => {
    expect(state({}, 60e6)).toBe("tool");
    expect(state({})).toBe("silent");
    expect(state({ phase: "reasoning" })).toBe("decode");
    expect(state({ status: "finished", ended: "expired" })).toBe("silent");
    expect(state({ status: "finished", ended: "released" })).toBe("finished");
    expect(state({ status: "aborted", ended: "aborted" })).toBe("failed");
  });
});

describe("windows of what-if runs", () => {
  const extent = { firstSeq: 3, lastSeq: 5_000_000, firstUs: 1e15, lastUs: 1e15 + 3600e6 };
  const empty = { minutes: "", fromTime: "", toTime: "", fromSeq: "", toSeq: "", job: "" };
  const read = (fields: Partial<WindowForm>) =>
    windowOf({ ...empty, span: "last", ...fields }, extent, extent.lastUs);

  it("are the last minutes, times, events or everything, of a job or of all", () => {
    expect(read({ minutes: "10", job: "math" })).toEqual({
      window: { from_us: extent.lastUs - 600e6, job: "math" },
      errors: {},
    });
    const [fromTime, toTime] = [localTime(1e15 + 60e6), localTime(1e15 + 120e6)];
    expect(read({ span: "times", fromTime, toTime }).window).toEqual({
      from_us: Math.floor((1e15 + 60e6) / 1e6) * 1e6,
      to_us: Math.floor((1e15 + 120e6) / 1e6) * 1e6,
    });
    expect(read({ span: "events", fromSeq: " 10 ", toSeq: "20" })).toEqual({
      window: { from_seq: 10, to_seq: 20 },
      errors: {},
    });
    expect(windowOf({ ...empty, span: "all" }, undefined, 0)).toEqual({ window: {}, errors: {} });
  });

  it("say what is wrong where it is wrong", () => {
    expect(read({ minutes: "-1" }).errors.minutes).toMatch(/above 0/);
    expect(read({ span: "events" }).errors.fromSeq).toMatch(/at least one/);
    expect(read({ span: "events", fromSeq: "x" }).errors.fromSeq).toMatch(/read/);
    expect(read({ span: "events", fromSeq: "9", toSeq: "8" }).errors.toSeq).toMatch(/before/);
    expect(read({ span: "events", fromSeq: "6000000" }).errors.fromSeq).toMatch(/ends with 5,0/);
    expect(read({ span: "events", toSeq: "2" }).errors.toSeq).toMatch(/begins with 3/);
    expect(read({ span: "all" }).errors.span).toMatch(/4,999,998 events/);
    const toTime = localTime(1e15 - 60e6);
    expect(read({ span: "times", toTime }).errors.toTime).toMatch(/begins with/);
  });
});

describe("limits of a tenant", () => {
  it("are sent and shown where they change, an empty field as none", () => {
    const limits = { plugins: 100, plugin_bytes: 1 << 28, steps: null, unsigned_plugins: true };
    const texts = textsOf(limits);
    expect(changesOf(limits, texts)).toEqual({ changed: {}, changes: [], errors: {} });
    const entered = { ...texts, plugins: "", steps: "500", unsigned_plugins: "false" };
    const { changed, changes } = changesOf(limits, entered);
    expect(changed).toEqual({ steps: 500, plugins: null, unsigned_plugins: false });
    expect(changes.map(({ before, after }) => `${before} > ${after}`)).toEqual([
      "none > 500",
      "100 > none",
      "accepted > refused",
    ]);
    expect(Object.keys(changesOf(limits, { ...texts, steps: "-1" }).errors)).toEqual(["steps"]);
  });
});

describe("samples of the metrics", () => {
  it("give rates, and a gap where the daemon began anew", () => {
    const point = (at: number, steps: number, tokens: number) => ({
      at: at * 1e6,
      metrics: metricsOf({
        treadle_steps_finished_total: steps,
        treadle_output_tokens_total: tokens,
      }),
    });
    const rates = throughputBetween([point(0, 0, 0), point(30, 10, 600), point(60, 1, 30)]);
    expect(rates).toEqual({
      times: [30e6, 60e6],
      stepsPerMin: [20, null],
      tokensPerS: [20, null],
    });
  });
});
