// Every page: quiet, accessible, and narrow enough.
import assert from "node:assert/strict";
import { test } from "node:test";
import { at, excessWidth, open, violations } from "./harness.mjs";

/** A daemon without sandboxes says so by this. */
const NO_SANDBOXES = /status of 409/;

/** A daemon without a training job says so by this. */
const NO_JOB = /status of 404/;

/** A daemon that has sandboxes, and nodes for them. */
async function withSandboxes(page) {
  const sandbox = (state, id) => ({
    ...{ id, state, image: "python:3.12", job: "default", commands: 3, labels: {} },
    ...{ memory_bytes: 1 << 28, disk_bytes: 1 << 20, created_at_us: Date.now() * 1000 },
    ...{ expires_at_us: (Date.now() + 6e5) * 1000, program_id: at.program.program_id },
  });
  const sandboxes = ["preparing", "ready", "paused", "stopped", "failed"].map(sandbox);
  const node = {
    ...{ name: "node-1", url: "http://node-1:8400", state: "active", mark: "a1", version: "0.1.0" },
    ...{ cores: 16, memory_bytes: 2 ** 36, memory_free_bytes: 2 ** 35, actions: 2, for_s: 90 },
    ...{ sandboxes: sandboxes.length, images: ["python:3.12"] },
  };
  await page.route(/api\/v1\/sandboxes$/, (route) => route.fulfill({ json: { sandboxes } }));
  await page.route(/api\/v1\/nodes$/, (route) =>
    route.fulfill({ json: { enabled: true, nodes: [node] } }),
  );
}

/** The pages, what each shows once it has its data, and what else it takes. */
const PAGES = () => {
  const name = encodeURIComponent(at.program.program_id);
  return [
    ["/console/", "text=Programs by state"],
    ["/console/?period=3d", "[aria-label='Use of KV memory over time']"],
    ["/console/programs", ".table-row.body"],
    [`/console/programs/${name}`, ".decision"],
    [`/console/programs/${name}?tab=steps`, ".steps .table-row.body"],
    [`/console/programs/${name}?tab=events`, ".fixed-table .table-row.body"],
    ["/console/lanes", ".lanes canvas"],
    ["/console/lanes?color=worker", ".lanes canvas"],
    ["/console/lanes?color=staleness", ".lanes canvas"],
    ["/console/lanes?color=reward", ".lanes canvas"],
    ["/console/training", ".empty, .plain"],
    ["/console/training/nothing", "text=No training job of this name", { expected: NO_JOB }],
    ["/console/training/no/members/a", "text=No training job of this name", { expected: NO_JOB }],
    ["/console/actions?action=1", "text=Output"],
    ["/console/sandboxes", "h2", { expected: NO_SANDBOXES }],
    ["/console/sandboxes", "td >> text=node-1", { prepare: withSandboxes }],
    ["/console/workers?worker=0", "text=Where its memory went"],
    ["/console/steps", ".table-row.body"],
    ["/console/policies", ".binding"],
    ["/console/policies?tab=plugins", "table >> text=foresight-eviction"],
    ["/console/policies/foresight-eviction", "text=Bind as shadow"],
    ["/console/policies/foresight-eviction?tab=calls", "text=Time for an answer"],
    ["/console/policies/foresight-eviction?tab=log", ".log, .empty"],
    ["/console/policies/foresight-eviction?tab=about", "text=Schema of its configuration"],
    ["/console/what-if", "text=New run"],
    ["/console/events", ".table-row.body"],
    ["/console/admin", "text=Make a token"],
    ["/console/admin?tab=tenants", "text=Unsigned policies"],
    ["/console/admin?tab=roles", "td >> text=run and release programs"],
    ["/console/admin?tab=audit", ".fixed-table .table-row.body"],
    ["/console/sign-in", "text=Where do I get a token?"],
    ["/console/nowhere", "text=There is no such page"],
  ];
};

// Themes differ in their colours only.
for (const [theme, ...rules] of [["dark"], ["light", "color-contrast"]]) {
  test(`every page is quiet and accessible, ${theme}`, async () => {
    const problems = [];
    for (const [path, sign, { prepare, expected } = {}] of PAGES()) {
      const note = (problem) => problems.push(`${path}: ${problem}`);
      const { page, done } = await open(path, { theme, prepare });
      await page.waitForSelector(sign).catch((error) => note(error.message));
      (await violations(page, ...rules)).forEach(note);
      await done(expected).catch((error) => note(error.message));
    }
    assert.deepEqual(problems, []);
  });
}

test("pages fit 375 px", async () => {
  const name = encodeURIComponent(at.program.program_id);
  for (const path of [
    "/console/",
    "/console/actions?action=1",
    "/console/workers?worker=0",
    "/console/programs",
    "/console/policies",
    "/console/what-if",
    "/console/admin?tab=tenants",
    `/console/programs/${name}`,
  ]) {
    const { page, done } = await open(path, { width: 375, height: 800 });
    await page.waitForSelector("h1");
    await page.waitForTimeout(1000);
    const over = await excessWidth(page);
    assert.ok(over <= 0, `${path} is ${over} px too wide`);
    await done();
  }
});
