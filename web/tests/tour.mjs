// The guided tour, as a newcomer takes it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { at, open, violations } from "./harness.mjs";

const STEPS = 7;

/** Where a marked element is in sight, above the card. */
const markInSight = () => {
  const mark = document.querySelector("[data-tour]")?.getBoundingClientRect();
  const card = document.querySelector(".tour").getBoundingClientRect();
  return mark && mark.top >= 0 && mark.top < card.top && card.right <= window.innerWidth;
};

test("a newcomer is led through three pages by keyboard, once", async () => {
  const { page, done } = await open("/console/", { newcomer: true });
  await page.waitForSelector("text=Take the tour");
  assert.deepEqual(await violations(page), []);
  await page.focus("text=Take the tour");
  for (let step = 1; step <= STEPS; step += 1) {
    await page.keyboard.press("Enter");
    await page.waitForSelector(`.tour >> text=${step} of ${STEPS}`);
    await page.waitForSelector("[data-tour]");
    assert.deepEqual(await violations(page), [], `step ${step}`);
  }
  await page.waitForURL(/policies/);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".tour", { state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.goto(`${at.base}/console/`);
  await page.waitForSelector("text=Programs by state");
  assert.equal(await page.locator(".tour").count(), 0);
  await done();
});

test("the tour is found in the palette, fits 375 px, and ends with Escape", async () => {
  const { page, done } = await open("/console/events", { width: 375, height: 800 });
  await page.waitForSelector("h1");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("tour");
  await page.keyboard.press("Enter");
  for (let step = 1; step <= STEPS; step += 1) {
    await page.waitForSelector(`.tour >> text=${step} of ${STEPS}`);
    await page.waitForFunction(markInSight);
    if (step < STEPS) await page.click(".tour >> text=Next");
  }
  await page.keyboard.press("Escape");
  await page.waitForSelector(".tour", { state: "detached" });
  await done();
});

test("without a program the tour says so, and goes on", async () => {
  const { page, done } = await open("/console/", { newcomer: true });
  await page.route(/api\/v1\/programs\?/, (route) =>
    route.fulfill({ json: { programs: [], next: null } }),
  );
  await page.click("text=Take the tour");
  for (let step = 1; step < 4; step += 1) await page.click(".tour >> text=Next");
  await page.waitForSelector(".tour >> text=No program is on record yet");
  await page.waitForSelector("text=No programs yet");
  for (let step = 4; step < STEPS; step += 1) await page.click(".tour >> text=Next");
  await page.waitForURL(/policies/);
  await page.click(".tour >> text=Done");
  await done();
});
