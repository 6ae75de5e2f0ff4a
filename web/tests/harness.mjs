// Shared by the tests: one browser, one console, one program that has finished.
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

/**
 * Opens a page of the console in a browser of its own, once `prepare` has been called with it. `done`
 * closes it, and fails where it complained of anything but what is `expected`.
 */
export async function open(path, { prepare, ...how } = {}) {
  const context = await contextOf(at.browser, { token: given.token, base: at.base, ...how });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const found = complaints(page);
  await prepare?.(page);
  await page.goto((how.base ?? at.base) + path);
  const done = async (expected) => {
    await context.close();
    assert.deepEqual(
      found.filter((one) => !expected?.test(one)),
      [],
    );
  };
  return { page, done };
}

export function api(path, init = {}, token = given.token) {
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  return fetch(at.base + path, {
    ...init,
    headers: { "content-type": "application/json", ...authorization, ...init.headers },
  });
}

/** What axe objects to, by these rules only if there are any. */
export async function violations(page, ...rules) {
  await page.evaluate(axe);
  const { violations: found } = await page.evaluate(
    (values) => window.axe.run(values.length > 0 ? { runOnly: { type: "rule", values } } : {}),
    rules,
  );
  return found.map(
    (one) =>
      `${one.id}: ${one.nodes
        .map((node) => node.html)
        .slice(0, 3)
        .join(" | ")}`,
  );
}

/** How far the widest part of a page is wider than there is room for, in pixels. */
export function excessWidth(page) {
  return page.evaluate(() => {
    const wide = (element) => element.scrollWidth - element.clientWidth;
    return Math.max(...[...document.querySelectorAll("main, .panel-head")].map(wide));
  });
}
