// Shared by tests and screenshots: a browser, a console served over a daemon, a session.
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { serve } from "../scripts/serve.mjs";

const root = new URL("../../", import.meta.url);
const BINARY = new URL(process.env.TREADLE ?? "target/debug/treadle", root).pathname;

/** Options of the command line; the token may come from the environment. */
export function options() {
  const { values } = parseArgs({
    options: {
      base: { type: "string" },
      daemon: { type: "string", default: "http://127.0.0.1:8300" },
      token: { type: "string", default: process.env.TREADLE_TOKEN ?? "" },
      only: { type: "string", default: "" },
      binary: { type: "string", default: BINARY },
      policy: { type: "string", default: process.env.TREADLE_POLICY ?? "" },
    },
    allowPositionals: true,
  });
  return values;
}

/** The console's address: the one that is given, or dist served over the daemon. What is served here
 *  keeps connections whose daemon has died, until they are dropped. */
export async function consoleAt({ base, daemon }) {
  if (base) return { base: base.replace(/\/$/, ""), drop: () => {}, close: () => {} };
  const server = await serve(daemon, 0);
  return {
    base: `http://127.0.0.1:${server.address().port}`,
    drop: () => server.closeAllConnections(),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** A context with a theme and, where a token is given, its session. The tour is offered where asked. */
export async function contextOf(
  browser,
  { theme = "dark", width = 1440, height = 900, token = "", base, newcomer = false },
) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    reducedMotion: "reduce",
  });
  if (!newcomer) await context.addInitScript(() => localStorage.setItem("treadle.tour", "seen"));
  if (token) {
    await context.addCookies([
      { name: "treadle_session", value: token, url: base, httpOnly: true, sameSite: "Strict" },
    ]);
    await context.addInitScript(() => localStorage.setItem("treadle.signed-in", "yes"));
  }
  return context;
}

/** Collects what a page complains of. */
export function complaints(page) {
  const found = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") found.push(message.text());
  });
  page.on("pageerror", (error) => found.push(String(error)));
  return found;
}

/** A program that is on record, with its newest steps. */
export async function someProgram(base, token, query = "sort=-steps&limit=1") {
  const response = await fetch(`${base}/api/v1/programs?${query}`, {
    headers: token ? { authorization: `Bearer ${token}` } : {},
  });
  const { programs } = await response.json();
  return programs[0] ?? null;
}
