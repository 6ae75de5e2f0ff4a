// What the overview shows of a demo: schedulers side by side, in the console of each.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { consoleAt } from "./browser.mjs";
import { excessWidth, given, open, violations } from "./harness.mjs";

const ARMS = ["least-load", "sticky", "treadle"];
/** Long enough for a slow machine: the test ends it. */
const ARGUMENTS =
  "demo --minutes 8 --warmup-minutes 0.5 --programs 24 --time-scale 10 --profile qwen3-8b-h100";
const PANEL = ".panel:has(.demo-arms)";

/** Starts a demo in a folder of its own; resolves once all of its consoles are there. */
async function startDemo(folder) {
  const stdio = ["ignore", "ignore", "pipe"];
  const env = { ...process.env, TMPDIR: folder };
  const child = spawn(given.binary, ARGUMENTS.split(" "), { cwd: folder, env, stdio });
  const urls = await new Promise((resolve, reject) => {
    let told = "";
    child.stderr.on("data", (text) => {
      told += text;
      const lines = told.matchAll(/^(\S+): watch it at (\S+)\/ while it runs$/gm);
      const found = Object.fromEntries([...lines].map(([, name, url]) => [name, url]));
      if (ARMS.every((name) => found[name])) resolve(found);
    });
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the demo ended with ${code}: ${told}`)));
  });
  const end = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  return { urls, end };
}

/** The panel's rows: name, address of its console, whether it is this one, and the figures. */
const rowsIn = () =>
  [...document.querySelectorAll(".demo-arms tbody tr")].map((row) => {
    const [rate, times, cached, p50, p99, answered] = [...row.querySelectorAll("td")].map(
      (cell) => cell.textContent,
    );
    return {
      name: row.querySelector("th bdi").textContent,
      link: row.querySelector("a")?.href ?? null,
      isOwn: row.textContent.includes("this console"),
      answered: Number(answered.replaceAll(",", "")),
      ...{ rate, times, cached, p50, p99 },
    };
  });

/** Whether all schedulers have answered more steps than these. */
const haveMore = (before) => {
  const cells = [...document.querySelectorAll(".demo-arms tbody td:last-child")];
  const steps = cells.map((cell) => Number(cell.textContent.replaceAll(",", "")));
  return steps.length > 0 && steps.every((one, at) => one > (before[at] ?? 0));
};

test("a demo's schedulers are compared while they run", {
  skip: !existsSync(given.binary),
}, async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "treadle-demo-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const demo = await startDemo(folder);
  context.after(demo.end);
  const { base, close } = await consoleAt({
    base: given.base && demo.urls.treadle,
    daemon: demo.urls.treadle,
  });
  context.after(close);
  const { page, done } = await open("/console/", { base, token: "" });
  await page.waitForSelector(`${PANEL} >> text=three schedulers, the same agents, side by side`);
  await page.evaluate(() => {
    window.mark = 1;
  });
  await page.waitForFunction(haveMore, []);
  const before = await page.evaluate(rowsIn);
  assert.deepEqual(
    before.map(({ name, link, isOwn }) => ({ name, link, isOwn })),
    ARMS.map((name) => {
      const isOwn = name === "treadle";
      return { name, link: isOwn ? null : `${demo.urls[name]}/`, isOwn };
    }),
  );
  await page.waitForSelector(`${PANEL} >> text=all clocks run 10 times faster`);
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await violations(page), [], colorScheme);
  }
  await page.waitForFunction(
    haveMore,
    before.map(({ answered }) => answered),
  );
  // Rates are there after half a minute of the run.
  await page.waitForFunction(() => {
    const rates = [...document.querySelectorAll(".demo-arms td:nth-of-type(1)")];
    return rates.every((cell) => Number(cell.textContent) > 0);
  });
  for (const row of await page.evaluate(rowsIn)) {
    assert.match(row.times, row.name === "sticky" ? /^–$/ : /^×\d+\.\d\d$/, row.name);
    assert.match(row.cached, /^\d+ %$/, row.name);
  }
  assert.equal(await page.evaluate(() => window.mark), 1, "without a reload");
  const opened = page.waitForEvent("popup");
  await page.locator(`${PANEL} a`, { hasText: "sticky" }).press("Enter");
  const other = await opened;
  await other.waitForSelector("h1 >> text=Overview");
  assert.equal(other.url(), `${demo.urls.sticky}/console/`);
  const seen = await (await fetch(`${demo.urls.sticky}/api/v1/demo`)).json();
  assert.deepEqual(
    seen.arms.map((arm) => arm.is_own),
    ARMS.map((name) => name === "sticky"),
  );
  await other.close();
  await done();
});

/** A demo of four minutes, as far as it is. */
const demoAt = (minute) => ({
  arms: ARMS.map((name, at) => ({
    ...{ name, is_own: name === "treadle", answered: 100 * minute, hit_rate: 0.5 },
    ...{ url: minute < 4 ? `http://127.0.0.1:${7001 + at}` : null, steps_per_min: 100 + 50 * at },
    ...{ step_p50_s: 10, step_p99_s: 75, points: [{ minute: 1, steps_per_min: 90 + at }] },
  })),
  ...{ minute, minutes: 4, warmup_minutes: 1, time_scale: 30, workload: "agents of a test" },
});

test("a demo's panel fits 375 px, and asks no more once the run has ended", async () => {
  let minute = 2;
  let asked = 0;
  const prepare = (page) =>
    page.route(/api\/v1\/demo$/, (route) => {
      asked += 1;
      return route.fulfill({ json: demoAt(minute) });
    });
  const { page, done } = await open("/console/", { width: 375, height: 800, prepare });
  await page.waitForSelector(`${PANEL} >> text=minute 2.0 of 4`);
  const rows = await page.evaluate(rowsIn);
  assert.deepEqual(
    rows.map(({ times }) => times),
    ["×0.67", "–", "×1.33"],
  );
  assert.deepEqual([rows[0].p50, rows[0].p99], ["10.0 s", "1 min 15 s"]);
  assert.ok((await excessWidth(page)) <= 0);
  minute = 4;
  await page.waitForSelector(`${PANEL} >> text=the run has ended`);
  assert.equal(await page.locator(`${PANEL} a`).count(), 0);
  assert.deepEqual(await violations(page), []);
  const before = asked;
  await page.waitForTimeout(2500);
  assert.equal(asked, before);
  await done();
});

test("there is no panel where there is no demo", async () => {
  // Waited for before the page is opened: the answer can be there before the page has loaded.
  let answered;
  const prepare = (page) => {
    answered = page.waitForResponse(/api\/v1\/demo$/);
  };
  const { page, done } = await open("/console/", { prepare });
  assert.deepEqual((await (await answered).json()).arms, []);
  await page.waitForSelector("text=Programs by state");
  assert.equal(await page.locator(PANEL).count(), 0);
  await done();
});
