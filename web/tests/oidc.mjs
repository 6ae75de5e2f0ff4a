// Signing in with an identity provider, which a stand-in plays.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { consoleAt } from "./browser.mjs";
import { startDaemon } from "./daemon.mjs";
import { excessWidth, given, open, violations } from "./harness.mjs";
import { startProvider } from "./provider.mjs";

const CLIENT = { client: "console", secret: "hush: 50 % & more" };
const WITH_PROVIDER = "text=Sign in with your identity provider";
/** Who has not signed in is shown nothing, and the browser itself reports each refusal. */
const REFUSALS = /status of 401/;

const viewer = { treadle_tenant: "default", treadle_scope: "viewer" };

describe("with an identity provider", { skip: !existsSync(given.binary) }, () => {
  const folder = mkdtempSync(join(tmpdir(), "treadle-oidc-"));
  const ends = [() => rmSync(folder, { recursive: true })];
  let provider;
  let base;

  before(async () => {
    provider = await startProvider(CLIENT);
    ends.push(provider.close);
    const daemon = await startDaemon(given.binary, folder, {
      set: {
        "auth.anonymous_scope": "none",
        "oidc.issuer": provider.issuer,
        "oidc.jwks": `${provider.issuer}/jwks`,
        "oidc.client_id": CLIENT.client,
        "oidc.client_secret": CLIENT.secret,
      },
    });
    ends.push(daemon.kill);
    const shown = await consoleAt({ base: given.base && daemon.url, daemon: daemon.url });
    ends.push(shown.close);
    base = shown.base;
    provider.redirect = `${base}/api/v1/session/callback`;
  });

  after(async () => {
    for (const end of ends.reverse()) await end();
  });

  const visit = (path, how) => open(path, { base, token: "", ...how });

  /** What the daemon says to a page about whom it takes its reader for. */
  const whoIs = (page) =>
    page.evaluate(async () => {
      const answer = await fetch("/api/v1/whoami");
      return answer.ok ? answer.json() : answer.status;
    });

  /** Goes to the provider from the page of signing in, and decides there. */
  const goAnd = async (page, decision, claims) => {
    provider.claims = claims;
    await page.click(WITH_PROVIDER);
    await page.waitForURL((url) => url.origin === provider.issuer);
    await page.click(decision);
  };

  /** Nobody is signed in, and the page says why, in these words. */
  const isOut = async (page, words) => {
    await page.waitForURL(/console\/sign-in\?failed=/);
    const alert = page.locator(".sign-in [role=alert]");
    await alert.getByText(words).waitFor();
    assert.equal(await whoIs(page), 401);
    const names = (await page.context().cookies(base)).map((cookie) => cookie.name);
    assert.deepEqual(names, [], "no session, and no sign-in under way");
  };

  test("a viewer comes back to the page that was asked for, sees no controls, and signs out", async () => {
    const { page, done } = await visit("/console/lanes?color=worker");
    await page.waitForURL(/console\/sign-in\?then=/);
    assert.equal(await page.locator(".failure").count(), 0);
    assert.equal(await page.title(), "Sign in · treadle");
    await goAnd(page, "text=Sign in as ann", viewer);
    await page.waitForURL(`${base}/console/lanes?color=worker`);
    await page.waitForSelector(".account >> text=subject ann");
    await page.waitForSelector(".account >> text=viewer · default");
    await page.waitForSelector(".connection.live");
    const { who, scope, tenant } = await whoIs(page);
    assert.deepEqual([who, scope, tenant], ["subject ann", "viewer", "default"]);
    const cookie = (await page.context().cookies(base)).find(
      (one) => one.name === "treadle_session",
    );
    assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);

    await page.click("nav >> text=Admin");
    await page.waitForSelector("text=You are signed in with the scope viewer");
    assert.equal(await page.locator("text=Make a token").count(), 0);
    await page.click("nav >> text=Workers");
    await page.waitForSelector("main table tbody tr");
    assert.equal(await page.locator("text=Add a worker").count(), 0);
    await page.click("nav >> text=Policies");
    await page.waitForSelector(".binding");
    assert.equal(await page.locator("text=Upload a policy").count(), 0);

    await page.click("text=Sign out");
    await page.waitForURL(/console\/sign-in\?then=/);
    await page.waitForSelector(WITH_PROVIDER);
    assert.equal(await whoIs(page), 401);
    await page.reload();
    await page.waitForSelector(".connection.refused");
    assert.equal(await page.locator("text=Sign out").count(), 0);
    await done(REFUSALS);
  });

  test("the scope of the token is the one that counts", async () => {
    const { page, done } = await visit("/console/admin");
    await goAnd(page, "text=Sign in as ann", { ...viewer, treadle_scope: "treadle:job other" });
    await page.waitForURL(`${base}/console/admin`);
    await page.waitForSelector("text=You are signed in with the scope job");
    const refused = await page.evaluate(() => fetch("/api/v1/tokens").then((one) => one.status));
    assert.equal(refused, 403);
    await page.click("text=Sign in as an admin");
    await page.waitForSelector(".sign-in >> text=You are signed in as subject ann");
    await goAnd(page, "text=Sign in as ann", { treadle_tenant: "*", treadle_scope: ["admin"] });
    await page.waitForURL(`${base}/console/admin`);
    await page.waitForSelector("text=Make a token");
    await page.waitForSelector(".account >> text=admin · default");
    await done(/status of 40[13]/);
  });

  test("a refusal at the provider is shown, and a token still works", async () => {
    const { page, done } = await visit("/console/workers", { width: 375, height: 800 });
    await goAnd(page, "text=Refuse", viewer);
    await isOut(page, "The identity provider refused: access_denied.");
    await page.waitForSelector(WITH_PROVIDER);
    for (const colorScheme of ["dark", "light"]) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await violations(page), [], colorScheme);
    }
    assert.ok((await excessWidth(page)) <= 0);
    const token = readFileSync(join(folder, "admin-token"), "utf8").trim();
    await page.fill("input[type=password]", `${token.slice(0, -1)}!`);
    await page.click("form >> role=button[name='Sign in']");
    await page.waitForSelector("#sign-in-error >> text=The token is unknown");
    assert.equal(await page.locator("text=The sign-in failed").count(), 0);
    await page.fill("input[type=password]", token);
    await page.click("form >> role=button[name='Sign in']");
    await page.waitForURL(`${base}/console/workers`);
    await page.waitForSelector("text=Add a worker");
    await done(REFUSALS);
  });

  test("a token that is not to be trusted, or fits nobody here, signs nobody in", async () => {
    const { page, done } = await visit("/console/events");
    for (const [claims, words] of [
      [{ ...viewer, nonce: "of another browser" }, "it was made for another browser"],
      [{ ...viewer, treadle_tenant: "nobody" }, "`treadle_tenant` does not name a tenant"],
    ]) {
      await goAnd(page, "text=Sign in as ann", claims);
      await isOut(page, words);
      assert.match(page.url(), /then=%2Fconsole%2Fevents/);
    }
    await done(REFUSALS);
  });

  test("an answer of the provider is good once, and in one browser", async () => {
    const { page, done } = await visit("/console/events");
    await page.click(WITH_PROVIDER);
    await page.waitForSelector("text=Sign in as ann");
    const pending = await page.context().cookies(`${provider.redirect}`);
    assert.deepEqual(
      pending.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]),
      [["treadle_sign_in", true, "Lax"]],
    );
    provider.claims = viewer;
    const coming = page.waitForRequest(/session\/callback\?/);
    await page.click("text=Sign in as ann");
    const callback = (await coming).url();
    await page.waitForURL(`${base}/console/events`);
    await page.waitForSelector(".account >> text=subject ann");

    await page.goto(callback);
    await page.waitForSelector(
      "text=The sign-in took too long, or began in another browser or tab.",
    );
    await page.waitForSelector(".sign-in >> text=You are signed in as subject ann");

    const other = await visit("/console/sign-in");
    await other.page.waitForSelector(WITH_PROVIDER);
    await other.page.goto(callback);
    await isOut(other.page, "The sign-in took too long, or began in another browser or tab.");
    // Not even with what the first browser kept: the provider gives nothing for a code again.
    await other.page.context().addCookies(pending);
    await other.page.goto(callback);
    await isOut(other.page, "The identity provider issued no token");
    assert.deepEqual(provider.refused, ["invalid_grant: the code is not known, or was used"]);
    await other.done(REFUSALS);
    await done(REFUSALS);
  });
});
