// What the console shows of steps that an engine refuses, fails or counts in part, and of subagents.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { consoleAt } from "./browser.mjs";
import { startDaemon } from "./daemon.mjs";
import { answerWith, MODEL, startEngine } from "./engine.mjs";
import { given, open, violations } from "./harness.mjs";

const OWN = { skip: !existsSync(given.binary) };

/** Asks until there is an answer. */
async function until(ask) {
  for (let looks = 0; looks < 300; looks += 1) {
    const found = await ask();
    if (found) return found;
    await sleep(100);
  }
  return assert.fail("it did not come to be so");
}

/** A daemon with a simulated engine and the stand-in, which serve a model each; how to run steps of
 *  its programs, read its answers and open its console. */
async function start(context) {
  const folder = mkdtempSync(join(tmpdir(), "treadle-console-"));
  const engine = await startEngine();
  const ends = [() => rmSync(folder, { recursive: true }), engine.close];
  context.after(async () => {
    for (const end of ends.reverse()) await end();
  });
  const { url, kill } = await startDaemon(given.binary, folder, {
    set: { "payloads.keep": "all" },
  });
  ends.push(kill);
  const { base, close } = await consoleAt({ base: given.base && url, daemon: url });
  ends.push(close);
  const post = (path, body) =>
    fetch(url + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const read = async (path) => (await fetch(url + path)).json();
  const added = { url: engine.url, kind: "openai", capacity_tokens: 100_000 };
  assert.ok((await post("/api/v1/workers", added)).ok);
  await until(async () => {
    const { workers } = await read("/api/v1/workers");
    return workers.length === 2 && workers.every(({ model }) => model);
  });
  const send = async (program_id, more = {}) => {
    const messages = [{ role: "user", content: "go on" }];
    const body = { model: MODEL, program_id, max_tokens: 4, messages, ...more };
    const answer = await post("/v1/chat/completions", body);
    await answer.text();
    return answer.status;
  };
  const look = (path) => open(path, { base, token: "" });
  return { engine, read, send, look };
}

/** A figure of a page, by its name. */
const figure = (page, name) => page.locator(".stat", { hasText: name });

/** Opens the overview, and waits for its figures before any step. */
async function overviewBefore(look) {
  const { page, done } = await look("/console/");
  await figure(page, "Programs").getByText("0 opened").waitFor();
  return { page, done };
}

const refusal = (code, message) => ({ status: code, body: { error: { message, code } } });

test(
  "a request that an engine refuses is no failure of it, and leaves no program at work",
  OWN,
  async (context) => {
    const { engine, send, look } = await start(context);
    const { page, done } = await overviewBefore(look);
    engine.answer = refusal(400, "max_tokens is odd");
    for (const program of ["refused-1", "refused-2"]) assert.equal(await send(program), 400);
    // One that does fail shows that failures are counted.
    engine.answer = refusal(500, "the sampler met NaN");
    assert.equal(await send("broken"), 500);
    const alarm = page.locator(".alarms li", { hasText: "Engines failed steps" });
    await alarm.getByText(/^1 step for good/).waitFor();
    assert.equal(await page.locator(".alarms li", { hasText: "Steps were refused" }).count(), 0);
    await figure(page, "Programs").getByText("3 opened").waitFor();
    assert.equal(await figure(page, "Programs").locator(".stat-value").innerText(), "1");

    await alarm.getByRole("link", { name: "Look" }).click();
    await page.locator(".table-row.body", { hasText: "broken" }).waitFor();
    assert.equal(await page.locator(".table-row.body").count(), 1);
    await page.click("nav >> text=Programs");
    for (const program of ["refused-1", "refused-2"]) {
      const row = page.locator(".table-row.body", { hasText: program });
      await row.locator(".state", { hasText: "Finished" }).waitFor();
    }
    await page.click("text=refused-1");
    await page.getByRole("tab", { name: "Steps" }).click();
    await page.locator(".steps .table-row.body").click();
    await page.locator(".facts dd", { hasText: "max_tokens is odd" }).waitFor();
    await done();
  },
);

test("a failed step has its request and the engine's words", OWN, async (context) => {
  const { engine, read, send, look } = await start(context);
  engine.answer = refusal(500, "the sampler met NaN");
  assert.equal(await send("broken"), 500);
  await until(async () => {
    const { steps } = await read("/api/v1/programs/broken/steps");
    const path = `/api/v1/programs/broken/steps/${steps[0].step}/bodies`;
    return (await read(path)).bodies.length === 2;
  });
  const { page, done } = await look("/console/programs/broken?tab=steps");
  const row = page.locator(".steps .table-row.body");
  await row.locator(".badge.bad", { hasText: "failed" }).waitFor();
  await row.click();
  const cause = page.locator(".facts dd", { hasText: "500 Internal Server Error" });
  await cause.getByText("the sampler met NaN").waitFor();
  await page.locator(".message .text-block", { hasText: "go on" }).waitFor();
  await page.locator(".text-block", { hasText: '"message":"the sampler met NaN"' }).waitFor();
  assert.deepEqual(await violations(page), []);
  await done();
});

/** The cells of a column of steps, by its head. */
async function column(page, head) {
  const heads = await page.locator(".steps [role=columnheader]").allTextContents();
  const at = heads.indexOf(head) + 1;
  return page.locator(`.steps .table-row.body [role=cell]:nth-child(${at})`).allTextContents();
}

test(
  "cached tokens that an engine does not count are unknown, and no misses",
  OWN,
  async (context) => {
    const { engine, send, look } = await start(context);
    const overview = await overviewBefore(look);
    const unknown = answerWith({ prompt_tokens: 900, completion_tokens: 3 });
    const known = answerWith({
      ...{ prompt_tokens: 1000, completion_tokens: 3 },
      prompt_tokens_details: { cached_tokens: 900 },
    });
    for (const [program, answer] of [
      ["silent", unknown],
      ["mixed", unknown],
      ["mixed", known],
    ]) {
      engine.answer = answer;
      assert.equal(await send(program), 200);
    }
    await figure(overview.page, "Found in cache").getByText("90 %").waitFor();
    await overview.done();

    const mixed = await look("/console/programs/mixed?tab=steps");
    const found = figure(mixed.page, "Prompt found in cache");
    await found.getByText("900 of 1k tokens").waitFor();
    assert.equal(await found.locator(".stat-value").innerText(), "90 %");
    assert.deepEqual(await column(mixed.page, "In cache"), ["–", "90 %"]);
    await mixed.done();

    const { page, done } = await look("/console/programs/silent?tab=steps");
    const none = figure(page, "Prompt found in cache");
    await none.getByText("the engine does not say").waitFor();
    assert.equal(await none.locator(".stat-value").innerText(), "–");
    await page.locator(".steps .table-row.body").click();
    const words = "900 tokens, the engine does not say how many were in the cache";
    await page.locator(".facts dd", { hasText: words }).waitFor();
    await done();
  },
);

test(
  "a subagent is drawn from its beginning on, and not in its present state",
  OWN,
  async (context) => {
    const { read, send, look } = await start(context);
    const model = "treadle-sim";
    assert.equal(await send("parent", { model }), 200);
    assert.equal(await send("child", { model, parent_program_id: "parent" }), 200);
    const child = await read("/api/v1/programs/child");
    assert.equal(child.phase, "acting");
    const { page, done } = await look("/console/programs/parent");
    await page.locator(".legend-item", { hasText: /^Life$/ }).waitFor();
    await page.getByRole("application", { name: /^Timeline of the program/ }).focus();
    await page.keyboard.press("ArrowRight");
    const words = page.locator(".spans [aria-live]");
    await words.filter({ hasText: /\w/ }).waitFor({ state: "attached" });
    // Its lane is below those of the parent's own steps.
    for (let lanes = 0; lanes < 8 && !/Subagents/.test(await words.textContent()); lanes += 1) {
      await page.keyboard.press("ArrowDown");
    }
    assert.match(await words.textContent(), /^Life\. child.* so far from .*Subagents, 1 of 1$/);
    assert.deepEqual(await violations(page), []);
    await done();
  },
);
