// Tests of the built console over a daemon with a running workload. They change it: they bind a
// policy, make and revoke a token, and open a program with a hostile name.
//
//   npm run test:e2e -- --daemon http://127.0.0.1:8300 --token tr_… --policy policy.wasm
//   npm run test:e2e -- --base http://127.0.0.1:8300 …     where the daemon serves the console
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { serve } from "../scripts/serve.mjs";
import { complaints, consoleAt, contextOf, launch, options, someProgram } from "./browser.mjs";

const given = options();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TIMEOUT_MS = 20_000;
let browser;
let base;
let close;
let program;

before(async () => {
  ({ base, close } = await consoleAt(given));
  browser = await launch();
  program = await someProgram(base, given.token, "status=finished&sort=-steps&limit=1");
  assert.ok(program, "the daemon needs a workload: no program has finished yet");
});

after(async () => {
  await browser?.close();
  close?.();
});

/** Opens a page of the console in a browser of its own. */
async function open(path, how = {}) {
  const context = await contextOf(browser, { token: given.token, ...how });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const found = complaints(page);
  await page.goto((how.base ?? base) + path);
  return { page, found, done: () => context.close() };
}

function api(path, init = {}, token = given.token) {
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  return fetch(base + path, {
    ...init,
    headers: { "content-type": "application/json", ...authorization, ...init.headers },
  });
}

async function violations(page) {
  await page.evaluate(axe);
  const { violations: found } = await page.evaluate(() => window.axe.run());
  return found.map(
    (one) =>
      `${one.id}: ${one.nodes
        .map((node) => node.html)
        .slice(0, 3)
        .join(" | ")}`,
  );
}

/** What a page shows once it has its data. */
const PAGES = () => {
  const name = encodeURIComponent(program.program_id);
  return {
    "/console/": "text=Programs by state",
    "/console/programs": ".table-row.body",
    [`/console/programs/${name}`]: ".decision",
    [`/console/programs/${name}?tab=steps`]: ".steps .table-row.body",
    [`/console/programs/${name}?tab=events`]: ".fixed-table .table-row.body",
    "/console/lanes": ".lanes canvas",
    "/console/workers?worker=0": "text=Where its memory went",
    "/console/policies": ".binding",
    "/console/policies?tab=plugins": "table >> text=foresight-eviction",
    "/console/policies/foresight-eviction": "text=Bind as shadow",
    "/console/policies/foresight-eviction?tab=calls": "text=Time for an answer",
    "/console/what-if": "text=New run",
    "/console/events": ".table-row.body",
    "/console/admin": "text=Make a token",
    "/console/admin?tab=audit": ".fixed-table .table-row.body",
    "/console/sign-in": "text=Where do I get one?",
    "/console/nowhere": "text=There is no such page",
  };
};

for (const theme of ["dark", "light"]) {
  test(`every page is quiet and accessible, ${theme}`, async () => {
    const problems = [];
    for (const [path, sign] of Object.entries(PAGES())) {
      const { page, found, done } = await open(path, { theme });
      await page.waitForSelector(sign).catch((error) => problems.push(`${path}: ${error.message}`));
      problems.push(...(await violations(page)).map((one) => `${path}: ${one}`));
      problems.push(...found.map((one) => `${path}: ${one}`));
      await done();
    }
    assert.deepEqual(problems, []);
  });
}

test("pages for people on call fit 375 px", async () => {
  const name = encodeURIComponent(program.program_id);
  for (const path of [
    "/console/",
    "/console/workers",
    "/console/programs",
    `/console/programs/${name}`,
  ]) {
    const { page, done } = await open(path, { width: 375, height: 800 });
    await page.waitForSelector("h1");
    await page.waitForTimeout(1000);
    const over = await page.evaluate(() => {
      const main = document.querySelector("main");
      return main.scrollWidth - main.clientWidth;
    });
    assert.ok(over <= 0, `${path} is ${over} px too wide`);
    await done();
  }
});

test("a program can be watched as it is paused, and why can be read", async () => {
  const paused = await someProgram(base, given.token, "status=paused&limit=1");
  const { page, done } = await open(`/console/programs/${encodeURIComponent(paused.program_id)}`);
  await page.waitForSelector(".decision");
  const words = await page.locator(".decision").first().innerText();
  assert.match(words, /tokens/);
  assert.match(words, /by \S+@\d/);
  await done();
});

test("the program with most steps is found by sorting, and only rows in sight are in the page", async () => {
  const { page, done } = await open("/console/programs");
  await page.waitForSelector(".table-row.body");
  await page.click("role=columnheader >> text=Steps");
  await page.waitForURL(/sort=-steps/);
  await page.waitForTimeout(1500);
  const steps = await page.locator(".table-row.body .num:nth-child(5)").allInnerTexts();
  const numbers = steps.map(Number);
  assert.deepEqual(
    numbers,
    [...numbers].sort((a, b) => b - a),
  );
  assert.ok((await page.locator(".table-row.body").count()) < 60);
  await page.locator(".table-row.body").first().click();
  await page.waitForSelector(".spans canvas");
  await done();
});

test("the palette leads anywhere by keyboard", async () => {
  const { page, done } = await open("/console/");
  await page.waitForSelector("h1");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("worker 1");
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("Enter");
  await page.waitForURL(/workers\?worker=/);
  await page.keyboard.press("Control+k");
  await page.keyboard.type(program.program_id);
  await page.keyboard.press("Enter");
  await page.waitForURL(/programs\//);
  await done();
});

test("a hostile name is text and nothing else", async () => {
  const name = `<img src=x onerror="window.hit=1">\u202egnp\u200b${"w".repeat(300)}`;
  await api("/v1/chat/completions", {
    method: "POST",
    body: JSON.stringify({
      model: "treadle-sim",
      program_id: name,
      max_tokens: 4,
      messages: [{ role: "user", content: "<script>window.hit=1</script>\u001b[31m" }],
    }),
  });
  for (const path of [
    "/console/programs?job=default",
    `/console/programs/${encodeURIComponent(name)}?tab=steps`,
  ]) {
    const { page, found, done } = await open(path);
    await page.waitForSelector("text=RLO");
    await page.waitForSelector("text=ZWSP");
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(found, []);
    await done();
  }
});

test("a bad policy is refused, with the check that failed and the remedy", async () => {
  const { page, found, done } = await open("/console/policies");
  await page.click("text=Upload a policy");
  await page.setInputFiles("input[type=file]", {
    name: "bad.wasm",
    mimeType: "application/wasm",
    buffer: Buffer.from("no wasm"),
  });
  await page.waitForSelector(".checks > .bad");
  assert.match(await page.locator(".checks > .bad").innerText(), /WebAssembly/);
  assert.match(await page.locator(".reason").innerText(), /upload the \.wasm file/);
  assert.deepEqual(await violations(page), []);
  // The browser itself reports every answer of the kind 4xx.
  assert.deepEqual(
    found.filter((one) => !/status of 400/.test(one)),
    [],
  );
  await done();
});

test("a good policy is stored, shadowed, promoted and rolled back", {
  skip: !given.policy,
}, async () => {
  const { page, done } = await open("/console/policies");
  await page.click("text=Upload a policy");
  await page.setInputFiles("input[type=file]", given.policy);
  await page.waitForSelector(".checks .good:nth-child(7)");
  await page.click("text=Store it");
  await page.waitForURL(/policies\/[0-9a-f]{64}/);
  await page.click("text=Bind as shadow");
  await page.waitForSelector(".notice.good >> text=is shadow");
  await page.check("text=Canary >> xpath=ancestor::label >> input");
  await page.click("text=Bind as canary");
  await page.waitForSelector(".notice.good >> text=is canary");
  await page.goto(`${base}/console/policies`);
  await page.locator(".role", { hasText: "canary" }).getByText("Promote").click();
  await page.getByRole("dialog").getByText("Promote", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=is active now");
  await page.locator(".role", { hasText: "before:" }).getByText("Roll back").click();
  await page.getByRole("dialog").getByText("Roll back", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=is active again");
  await done();
});

test("a timeline of 40,000 events is smooth", async () => {
  const context = await contextOf(browser, { token: given.token });
  const page = await context.newPage();
  await seedLongProgram(page);
  const begun = Date.now();
  await page.goto(`${base}/console/programs/long`);
  await page.waitForSelector(".spans canvas");
  await page.waitForTimeout(500);
  const frames = await page.evaluate(zoomAndPan);
  const sorted = frames.sort((a, b) => a - b);
  const p95 = sorted[Math.floor(sorted.length * 0.95)];
  console.log(
    `40,000 events: shown after ${Date.now() - begun} ms, ${frames.length} frames, p95 ${p95.toFixed(1)} ms`,
  );
  const size = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(size < 1500, `${size} elements in the page`);
  assert.ok(p95 < 100, `a frame takes ${p95} ms`);
  await context.close();
});

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
  const view = { ...program, program_id: "long", ended: "released", status: "finished" };
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
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames;
}

test("a what-if run is compared", async () => {
  const { page, done } = await open("/console/what-if");
  await page.selectOption("[aria-label=Window]", "300");
  await page.click("role=button[name=Run]");
  await page.waitForSelector("text=As recorded", { timeout: 90_000 });
  await page.waitForSelector("td >> text=Makespan");
  assert.deepEqual(await violations(page), []);
  await done();
});

test("a session ends when its token is revoked", { skip: !given.token }, async () => {
  const answer = await api("/api/v1/tokens", {
    method: "POST",
    body: JSON.stringify({ name: "e2e", scope: "viewer" }),
  });
  const { id, secret } = await answer.json();
  const { page, done } = await open("/console/sign-in", { token: "" });
  await page.fill("input[type=password]", secret);
  await page.click("form >> role=button[name='Sign in']");
  await page.waitForSelector("text=viewer ·");
  await api(`/api/v1/tokens/${id}`, { method: "DELETE" });
  await page.waitForSelector("text=Your token is no longer accepted", { timeout: 30_000 });
  await done();
});

test("the daemon is lost and regained without a reload", {
  skip: Boolean(given.base),
}, async () => {
  let server = await serve(given.daemon, 0);
  const { port } = server.address();
  const own = `http://127.0.0.1:${port}`;
  const { page, done } = await open("/console/events", { base: own });
  await page.waitForSelector(".connection.live");
  await page.evaluate(() => {
    window.mark = 1;
  });
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await page.waitForSelector(".connection.lost");
  server = await serve(given.daemon, port);
  await page.waitForSelector(".connection.live");
  assert.equal(await page.evaluate(() => window.mark), 1);
  await page.waitForSelector(".table-row.body");
  await done();
  server.closeAllConnections();
  server.close();
});
