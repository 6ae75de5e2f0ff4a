// A training job: who waits, what was lost, its groups, a batch with its members, and a sample.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, excessWidth, open, violations } from "./harness.mjs";

const JOB = `training-${Date.now()}`;

async function told(method, path, body, job = JOB) {
  const answer = await api(`/api/v1/jobs/${job}${path}`, { method, body: JSON.stringify(body) });
  const text = await answer.text();
  assert.equal(answer.status, 200, `${method} ${path}: ${text}`);
  return JSON.parse(text);
}

/** Begins a member of a group and reports its end. */
async function member(group, name, report, job = JOB) {
  const program = `${job}-${name}`;
  await told("POST", "/members", { program, group, wait_s: 10 }, job);
  await told("PUT", `/members/${program}`, { turns: 1, ...report }, job);
}

/** Two steps with nothing in common. */
const BROKEN = {
  steps: [1, 9].map((id) => ({
    ...{ prompt: Array(4).fill(id), output: Array(6).fill(5), logprobs: Array(6).fill(-1) },
  })),
};

/** The job with a batch; a second group can't begin before new weights. */
async function declare() {
  const settings = { group_size: 2, batch_groups: 1, lag_max: 0, pipeline: 0 };
  await told("PUT", "", settings);
  await told("POST", "/groups", { groups: [{ group: "p1", domain: "math" }, { group: "p2" }] });
  await member("p1", "lost", { end: "environment_failed", tokens: 5 });
  await member("p1", "a", { end: "completed", reward: 1, sample: BROKEN });
  await member("p1", "b", { end: "truncated", reward: 0, tokens: 8 });
  assert.equal((await told("GET", "/batches/1?wait_s=10")).ready, true);
}

async function train() {
  await told("POST", "/batches/1/trained", {});
  await told("POST", "/versions", { version: 1 });
  await member("p2", "c", { end: "completed", reward: 1, tokens: 1 });
  await member("p2", "d", { end: "completed", reward: 1, tokens: 1 });
}

test("a training job is followed, and no batch is cut by looking", async () => {
  await declare();
  const { page, done } = await open("/console/training");
  const row = page.locator("tr.row-link", { hasText: JOB });
  await row.getByText("rollouts for weights").waitFor();
  assert.deepEqual(await violations(page), []);
  await row.getByRole("link").click();
  await page.waitForURL(new RegExp(`training/${JOB}$`));
  await page.waitForSelector("text=The rollouts wait for weights");
  await page.waitForSelector("td >> text=Lost: environment failed");
  await page.getByRole("row", { name: "Breaks: other 1" }).waitFor();
  await page.getByRole("row", { name: "math 3 2 2 1 10 / 10 0.5 / 0.5" }).waitFor();

  await train();
  const batch = page.locator("tr.row-link", { hasText: "batch 1" });
  await batch.getByText("trained", { exact: true }).waitFor();
  const figures = await batch.locator("td").allInnerTexts();
  assert.deepEqual(figures.slice(2), ["1", "2", "0.5", "1", "10", "0"]);
  // What was lost before it is only in the journal.
  const lost = page.locator("figure", { has: page.getByLabel("Lost members by batch") });
  await lost.getByText("Failed1").waitFor();
  const lines = page.getByLabel("Lines", { exact: true });
  await lines.selectOption("Over time");
  await page.waitForURL(/axis=time/);
  await page.getByLabel("Lag of groups over time").waitFor();
  await lines.selectOption("By version");
  await page.getByLabel("Lost members by version").waitFor();
  const groups = page.getByRole("table", { name: "Groups in no batch" });
  await groups.getByRole("row", { name: "p2" }).getByText("ready").waitFor();
  await groups.getByRole("row", { name: "p2" }).click();
  const openMembers = page.getByRole("table", { name: "Members of the group" });
  const openMember = openMembers.getByRole("row", { name: `${JOB}-c` });
  await openMember.getByText("completed").waitFor();
  const cells = await openMember.getByRole("cell").allInnerTexts();
  assert.deepEqual(cells.slice(1, 7), ["completed", "–", "1", "1", "1", "1"]);

  await batch.getByRole("button").click();
  await page.waitForURL(/batch=/);
  const members = page.getByRole("table", { name: "Members of batch 1" });
  const truncated = members.getByRole("row", { name: `${JOB}-b` });
  await truncated.getByText("truncated").waitFor();
  const link = await truncated.getByRole("link").getAttribute("href");
  assert.equal(link, `/console/programs/${JOB}-b`);
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 375, height: 800 });
  assert.ok((await excessWidth(page)) <= 0);
  assert.equal((await told("GET", "")).next_batch, 2);
  await done();
});

test("programs are listed by group, with the spread of rewards and the straggler", async () => {
  const settings = { group_size: 4, batch_groups: 1, lag_max: 9, pipeline: 1 };
  const grouped = `${JOB}-grouped`;
  await told("PUT", "", settings, grouped);
  await told("POST", "/groups", { groups: [{ group: "g1" }, { group: "g2" }] }, grouped);
  await member("g1", "low", { end: "completed", reward: 0.25, tokens: 5 }, grouped);
  await member("g1", "high", { end: "completed", reward: 1, tokens: 7 }, grouped);
  await member("g1", "out", { end: "engine_failed" }, grouped);
  for (const name of ["first", "second"]) {
    const program = `${grouped}-${name}`;
    await told("POST", "/members", { program, group: "g1", wait_s: 10 }, grouped);
  }
  const { page, done } = await open("/console/programs");
  await page.getByLabel("Job").selectOption("");
  await page.getByRole("button", { name: "By group" }).click();
  await page.getByLabel("Training job").selectOption(grouped);
  const groups = page.getByRole("table", { name: "Groups" });
  const row = groups.getByRole("row", { name: "g1" });
  await row.getByRole("img", { name: "Rewards: 2 from 0.25 to 1, mean 0.625" }).waitFor();
  await row.getByText("2 of 4").waitFor();
  await row.getByRole("link", { name: `${grouped}-first` }).waitFor();
  assert.equal(await groups.getByText("g2", { exact: true }).count(), 0);

  await row.getByText("g1").click();
  await page.waitForURL(/group=g1/);
  await groups
    .getByRole("row", { name: `${grouped}-out` })
    .getByText("engine failed")
    .waitFor();
  const second = groups.getByRole("row", { name: `${grouped}-second` });
  await second.getByText("running").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 375, height: 800 });
  assert.ok((await excessWidth(page)) <= 0);
  await page.getByRole("button", { name: "By group" }).click();
  await page.getByLabel("Training job").waitFor({ state: "detached" });
  await page.getByLabel("Find in the names of programs").waitFor();
  await done();
});

test("what domains need is compared by class of hardware, with a note on a wrong choice", async () => {
  const needs = (name, seconds) => ({
    ...{ class: name, members: 40, turns: 3, prefill_tokens: 900, output_tokens: 5000, seconds },
  });
  const note = "the affinity looks wrong: exchanging the classes of both would gain 1.94 times";
  const domains = {
    math: needs("h20", { h20: 28, h800: 14.4 }),
    "<b>code</b>": needs(null, { h800: 3 }),
  };
  const profile = { domains, proposed: { math: "h800" }, note };
  const prepare = (page) =>
    page.route(new RegExp(`jobs/${JOB}$`), async (route) => {
      const json = await (await route.fetch()).json();
      await route.fulfill({ json: { ...json, profile } });
    });
  const { page, done } = await open(`/console/training/${JOB}`, { prepare });
  const table = page.getByRole("table", { name: "What members of each domain need" });
  const math = table.getByRole("row", { name: /math/ });
  await math.waitFor();
  const cells = await math.getByRole("cell").allInnerTexts();
  assert.deepEqual(
    cells.map((cell) => cell.replace(/\s+/g, " ")),
    ["math", "h20 h800 if it is chosen again", "40", "3", "900", "5k", "28.0 s", "14.4 s"],
  );
  await table
    .getByRole("row", { name: /<b>code/ })
    .getByText("any class")
    .waitFor();
  await page
    .getByRole("status")
    .getByText(/^The affinity looks wrong/)
    .waitFor();
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 375, height: 800 });
  assert.ok((await excessWidth(page)) <= 0);
  await page.unrouteAll({ behavior: "wait" });
  await done();
});

const TOKENS = 100_000;
const PROMPT = 5;

/** A member's captured steps: one that is trained and is long, and one that is not trained. */
function captured(program) {
  const ids = (length) => Array.from({ length }, (_, at) => (at * 7919) % 150_000);
  const output = ids(TOKENS - PROMPT);
  const step = (number, prompt, output) => ({
    ...{ number, prompt, output, version: 3, delivery: "complete" },
    logprobs: output.map((_, at) => -(at % 6)),
    versions: [
      { start: 0, end: 3, version: 3, newest: 3 },
      { start: 3, end: output.length, version: 3, newest: 4 },
    ],
  });
  return {
    logprobs: "temperature",
    ...{ program, group: "p3", end: null, reward: null },
    ...{ sample: `sha256:${"ab".repeat(32)}`, breaks: [{ step: 1, kind: "edited" }] },
    steps: [step(0, ids(PROMPT), output), step(1, ids(9), ids(2))],
    sequences: [
      { ids: [...ids(PROMPT), ...output], sampled: [{ step: 0, start: PROMPT, end: TOKENS }] },
    ],
    excluded: [{ step: 1, reason: "its client asked again" }],
  };
}

test("the tokens of a member are shown page by page", async () => {
  const program = `${JOB}-sampled`;
  await told("PUT", "", { group_size: 1, batch_groups: 1, lag_max: 9, capture: "tokens" });
  await told("POST", "/groups", { groups: [{ group: "p3" }] });
  await told("POST", "/members", { program, group: "p3", wait_s: 10 });
  const steps = /members\/[^/]+\/steps(\?.*)?$/;
  const { page, done } = await open(`/console/training/${JOB}`);
  const groups = page.getByRole("table", { name: "Groups in no batch" });
  await groups.getByRole("row", { name: "p3" }).click();
  const members = page.getByRole("table", { name: "Members of the group" });
  await members.getByRole("row", { name: program }).getByRole("link", { name: "tokens" }).click();
  await page.waitForSelector("text=No captured tokens");

  await page.route(steps, (route) => route.fulfill({ json: captured(program) }));
  await page.reload();
  await page.waitForSelector("text=group p3");
  await page.waitForSelector("text=of 100,000 in context");
  await page.waitForSelector("text=99,992 tokens mixed");
  await page.waitForSelector("text=After the temperature, before top-k.");
  const cells = page.locator(".token");
  assert.equal(await cells.count(), 2000);
  await page.getByRole("button", { name: "Next" }).click();
  await page.locator("[data-at='2000']").waitFor();
  assert.equal(await cells.count(), 2000);

  const turns = page.getByRole("table", { name: "Turns" });
  await turns.getByText("not trained: its client asked again").click();
  await page.waitForURL(/of=step-1/);
  assert.equal(await cells.count(), 11);
  assert.deepEqual(await violations(page), []);
  await turns.getByText("5 prompt").click();
  await page.locator(`[data-at='${PROMPT}']:focus`).waitFor();
  await page.keyboard.press("ArrowRight");
  await page.locator(".token-about", { hasText: "-1" }).waitFor();
  for (const _ of [1, 2]) await page.keyboard.press("ArrowRight");
  await page.locator(".token-mark", { hasText: "version 3 to 4, mixed" }).waitFor();
  await page.locator(".token-about", { hasText: "3 to 4, mixed" }).waitFor();
  await page.setViewportSize({ width: 375, height: 800 });
  assert.ok((await excessWidth(page)) <= 0);
  await done(/status of 404/);
});
