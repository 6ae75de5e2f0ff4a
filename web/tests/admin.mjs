// Administrators' flows.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, given, open, violations } from "./harness.mjs";

test("a tenant's limits are changed once the change was looked at", {
  skip: !given.token,
}, async () => {
  const limits = async () => (await (await api("/api/v1/tenants/default")).json()).limits;
  const before = await limits();
  const { page, done } = await open("/console/admin?tab=tenants");
  await page.click("role=button[name='Change the limits of default']");
  assert.ok(await page.isDisabled("text=Review the change"));
  await page.fill("#config-plugins", "-4");
  await page.waitForSelector("text=At least 0.");
  await page.fill("#config-plugins", "77");
  await page.fill("#config-body_bytes", "1048576");
  assert.deepEqual(await violations(page), []);
  await page.click("text=Review the change");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Change 2 limits of default?").waitFor();
  assert.match(await dialog.locator("table").innerText(), /body_bytes\s+none\s+1 MiB/);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(await limits(), before);
  await dialog.getByText("Change", { exact: true }).click();
  await page.waitForSelector(".notice.good >> text=2 limits of default changed.");
  assert.deepEqual(await limits(), { ...before, plugins: 77, body_bytes: 1 << 20 });
  await page.waitForSelector("td >> text=1 MiB");
  await api("/api/v1/tenants/default", { method: "PUT", body: JSON.stringify({ limits: before }) });
  await done();
});
