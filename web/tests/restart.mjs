// The daemon dies and comes back while the console is open.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { consoleAt } from "./browser.mjs";
import { startDaemon } from "./daemon.mjs";
import { given, open } from "./harness.mjs";

/** Runs one step of a program, so that there are events about it. */
async function step(url, program_id) {
  const messages = [{ role: "user", content: "Hello" }];
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "treadle-sim", program_id, max_tokens: 4, messages }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

test("a daemon that was killed is regained without a reload", {
  skip: !existsSync(given.binary),
}, async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "treadle-console-"));
  let daemon = await startDaemon(given.binary, folder);
  const { url } = daemon;
  const { base, drop, close } = await consoleAt({ base: given.base && url, daemon: url });
  context.after(async () => {
    close();
    await daemon.kill();
    rmSync(folder, { recursive: true });
  });
  const { page, done } = await open("/console/events", { base, token: "" });
  await page.waitForSelector(".connection.live");
  await step(url, "before-it-died");
  await page.waitForSelector(".table-row.body >> text=before-it-died");
  await page.evaluate(() => {
    window.mark = 1;
  });
  await daemon.kill();
  drop();
  await page.waitForSelector(".connection.lost");
  daemon = await startDaemon(given.binary, folder, { port: new URL(url).port });
  await page.waitForSelector(".connection.live");
  await step(url, "after-it-came-back");
  await page.waitForSelector(".table-row.body >> text=after-it-came-back");
  await page.click(".table-row.body >> text=before-it-died");
  await page.waitForSelector(".spans canvas");
  assert.equal(await page.evaluate(() => window.mark), 1);
  // The browser itself reports every request that finds no daemon.
  await done(/net::ERR_|status of 502/);
});

test("a daemon that is stuck is not shown as live", {
  skip: !existsSync(given.binary),
}, async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "treadle-console-"));
  const daemon = await startDaemon(given.binary, folder);
  const { url } = daemon;
  const { base, close } = await consoleAt({ base: given.base && url, daemon: url });
  context.after(async () => {
    close();
    await daemon.kill();
    rmSync(folder, { recursive: true });
  });
  const { page, done } = await open("/console/events", { base, token: "" });
  await page.waitForSelector(".connection.live");
  daemon.freeze(true);
  // The longest silence of a daemon that is well is 3 s.
  await page.waitForSelector(".connection.lost", { timeout: 15_000 });
  daemon.freeze(false);
  await page.waitForSelector(".connection.live");
  await done(/net::ERR_|status of 50/);
});
