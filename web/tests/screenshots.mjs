// Takes a picture of every page in both themes and at two widths, into web/screenshots.
//
//   npm run screenshots -- --daemon http://127.0.0.1:8300 --token tr_…
import { mkdirSync } from "node:fs";
import { complaints, consoleAt, contextOf, launch, options, someProgram } from "./browser.mjs";

const NARROW = ["overview", "workers", "programs", "program", "sign-in"];
const given = options();
const folder = new URL("../screenshots/", import.meta.url).pathname;
mkdirSync(folder, { recursive: true });

const { base, close } = await consoleAt(given);
const program = await someProgram(base, given.token);
const name = encodeURIComponent(program?.program_id ?? "none");
const pages = {
  overview: "/console/",
  programs: "/console/programs",
  program: `/console/programs/${name}`,
  steps: `/console/programs/${name}?tab=steps`,
  "all-steps": "/console/steps",
  lanes: "/console/lanes",
  training: "/console/training",
  actions: "/console/actions?action=1",
  sandboxes: "/console/sandboxes",
  workers: "/console/workers?worker=0",
  policies: "/console/policies",
  plugins: "/console/policies?tab=plugins",
  policy: "/console/policies/foresight-eviction",
  "policy-calls": "/console/policies/foresight-eviction?tab=calls",
  "policy-log": "/console/policies/foresight-eviction?tab=log",
  "what-if": "/console/what-if",
  events: "/console/events",
  admin: "/console/admin",
  tenants: "/console/admin?tab=tenants",
  audit: "/console/admin?tab=audit",
  "sign-in": "/console/sign-in",
};

const browser = await launch();
for (const [theme, width, height] of [
  ["dark", 1440, 900],
  ["light", 1440, 900],
  ["dark", 375, 800],
]) {
  const context = await contextOf(browser, { theme, width, height, token: given.token, base });
  for (const [page, path] of Object.entries(pages)) {
    if (given.only && !given.only.split(",").includes(page)) continue;
    if (width < 500 && !NARROW.includes(page)) continue;
    const tab = await context.newPage();
    const found = complaints(tab);
    await tab.goto(base + path);
    await tab.waitForTimeout(page === "overview" ? 9000 : 2500);
    const file = `${folder}${page}-${theme}-${width}.png`;
    await tab.screenshot({ path: file });
    console.log(file, found.length > 0 ? found : "");
    await tab.close();
  }
  await context.close();
}
await browser.close();
close();
