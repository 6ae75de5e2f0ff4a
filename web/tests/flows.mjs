// What people do with the console.
import assert from "node:assert/strict";
import { test } from "node:test";
import { serve } from "../scripts/serve.mjs";
import { someProgram } from "./browser.mjs";
import { api, at, given, open, violations } from "./harness.mjs";

test("a program can be watched as it is paused, and why can be read", async () => {
  let paused = null;
  for (let looks = 0; paused === null && looks < 60; looks += 1) {
    paused = await someProgram(at.base, given.token, "status=paused&limit=1");
    if (paused === null) await new Promise((resolve) => setTimeout(resolve, 500));
  }
  assert.ok(paused, "no program was paused in half a minute");
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
  await page.keyboard.type(at.program.program_id);
  await page.keyboard.press("Enter");
  await page.waitForURL(/programs\//);
  await done();
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
  await page.goto(`${at.base}/console/policies`);
  await page.locator(".role", { hasText: "canary" }).getByText("Promote").click();
  await page.getByRole("dialog").getByText("Promote", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=is active now");
  await page.locator(".role", { hasText: "before:" }).getByText("Roll back").click();
  await page.getByRole("dialog").getByText("Roll back", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=is active again");
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
  await done();
});

test("the daemon is lost and regained without a reload", async () => {
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
