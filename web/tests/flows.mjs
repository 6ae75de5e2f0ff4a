// User flows in the console.
import assert from "node:assert/strict";
import { test } from "node:test";
import { someProgram } from "./browser.mjs";
import { api, at, given, open, violations } from "./harness.mjs";

/** The newest time of a decision in the page by which the program gave memory up, past another. */
const pausedAfter = (time) =>
  [...document.querySelectorAll(".decision")]
    .filter((one) => /^(pause|offload)$/.test(one.querySelector(".badge").textContent))
    .map((one) => Number(/"at": (\d+)/.exec(one.textContent)[1]))
    .find((at) => at > time);

/** Opens programs that run until one is paused while it is looked at; returns it, and when that was. */
async function watchUntilPaused(page) {
  for (let looks = 0; looks < 6; looks += 1) {
    const query = "status=active&sort=-created_at_us&limit=1";
    const program = await someProgram(at.base, given.token, query);
    if (!program) continue;
    await page.goto(`${at.base}/console/programs/${encodeURIComponent(program.program_id)}`);
    await page.waitForSelector(".decision");
    const before = (await page.evaluate(pausedAfter, 0)) ?? 0;
    const appears = page.waitForFunction(pausedAfter, before, { timeout: 10_000 });
    const found = await appears.catch(() => null);
    if (found) return { program, time: await found.jsonValue() };
  }
  return assert.fail("no program was paused while it was looked at");
}

test("a program is watched as it is paused, and why can be read", async () => {
  const { page, done } = await open("/console/programs");
  const { program, time } = await watchUntilPaused(page);
  const path = `/api/v1/programs/${encodeURIComponent(program.program_id)}/decisions?limit=1000`;
  const { decisions } = await (await api(path)).json();
  const pause = decisions.find((one) => one.at_us === time);
  assert.ok(["pause", "offload"].includes(pause.kind));
  const words = await page
    .locator(".decision")
    .filter({ hasText: `"at": ${time}` })
    .innerText();
  assert.match(words, /Paused, off|Cache offloaded from/);
  assert.ok(words.includes(`by ${pause.policy}`), words);
  assert.ok(words.includes(`took up ${pause.why.need_tokens.toLocaleString("en")} token`), words);
  await done();
});

test("the slowest trajectory is found by sorting", async () => {
  const lastedOf = (one) => one.updated_at_us - one.created_at_us;
  const query = `status=finished&job=${at.program.job}`;
  const { programs } = await (await api(`/api/v1/programs?${query}&limit=1000`)).json();
  const { page, done } = await open(`/console/programs?${query}`);
  await page.waitForSelector(".table-row.body");
  const sorted = page.waitForResponse(/api\/v1\/programs\?.*sort=-lasted/);
  await page.click("role=columnheader >> text=Lasted");
  const answer = await sorted;
  assert.equal(answer.status(), 200, await answer.text());
  const { programs: found } = await answer.json();
  const times = found.map(lastedOf);
  assert.deepEqual(
    times,
    times.toSorted((a, b) => b - a),
  );
  assert.ok(times[0] >= Math.max(...programs.map(lastedOf)));
  const row = page.locator(".table-row.body").first();
  await row.getByText(found[0].program_id).waitFor();
  await row.click();
  await page.waitForURL(new RegExp(encodeURIComponent(found[0].program_id)));
  await page.waitForSelector(".spans canvas");
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
  await page.keyboard.type(at.program.program_id);
  await page.keyboard.press("Enter");
  await page.waitForURL(/programs\//);
  await done();
});

test("the palette finds programs on record by a part of their names", async () => {
  // They are only in the store: no event arrives.
  const prepare = async (page) => {
    await page.route(/api\/v1\/events/, (route) =>
      route.fulfill({ json: { events: [], next: null } }),
    );
    await page.route(/api\/v1\/stream/, (route) => route.abort());
  };
  const { page, done } = await open("/console/", { prepare });
  await page.waitForSelector("h1");
  await page.keyboard.press("Control+k");
  await page.keyboard.type(at.program.program_id.slice(1));
  await page.click(`.palette-entry:has-text("${at.program.program_id}")`);
  await page.waitForURL(new RegExp(`programs/${encodeURIComponent(at.program.program_id)}$`));
  await done(/net::ERR_FAILED/);
});

test("the overview reads samples, not thousands of events", async () => {
  const asked = [];
  const prepare = (page) => page.on("request", (request) => asked.push(new URL(request.url())));
  const { page, done } = await open("/console/", { prepare });
  await page.waitForSelector('[aria-label="Steps a minute over time"]');
  const limits = asked
    .filter((url) => url.pathname === "/api/v1/events")
    .map((url) => Number(url.searchParams.get("limit")));
  assert.ok(
    limits.every((limit) => limit <= 500),
    String(limits),
  );
  await done();
});

test("programs that were abandoned are not shown as being at work", async () => {
  const old = { ...at.program, updated_at_us: 1 };
  const programs = [
    { ...old, program_id: "gone", status: "finished", ended: "expired" },
    { ...old, program_id: "left", status: "active", phase: "acting", ended: null },
  ];
  const prepare = (page) =>
    page.route(/api\/v1\/programs\?/, (route) => route.fulfill({ json: { programs, next: null } }));
  const { page, done } = await open("/console/programs", { prepare });
  const state = (name) => page.locator(`.table-row.body:has-text("${name}") .state`);
  assert.equal((await state("gone").innerText()).trim(), "Expired");
  assert.equal((await state("left").innerText()).trim(), "Silent");
  assert.equal(await page.locator(".table-row.body .state-tool").count(), 0);
  await done();
});

test("a bad policy is refused, with the check that failed and the remedy", async () => {
  const { page, done } = await open("/console/policies");
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
  await done(/status of 400/);
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
  await page.goto(`${at.base}/console/policies`);
  await page.locator(".role", { hasText: "canary" }).getByText("Promote").click();
  await page.getByRole("dialog").getByText("Promote", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=is active now");
  await page.locator(".role", { hasText: "before:" }).getByText("Roll back").click();
  await page.getByRole("dialog").getByText("Roll back", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=is active again");
  await done();
});

test("binding begins with the present configuration, and says for whom it holds", {
  skip: !given.token,
}, async () => {
  const [world, job] = ["eviction", "prefilled"];
  const body = JSON.stringify({ policy: "foresight-eviction", world, job, config: { hold: 0.25 } });
  await api("/api/v1/bindings", { method: "PUT", body });
  const { page, done } = await open("/console/policies");
  const binding = page.locator(".binding", { hasText: `for job ${job} of tenant default` });
  await binding.getByText("hold 0.25").waitFor();
  await binding.getByText("foresight-eviction").first().click();
  await page.waitForSelector("text=It will hold for all jobs of all tenants");
  await page.fill("input[list=jobs]", job);
  await page.waitForSelector(`text=It will hold for job ${job} of tenant default`);
  assert.equal(await page.inputValue("#config-hold"), "0.25");
  await api(`/api/v1/bindings?world=${world}&job=${job}`, { method: "DELETE" });
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
  await page.click("text=Sign in again");
  await page.fill("input[type=password]", given.token);
  await page.click("form >> role=button[name='Sign in']");
  await page.waitForSelector("text=admin ·");
  await done(/status of 401/);
});
