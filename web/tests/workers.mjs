// Workers are taken out of service and back into it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { excessWidth, open, violations } from "./harness.mjs";

/** Answers for workers; the first one changes its state on request. */
async function withStates(page) {
  const asked = [];
  let state = "active";
  await page.route(/api\/v1\/workers$/, async (route) => {
    const json = await (await route.fetch()).json();
    const [first, ...rest] = json.workers;
    const engine_load = { running: 3, waiting: 2, used_tokens: first.capacity_tokens / 2 };
    // One that was asked to drain has drained when it is looked at again.
    if (state === "draining" && asked.at(-1) === "seen") state = "drained";
    if (state === "draining") asked.push("seen");
    const workers = [
      { ...first, state, programs: 4, engine_load },
      ...rest.map((one) => ({ ...one, state: "active" })),
    ];
    await route.fulfill({ json: { ...json, workers } });
  });
  await page.route(/api\/v1\/workers\/0$/, async (route) => {
    assert.equal(route.request().method(), "PATCH");
    state = route.request().postDataJSON().state;
    asked.push(state);
    await route.fulfill({ json: {} });
  });
  return asked;
}

test("a worker is cordoned, drained and activated, each after a question", async () => {
  const { page, done } = await open("/console/");
  const asked = await withStates(page);
  await page.click("nav >> text=Workers");
  await page.click("role=button[name='worker 0']");
  await page.waitForSelector("td >> text=3 run, 2 wait");
  const row = page.locator("tr.row-link").first();
  const steps = [
    ["Cordon", /keep their place and their cache/, "cordoned"],
    ["Drain", /Those placed on it \(4\) leave/, "draining"],
    ["Activate", /given programs again/, "active"],
  ];
  for (const [action, text, state] of steps) {
    await page.click(`role=button[name=${action}]`);
    const dialog = page.getByRole("dialog");
    assert.match(await dialog.innerText(), text);
    if (action === "Cordon") {
      assert.deepEqual(await violations(page), []);
      await dialog.getByText("Cancel").click();
      assert.deepEqual(asked, []);
      await page.click(`role=button[name=${action}]`);
    }
    await dialog.getByText(action, { exact: true }).click();
    await row.locator(".badge", { hasText: state }).waitFor();
    if (state === "draining") {
      await row.getByText("draining · 4 left").waitFor();
      await row.getByText("drained", { exact: true }).waitFor();
      await page.click("role=button[name=Remove]");
      assert.match(await page.getByRole("dialog").innerText(), /no program and no step is lost/);
      await page.getByRole("dialog").getByText("Cancel").click();
    }
  }
  assert.deepEqual(asked, ["cordoned", "draining", "seen", "active"]);
  assert.deepEqual(await violations(page), []);
  await done();
});

/** Two workers more, which are ranks of one engine: the second has three times the tokens. */
async function withRanks(page) {
  await page.route(/api\/v1\/workers$/, async (route) => {
    const json = await (await route.fetch()).json();
    const [first] = json.workers;
    const ranks = [
      { ...first, id: "91", url: "http://ranks:8000#1", used_tokens: 300, load: 2 },
      { ...first, id: "90", url: "http://ranks:8000#0", used_tokens: 100, load: 1 },
    ].map((rank) => ({ ...rank, capacity_tokens: 1000, programs: 3 }));
    await route.fulfill({ json: { ...json, workers: [...json.workers, ...ranks] } });
  });
}

test("ranks of an engine stand together, with the load of each and of all", async () => {
  const { page, done } = await open("/console/workers", { prepare: withRanks });
  await page.getByText(/engines with \d+ ranks/).waitFor();
  const engine = page.getByRole("row", { name: /http:\/\/ranks:8000/ });
  await engine.getByText("2 ranks that step together, the fullest has 1.50 times").waitFor();
  const cells = await engine.getByRole("cell").allInnerTexts();
  assert.match(cells.join(" "), /20 %\s+400 of 2k .* 6 3/s);
  const rows = await page.getByRole("row").allInnerTexts();
  const ranks = rows.filter((row) => /rank \d/.test(row)).map((row) => /worker \d+/.exec(row)?.[0]);
  assert.deepEqual(ranks.slice(-2), ["worker 90", "worker 91"]);
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 375, height: 800 });
  assert.ok((await excessWidth(page)) <= 0);
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.click("nav >> text=Overview");
  const row = page.getByRole("row", { name: /worker 90 and 1 more rank/ });
  await row.getByText("fullest 1.50×").waitFor();
  await page.unrouteAll({ behavior: "wait" });
  await done();
});
