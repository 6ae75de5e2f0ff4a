// A program with very many events.
import assert from "node:assert/strict";
import { test } from "node:test";
import { at, open } from "./harness.mjs";

test("a timeline of 40,000 events is smooth", async () => {
  const begun = Date.now();
  const { page, done } = await open("/console/programs/long", { prepare: seedLongProgram });
  await page.waitForSelector(".spans canvas");
  await page.waitForTimeout(500);
  const frames = await page.evaluate(zoomAndPan);
  console.log(
    `40,000 events: shown after ${Date.now() - begun} ms, ${frames.length} frames, p95 ${p95Of(frames)} ms`,
  );
  const size = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(size < 1500, `${size} elements in the page`);
  await done();
});

function p95Of(frames) {
  const sorted = frames.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length * 0.95)].toFixed(1);
}

const PROGRAMS = 100_000;

/** Answers for very many programs, page by page. */
async function seedManyPrograms(page) {
  await page.route(/api\/v1\/programs\?/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const after = Number(query.get("after") ?? 0);
    const next = Math.min(PROGRAMS, after + Number(query.get("limit")));
    const programs = Array.from({ length: next - after }, (_, row) => ({
      ...at.program,
      program_id: `many-${after + row + 1}`,
    }));
    route.fulfill({ json: { programs, next: next < PROGRAMS ? String(next) : null } });
  });
}

test("100,000 programs are scrolled through with few rows in the page", async () => {
  const { page, done } = await open("/console/programs", { prepare: seedManyPrograms });
  await page.waitForSelector(".table-row.body");
  page.setDefaultTimeout(120_000);
  const [first, largest] = await page.evaluate(paints);
  const begun = Date.now();
  const { loading, scrolling, rows, size } = await page.evaluate(scrollToEndAndUp);
  console.log(
    `${PROGRAMS} programs: first paint after ${first} ms, largest after ${largest} ms; all loaded after ${Date.now() - begun} ms, at most ${rows} rows and ${size} elements; frames while loading p95 ${p95Of(loading)} ms, while scrolling p95 ${p95Of(scrolling)} ms`,
  );
  await page.waitForSelector("text=100,000 programs, that is all.");
  assert.ok(rows < 60, `${rows} rows in the page`);
  assert.ok(size < 1500, `${size} elements in the page`);
  await done();
});

/** When the first and the largest content was painted, in milliseconds since the page was asked for. */
function paints() {
  const painted = (type) =>
    new Promise((resolve) => {
      const newest = (list) => resolve(Math.round(list.getEntries().at(-1).startTime));
      new PerformanceObserver(newest).observe({ type, buffered: true });
    });
  return Promise.all(["paint", "largest-contentful-paint"].map(painted));
}

/** Scrolls to the end until there is no more, then up by ten rows a frame; the time of each frame, and the most rows and elements. */
async function scrollToEndAndUp() {
  const scroller = document.querySelector(".table-scroll");
  const foot = document.querySelector(".table-foot");
  let [rows, size] = [0, 0];
  const frame = async (top) => {
    const begun = performance.now();
    scroller.scrollTop = top;
    await new Promise((resolve) => requestAnimationFrame(resolve));
    rows = Math.max(rows, document.querySelectorAll(".table-row.body").length);
    size = Math.max(size, document.querySelectorAll("*").length);
    return performance.now() - begun;
  };
  const [loading, scrolling] = [[], []];
  while (!foot.textContent.includes("that is all"))
    loading.push(await frame(scroller.scrollHeight));
  for (let at = 0; at < 200; at += 1) scrolling.push(await frame(scroller.scrollTop - 320));
  return { loading, scrolling, rows, size };
}

/** Answers for one program with 10,000 steps and 40,000 events. */
async function seedLongProgram(page) {
  const steps = Array.from({ length: 10_000 }, (_, at) => ({
    step: at + 1,
    worker: `http://127.0.0.1:${9000 + (at % 3)}`,
    arrived_at_us: at * 2e6 + 1e15,
    dispatched_at_us: at * 2e6 + 1e15 + 3e5,
    first_token_at_us: at * 2e6 + 1e15 + 5e5,
    finished_at_us: at * 2e6 + 1e15 + 15e5,
    prompt_tokens: 1000,
    output_tokens: 100,
    outcome: "stop",
    waited_us: 3e5,
  }));
  const events = steps.flatMap(({ step, arrived_at_us, finished_at_us }) =>
    [
      [arrived_at_us, "step_arrived", { step }],
      [finished_at_us, "step_finished", { step }],
      [finished_at_us + 1, "action_started", { action: `a${step}`, tool: "bash" }],
      [finished_at_us + 4e5, "action_finished", { action: `a${step}`, ok: true }],
    ].map(([at_us, kind, event], at) => ({
      seq: step * 4 + at,
      at_us,
      kind,
      job: "j",
      program: "long",
      event,
    })),
  );
  const view = { ...at.program, program_id: "long", ended: "released", status: "finished" };
  Object.assign(view, { created_at_us: 1e15, updated_at_us: 1e15 + 2e10, steps: steps.length });
  const json = (route, body) => route.fulfill({ json: body });
  await page.route(/api\/v1\/programs\/long$/, (route) => json(route, view));
  await page.route(/programs\/long\/decisions/, (route) =>
    json(route, { decisions: [], next: null }),
  );
  await page.route(/programs\/long\/steps/, (route) => {
    const after = Number(new URL(route.request().url()).searchParams.get("after") ?? 0);
    json(route, { steps: steps.slice(after, after + 1000) });
  });
  await page.route(/api\/v1\/events\?program=long/, (route) => {
    const after = Number(new URL(route.request().url()).searchParams.get("after") ?? 0);
    const found = events.filter((event) => event.seq > after).slice(0, 5000);
    json(route, { events: found, next: found.length < 5000 ? null : found.at(-1).seq });
  });
}

/** Zooms and pans by keys; returns the time of each frame in milliseconds. */
async function zoomAndPan() {
  const target = document.querySelector(".spans-scroll");
  const keys = [
    ..."+++++",
    ...Array(20).fill("ArrowRight"),
    ..."-----",
    ...Array(10).fill("ArrowLeft"),
  ];
  const frames = [];
  let last = performance.now();
  for (const key of keys) {
    target.dispatchEvent(
      new KeyboardEvent("keydown", { key, shiftKey: true, bubbles: true, cancelable: true }),
    );
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames;
}
