// Every page: quiet, accessible, narrow enough, and safe with hostile text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, at, open, violations } from "./harness.mjs";

/** What a page shows once it has its data. */
const PAGES = () => {
  const name = encodeURIComponent(at.program.program_id);
  return {
    "/console/": "text=Programs by state",
    "/console/?period=3d": "[aria-label='Use of KV memory over time']",
    "/console/programs": ".table-row.body",
    [`/console/programs/${name}`]: ".decision",
    [`/console/programs/${name}?tab=steps`]: ".steps .table-row.body",
    [`/console/programs/${name}?tab=events`]: ".fixed-table .table-row.body",
    "/console/lanes": ".lanes canvas",
    "/console/actions?action=1": "text=Output",
    "/console/workers?worker=0": "text=Where its memory went",
    "/console/policies": ".binding",
    "/console/policies?tab=plugins": "table >> text=foresight-eviction",
    "/console/policies/foresight-eviction": "text=Bind as shadow",
    "/console/policies/foresight-eviction?tab=calls": "text=Time for an answer",
    "/console/what-if": "text=New run",
    "/console/events": ".table-row.body",
    "/console/admin": "text=Make a token",
    "/console/admin?tab=tenants": "text=Unsigned policies",
    "/console/admin?tab=audit": ".fixed-table .table-row.body",
    "/console/sign-in": "text=Where do I get one?",
    "/console/nowhere": "text=There is no such page",
  };
};

for (const theme of ["dark", "light"]) {
  test(`every page is quiet and accessible, ${theme}`, async () => {
    const problems = [];
    for (const [path, sign] of Object.entries(PAGES())) {
      const { page, found, done } = await open(path, { theme });
      await page.waitForSelector(sign).catch((error) => problems.push(`${path}: ${error.message}`));
      problems.push(...(await violations(page)).map((one) => `${path}: ${one}`));
      problems.push(...found.map((one) => `${path}: ${one}`));
      await done();
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
    const over = await page.evaluate(() => {
      const wide = (element) => element.scrollWidth - element.clientWidth;
      return Math.max(...[...document.querySelectorAll("main, .panel-head")].map(wide));
    });
    assert.ok(over <= 0, `${path} is ${over} px too wide`);
    await done();
  }
});

test("a hostile name is text and nothing else", async () => {
  const name = `<img src=x onerror="window.hit=1">\u202egnp\u200b${"w".repeat(300)}`;
  await api("/v1/chat/completions", {
    method: "POST",
    body: JSON.stringify({
      model: "treadle-sim",
      program_id: name,
      max_tokens: 4,
      messages: [{ role: "user", content: "<script>window.hit=1</script>\u001b[31m" }],
    }),
  });
  for (const path of [
    "/console/programs?job=default",
    `/console/programs/${encodeURIComponent(name)}?tab=steps`,
  ]) {
    const { page, found, done } = await open(path);
    await page.waitForSelector("text=RLO");
    await page.waitForSelector("text=ZWSP");
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(found, []);
    await done();
  }
});
