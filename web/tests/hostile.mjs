// Text of clients, tools, engines and policies is text and nothing else.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, excessWidth, open, violations } from "./harness.mjs";

/** ANSI, HTML, right-to-left letters and an override to them, a space of no width. */
const TEXT =
  '\u001b[31m<img src=x onerror="window.hit=1"><script>window.hit=1</script>\u202e\u05d2\u200b ';
const SIZE = 1_000_000;
const MUCH = TEXT.repeat(Math.ceil(SIZE / TEXT.length));
const ELEMENTS_MAX = 10_000;

/** The page shows `where` what can't be seen by name, runs nothing of it, and keeps its shape. */
async function isText(page, where = "main") {
  const shown = page.locator(where).first();
  await shown.getByText("RLO").first().waitFor();
  await shown.getByText("ZWSP").first().waitFor();
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.ok((await excessWidth(page)) <= 0, `${page.url()} is too wide`);
  const size = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(size < ELEMENTS_MAX, `${size} elements in the page`);
}

/** Runs one step of a program. */
async function step(program_id, content) {
  const messages = [{ role: "user", content }];
  const body = JSON.stringify({ model: "treadle-sim", program_id, max_tokens: 4, messages });
  const answer = await api("/v1/chat/completions", { method: "POST", body });
  assert.equal(answer.status, 200, await answer.text());
}

test("a hostile name is text", async () => {
  // The daemon takes no names with control characters.
  const name = `${TEXT.slice(1)}${"w".repeat(300)}`;
  await step(name, TEXT);
  for (const path of [
    "/console/programs?job=default",
    `/console/programs/${encodeURIComponent(name)}?tab=steps`,
  ]) {
    const { page, done } = await open(path);
    await isText(page);
    await done();
  }
});

const HOSTILE_MESSAGE = ".message .text-block:has-text('window.hit')";

test("a hostile message of 1 MB is text, cut until the user expands it", async () => {
  // Engines limit text: most of it is in a part that engines do not count as text.
  const name = `hostile-${Date.now()}`;
  const image = { type: "image_url", image_url: { url: `data:image/png;base64,${MUCH}` } };
  await step(name, [{ type: "text", text: TEXT }, image]);
  const path = `/console/programs/${name}?tab=steps`;
  const { page, done } = await open(path);
  await page.locator(".table-row.body").first().click();
  await page.waitForURL(/step=/);
  await isText(page, HOSTILE_MESSAGE);
  await page.reload();
  await isText(page, HOSTILE_MESSAGE);
  await page.getByRole("button", { name: "more characters" }).first().click();
  await page.check("text=As sent");
  await isText(page, ".text-block:has-text('image_url')");
  assert.deepEqual(await violations(page), []);
  await done();
});

test("a hostile output of 1 MB is text", async () => {
  const command = ["sh", "-c", `yes "$0" | head -c ${SIZE}`, TEXT];
  const body = JSON.stringify({ kind: "hostile", run: { process: { command } } });
  const answer = await api("/api/v1/actions", { method: "POST", body });
  const { action } = await answer.json();
  const { page, done } = await open(`/console/actions?action=${action}`);
  await page.waitForSelector("text=Output, ");
  await isText(page, ".text-block");
  await page.getByRole("button", { name: "more characters" }).first().click();
  await isText(page, ".text-block");
  assert.deepEqual(await violations(page), []);
  await done();
});

const DIGEST = "ab".repeat(32);

/** A policy all of whose texts are hostile, bound and in the library. */
async function withHostilePolicy(page) {
  const plugin = {
    ...{ name: TEXT, version: TEXT, summary: MUCH, signed_by: TEXT, world: "eviction" },
    ...{ digest: DIGEST, size_bytes: 1, columns: [TEXT], functions: [TEXT] },
    config_schema: { properties: { [TEXT]: { type: "string", description: MUCH, default: TEXT } } },
    statistics: {
      ...{ calls: 1, rows: 1, fallbacks: 0, compute_us: 1, slowest_us: 1, restarts: 0 },
      ...{ memory_bytes: 1, latency_counts: [1, 1], latency_bounds_us: [5], deadline_ms: 2 },
      ...{ faults: { timeout: 1 }, latest_fault: MUCH },
    },
  };
  const policy = `${TEXT}@1+${DIGEST.slice(0, 12)}`;
  const binding = {
    ...{ world: "eviction", job: TEXT, policy, previous: policy },
    on_record: { active: { config: { [TEXT]: MUCH }, since_us: 1 } },
  };
  const line = { number: 1, now_ms: 1, level: TEXT, message: MUCH, dropped_before: 0 };
  const answers = [
    [/v1\/plugins$/, { plugins: [plugin] }],
    [/v1\/plugins\/[0-9a-f]+$/, plugin],
    [/v1\/plugins\/[0-9a-f]+\/logs/, { lines: [line], dropped: 1 }],
    [/v1\/bindings$/, { bindings: [binding], statistics: null }],
  ];
  for (const [path, json] of answers) await page.route(path, (route) => route.fulfill({ json }));
}

test("a hostile policy is text", async () => {
  const own = `/console/policies/${DIGEST}`;
  const paths = [
    "/console/policies",
    "/console/policies?tab=plugins",
    ...["bind", "calls", "log", "about"].map((tab) => `${own}?tab=${tab}`),
  ];
  for (const path of paths) {
    const { page, done } = await open(path, { prepare: withHostilePolicy });
    await isText(page);
    assert.deepEqual(await violations(page), [], path);
    await done();
  }
});

test("an address that is no text is no page", async () => {
  const { page, done } = await open("/console/programs/%E0%A4");
  await page.waitForSelector("main >> text=There is no such page");
  await done();
});
