// Weights of a training job's engines: loaded by treadle while the page is open, and one that fails.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, excessWidth, open, violations } from "./harness.mjs";

const JOB = `weights-${Date.now()}`;

async function told(method, path, body, job = JOB) {
  const init = { method, ...(body ? { body: JSON.stringify(body) } : {}) };
  const answer = await api(`/api/v1/jobs/${job}${path}`, init);
  const text = await answer.text();
  assert.equal(answer.status, 200, `${method} ${path}: ${text}`);
  return JSON.parse(text);
}

/** A job whose first batch was trained. */
async function train() {
  await told("PUT", "", { group_size: 1, batch_groups: 1, rewarded: false, lag_max: 3 });
  await told("POST", "/groups", { groups: [{ group: "g1" }] });
  const program = `${JOB}-a`;
  await told("POST", "/members", { program, group: "g1", wait_s: 10 });
  await told("PUT", `/members/${program}`, { end: "completed", tokens: 1, turns: 1 });
  await told("GET", "/batches/1?wait_s=10");
  await told("POST", "/batches/1/trained", {});
}

test("a version that engines load is followed while it happens", async (t) => {
  // Engines have the weights of one job only.
  t.after(() => api(`/api/v1/jobs/${JOB}/weights`, { method: "DELETE" }));
  await train();
  const { page, done } = await open(`/console/training/${JOB}`);
  await page.getByRole("tab", { name: "Weights" }).click();
  await page.waitForURL(/tab=weights/);
  await page.waitForSelector("text=treadle loads no weights for this job");
  await page.waitForSelector(`text=treadle weights publish /shared/${JOB}/1`);
  assert.deepEqual(await violations(page), []);

  await told("POST", "/weights", { version: 1, folder: "/weights/1" });
  const { last, workers } = await told("GET", "/weights?wait_s=30");
  assert.equal(last.held, workers.length);
  await page.getByText(`version 1 is in service; 0 of ${workers.length}`).waitFor();
  const engines = page.getByRole("table", { name: "Engines and their versions" });
  assert.equal(await engines.getByText("It gets steps.").count(), workers.length);
  const updates = page.getByRole("table", { name: "Updates of weights" });
  const row = updates.getByRole("row", { name: /version 1/ });
  await row.getByText("none", { exact: true }).waitFor();
  // How long it took, and the pause, which only the journal tells: events may come later.
  for (const number of [2, 3]) {
    const cell = row.getByRole("cell").nth(number);
    await cell.filter({ hasText: /^[\d.]+ (ms|s)$/ }).waitFor();
  }
  const cells = await row.getByRole("cell").allInnerTexts();
  assert.equal(cells[6], String(workers.length));

  const lanes = page.getByRole("application", { name: /Versions of engines over time/ });
  await lanes.focus();
  await page.keyboard.press("ArrowRight");
  await page.locator("[aria-live]", { hasText: "worker" }).waitFor();
  await lastSpan(page, "Serves. version 1");
  await row.getByRole("button").press("Enter");
  await page.waitForURL(/updates=/);
  assert.equal(await page.getByLabel("Updates in the lanes").inputValue(), updatesOf(page));
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 375, height: 800 });
  assert.ok((await excessWidth(page)) <= 0);

  await told("DELETE", "/weights");
  await page.waitForSelector("text=treadle no longer loads weights for this job");
  await updates.getByRole("row", { name: /version 1/ }).waitFor();
  await done(/status of 404/);
});

/** Goes to the end of a lane until it is this span: what is read last may come last. */
async function lastSpan(page, words) {
  const found = page.locator("[aria-live]", { hasText: words });
  for (let tries = 0; tries < 40 && (await found.count()) === 0; tries += 1) {
    await page.keyboard.press("End");
    await page.waitForTimeout(250);
  }
  await found.waitFor();
}

const updatesOf = (page) => new URL(page.url()).searchParams.get("updates").replaceAll('"', "");

const weights = (version) => ({
  ...{ version, lineage: 0, name: `0.${version}`, folder: `/weights/${version}` },
});
const TORN = "apply failed: half of the tensors were replaced";

/** Answers of a daemon where the first engine was torn by version 2. */
async function withTorn(page) {
  const held = { state: "held", held: weights(2), fenced: false, cause: null, call: null };
  const behind = [{ worker: 0, cause: TORN }];
  const torn = { ...held, state: "torn", held: weights(1), fenced: true, cause: TORN };
  await page.route(/\/weights(\?.*)?$/, (route) => {
    const last = { weights: weights(2), held: 1, took_s: 75, exposed_s: 61, behind };
    const workers = [
      { ...torn, worker: 0 },
      { ...held, worker: 1 },
    ];
    return route.fulfill({ json: { job: JOB, serving: weights(2), update: null, last, workers } });
  });
  await page.route(/api\/v1\/jobs$/, async (route) => {
    const job = await told("GET", "");
    await route.fulfill({ json: { jobs: [job] } });
  });
  await page.route(/api\/v1\/events\?.*kind=/, (route) => route.fulfill({ json: { events: [] } }));
  await page.route(/api\/v1\/workers$/, async (route) => {
    const json = await (await route.fetch()).json();
    const [first, ...rest] = json.workers;
    await route.fulfill({ json: { ...json, workers: [{ ...first, state: "fenced" }, ...rest] } });
  });
}

test("an engine that was torn says why, what helps, and which version it has", async () => {
  const { page, done } = await open(`/console/training/${JOB}?tab=weights`, { prepare: withTorn });
  const engines = page.getByRole("table", { name: "Engines and their versions" });
  const row = engines.getByRole("row", { name: /worker 0/ });
  await row.getByText("torn, fenced").waitFor();
  await row.getByText("version 1", { exact: true }).waitFor();
  await row.getByText("Apply failed: half of the tensors were replaced.").waitFor();
  await row.getByText(/loads version 2 there as a whole/).waitFor();
  const updates = page.getByRole("table", { name: "Updates of weights" });
  // The journal has nothing of it: only what the daemon says is shown.
  const cells = await updates
    .getByRole("row", { name: /version 2/ })
    .getByRole("cell")
    .allInnerTexts();
  assert.deepEqual(cells.slice(1, 7), ["–", "1 min 15 s", "–", "–", "1 min 1 s", "1"]);
  assert.match(cells[7], /worker 0: apply failed/);
  assert.deepEqual(await violations(page), []);

  await row.getByRole("link", { name: "worker 0" }).click();
  await page.waitForURL(/workers\?worker=/);
  const problem = page.getByRole("status").filter({ hasText: "because of its weights" });
  await problem.getByText(/it has version 1 of/).waitFor();
  await problem.getByText(/half of the tensors/).waitFor();
  await page.locator("td .badge", { hasText: "fenced" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await problem.getByRole("link").click();
  await page.waitForURL(new RegExp(`training/${JOB}\\?tab=weights`));
  await page.unrouteAll({ behavior: "wait" });
  await done();
});

/** Calls of a trainer to all engines, as a client of vLLM makes them. */
async function drive(version, job = JOB) {
  const call = (path, body) => told("POST", `/engine${path}`, body, job);
  await call("/pause?mode=keep");
  await call("/start_weight_update");
  await call("/update_weights", { update_info: { names: ["w"] } });
  await call("/finish_weight_update", { weight_version: version });
  await call("/resume");
}

test("an update that a trainer drives has lanes, phases and a cost", async (t) => {
  t.after(() => api(`/api/v1/jobs/${JOB}/weights`, { method: "DELETE" }));
  await drive("5");
  const { workers } = await told("GET", "/weights");
  const { page, done } = await open(`/console/training/${JOB}?tab=weights`);
  await page.getByText(`version 5 is in service; 0 of ${workers.length}`).waitFor();
  const updates = page.getByRole("table", { name: "Updates of weights" });
  const row = updates.getByRole("row", { name: /version 5/ });
  await row.getByText("by its trainer").waitFor();
  const cells = await row.getByRole("cell").allInnerTexts();
  for (const cost of cells.slice(2, 6)) assert.match(cost, /^[\d.]+ (ms|s)$/);
  assert.equal(cells[6], String(workers.length));
  await row.getByRole("button").press("Enter");
  await page.waitForURL(/updates=/);
  await page.locator(".legend", { hasText: "Waits for trainer" }).waitFor();
  const lanes = page.getByRole("application", { name: /Versions of engines over time/ });
  await lanes.focus();
  await page.keyboard.press("ArrowRight");
  await lastSpan(page, "Serves. version 5");
  assert.deepEqual(await violations(page), []);
  await done();
});

test("a job that its trainer never declares has a page of its weights", async (t) => {
  const job = `${JOB}-undeclared`;
  t.after(() => api(`/api/v1/jobs/${job}/weights`, { method: "DELETE" }));
  await drive("3", job);
  const { page, done } = await open(`/console/training/${job}`);
  await page.getByText("It is not declared as a training job").waitFor();
  await page.getByText("version 3 is in service").waitFor();
  const updates = page.getByRole("table", { name: "Updates of weights" });
  await updates.getByRole("row", { name: /version 3/ }).waitFor();
  assert.deepEqual(await violations(page), []);
  await done(/status of 404/);
});
