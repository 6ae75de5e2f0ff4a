// The what-if page: windows, settings, and what becomes of the winner.
import assert from "node:assert/strict";
import { test } from "node:test";
import { open, violations } from "./harness.mjs";

/** Submits the form; returns the request. */
async function asked(page) {
  const request = page.waitForRequest((one) => one.method() === "POST");
  await page.click("role=button[name=Run]");
  return (await request).postDataJSON();
}

test("a run is requested by minutes, times or events, and compared", async () => {
  const { page, done } = await open("/console/what-if");
  const windows = page.locator("label:has-text('Window') select");
  await page.fill("label:has-text('Minutes') input", "");
  await page.waitForSelector("text=Enter a number above 0.");
  assert.ok(await page.isDisabled("role=button[name=Run]"));
  await page.fill("label:has-text('Minutes') input", "1");
  await page.click("text=Seeds, engines and more");
  await page.fill("#config-jitter", "2");
  await page.waitForSelector("text=At most 0.9.");
  await page.fill("#config-jitter", "0.1");
  await page.fill("#config-seeds", "1");
  assert.deepEqual(await violations(page), []);
  const last = await asked(page);
  assert.ok(last.window.from_us > 0 && last.seeds === 1 && last.jitter === 0.1);
  await page.waitForSelector("text=As recorded", { timeout: 90_000 });
  await page.waitForSelector("td >> text=Makespan", { timeout: 90_000 });
  await page.waitForSelector("text=One seed does not tell a gain from chance");
  assert.doesNotMatch(await page.innerText("main"), /NaN/);

  await windows.selectOption("events");
  await page.waitForSelector("text=Enter at least one end.");
  await page.fill("label:has-text('First event') input", "9000000");
  await page.waitForSelector("text=The journal ends with");
  await page.fill("label:has-text('First event') input", "1");
  await page.fill("label:has-text('Last event') input", "2000");
  await page.selectOption("[aria-label=Job]", "swe-grpo");
  const events = await asked(page);
  assert.deepEqual(events.window, { from_seq: 1, to_seq: 2000, job: "swe-grpo" });

  await windows.selectOption("times");
  const times = await asked(page);
  assert.ok(times.window.from_us < times.window.to_us);
  assert.deepEqual(await violations(page), []);
  await done();
});

test("a trace is repeated, and the line of it that is wrong is named", async () => {
  const { page, done } = await open("/console/what-if");
  await page.selectOption("label:has-text('What is repeated') select", "trace");
  assert.ok(await page.isDisabled("role=button[name=Run]"));
  const file = (text) => ({
    name: "runs.jsonl",
    mimeType: "text/plain",
    buffer: Buffer.from(text),
  });
  await page.setInputFiles("#whatif-trace", file("x"));
  await page.click("role=button[name=Run]");
  await page.waitForSelector("[role=alert] >> text=/trace.text.*line 1/");
  const line = '{"id": "p-1", "steps": [[1840, 0, 312, 2.5], [2310, 2152, 95, 0.0]]}';
  await page.setInputFiles("#whatif-trace", file(line));
  await page.fill("#config-engines", "65");
  await page.waitForSelector("text=At most 64.");
  await page.fill("#config-engines", "1");
  await page.fill("#config-kv_fraction", "6");
  const { trace, window } = await asked(page);
  assert.deepEqual(trace, { text: line, engines: 1, kv_fraction: 6 });
  assert.equal(window, undefined);
  await page.waitForSelector(".run.chosen >> text=trace");
  await page.waitForSelector("td >> text=Makespan", { timeout: 90_000 });
  await page.waitForSelector("text=a trace with its token counts divided by 4");
  assert.deepEqual(await violations(page), []);
  // The line that was wrong.
  await done(/status of 400/);
});

const measure = (mean) => ({ mean, half_width: 0.01 });
const setOf = (name, seconds, fairness, more) => ({
  name,
  asked: [],
  policies: { given_up: 0 },
  makespan_s: measure(seconds),
  fairness: measure(fairness),
  seeds: [{ makespan_s: seconds }],
  ...more,
});
const hostile = '<img src=x onerror="window.hit=1">';
const plugin = { name: "won", version: "1.0.0", world: "eviction", digest: "ab".repeat(32) };
const { digest, ...known } = plugin;

/** A run of one job: a stored policy is fastest, and a set with the same one, configured, is fairest. */
function runOfJob() {
  const differing = { kind: "pause", because: "memory_pressure", worker: 0, at_s: 1, policy: "p" };
  const fast = {
    makespan_ratio: measure(0.5),
    programs_decided_otherwise: 1,
    differences: [{ program: hostile, same_before: 2, ours: null, theirs: differing }],
  };
  const fair = { makespan_ratio: measure(1), programs_decided_otherwise: 0, differences: [] };
  return {
    run: "whatif-1",
    status: "done",
    sets: ["recorded", "won@1.0.0", "fair"],
    window: { from_seq: 10, to_seq: 90, job: hostile },
    trace: false,
    created_at_us: Date.now() * 1000,
    progress: { share: 1, steps: 1, steps_done: 1 },
    report: {
      ...{ recorded: {}, programs: 1, steps: 1, jobs: 1, seeds: 2, jitter: 0, took_s: 1, cuts: {} },
      profile: "instant",
      sets: [
        setOf("recorded", 10, 0.5),
        setOf("won@1.0.0", 5, 0.5, { asked: [{ ...known, config: {} }], against_first: fast }),
        setOf("fair", 10, 0.9, {
          asked: [{ ...known, config: { hold: 2 } }],
          against_first: fair,
        }),
      ],
    },
  };
}

/** The same run, but each set is slower than the first one beyond chance. */
function runOfBaseline() {
  const run = runOfJob();
  const slower = {
    makespan_ratio: measure(2),
    programs_decided_otherwise: 0,
    differences: [],
  };
  const [recorded, won] = run.report.sets;
  const sets = [recorded, { ...won, makespan_s: measure(20), against_first: slower }];
  return { ...run, sets: sets.map(({ name }) => name), report: { ...run.report, sets } };
}

/** Shows a run, with answers in place of the daemon's. */
async function showRun(page, run) {
  await page.route(/what-if\/runs\/whatif-1$/, (route) => route.fulfill({ json: run }));
  await page.route(/api\/v1\/plugins$/, (route) => route.fulfill({ json: { plugins: [plugin] } }));
  await page.click("nav >> text=What-if");
  await page.waitForSelector("text=New run");
  await page.evaluate(() => history.pushState(null, "", "?run=whatif-1"));
  await page.evaluate(() => window.dispatchEvent(new PopStateEvent("popstate")));
  await page.waitForSelector("text=events from 10 to 90, job <img");
}

/** The set that is best by a measure. */
const bestBy = (page, label) =>
  page.locator(`tr:has-text("${label}") td:last-child`).first().innerText();

/** Starts the canary that is offered. */
async function startCanary(page) {
  await page.click("text=Canary it");
  const dialog = page.getByRole("dialog");
  const words = await dialog.innerText();
  await dialog.getByText("Start the canary").click();
  await page.locator(".notice.good >> text=decides for a tenth").last().waitFor();
  await dialog.waitFor({ state: "detached" });
  return words;
}

test("each measure has its winner, and any set becomes a canary for the run's job", async () => {
  const { page, done } = await open("/console/");
  const bound = [];
  await page.route(/api\/v1\/bindings$/, async (route) => {
    if (route.request().method() !== "PUT") return route.fallback();
    bound.push(route.request().postDataJSON());
    await route.fulfill({ json: {} });
  });
  await showRun(page, runOfJob());
  await page.waitForSelector("text=nothing at that point");
  await page.waitForSelector("text=Paused, off worker 0");
  const best = [await bestBy(page, "Makespan"), await bestBy(page, "Fairness")];
  assert.deepEqual(best, ["won@1.0.0", "fair"]);
  await page.waitForSelector(".verdict >> text=is best by Makespan.");
  assert.deepEqual(await violations(page), []);
  await startCanary(page);
  await page.selectOption("[aria-label='The set to canary']", "fair");
  assert.match(await startCanary(page), /won@1\.0\.0 with 1 setting decides on eviction/);
  const canary = { policy: digest, world: known.world, job: hostile, role: "canary", share: 0.1 };
  assert.deepEqual(bound, [
    { ...canary, config: {} },
    { ...canary, config: { hold: 2 } },
  ]);
  assert.equal(await page.evaluate(() => window.hit), undefined);
  await done();
});

test("the first set wins if each other one is worse beyond chance", async () => {
  const { page, done } = await open("/console/");
  await showRun(page, runOfBaseline());
  const best = [await bestBy(page, "Makespan"), await bestBy(page, "Fairness")];
  assert.deepEqual(best, ["recorded", "–"]);
  const verdict = page.locator(".verdict");
  await verdict.getByText("is best by Makespan.").waitFor();
  assert.deepEqual(await verdict.locator("strong").allInnerTexts(), ["recorded"]);
  await done();
});
