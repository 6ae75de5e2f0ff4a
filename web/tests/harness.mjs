// What the tests share: one browser, one console, one program that has finished.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before } from "node:test";
import { complaints, consoleAt, contextOf, launch, options, someProgram } from "./browser.mjs";

export const given = options();

/** The console's address, the browser, and a program; there once the tests begin. */
export const at = {};

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TIMEOUT_MS = 20_000;

before(async () => {
  Object.assign(at, await consoleAt(given));
  at.browser = await launch();
  at.program = await someProgram(at.base, given.token, "status=finished&sort=-steps&limit=1");
  assert.ok(at.program, "the daemon needs a workload: no program has finished yet");
});

after(async () => {
  await at.browser?.close();
  at.close?.();
});

/** Opens a page of the console in a browser of its own. */
export async function open(path, how = {}) {
  const context = await contextOf(at.browser, { token: given.token, base: at.base, ...how });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const found = complaints(page);
  await page.goto((how.base ?? at.base) + path);
  return { page, found, done: () => context.close() };
}

export function api(path, init = {}, token = given.token) {
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  return fetch(at.base + path, {
    ...init,
    headers: { "content-type": "application/json", ...authorization, ...init.headers },
  });
}

export async function violations(page) {
  await page.evaluate(axe);
  const { violations: found } = await page.evaluate(() => window.axe.run());
  return found.map(
    (one) =>
      `${one.id}: ${one.nodes
        .map((node) => node.html)
        .slice(0, 3)
        .join(" | ")}`,
  );
}
