// A stand-in for an identity provider, only for tests: OpenID Connect's authorization code flow with
// PKCE on this machine, one client, one person. It knows no password, and its key lives as long as it.
import { createHash, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";

const TOKEN_S = 600;
const KEY_ID = "stand-in";

const encoded = (value) => Buffer.from(value).toString("base64url");
const hashed = (text) => createHash("sha256").update(text).digest("base64url");

class Refusal extends Error {
  constructor(code, about) {
    super(about);
    this.code = code;
  }
}

function check(holds, code, about) {
  if (!holds) throw new Refusal(code, about);
}

/**
 * Starts one for a client with a secret. `redirect` of what it returns must be set to the address that
 * the client has registered; `claims` are those of the next tokens, over what it puts there itself.
 * Its own name is `localhost`: another site than the console's, as providers are.
 */
export async function startProvider({ client, secret }) {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const jwk = publicKey.export({ format: "jwk" });
  const codes = new Map();
  const provider = { redirect: "", claims: {}, refused: [] };

  const signed = (claims) => {
    const header = { alg: "ES256", typ: "JWT", kid: KEY_ID };
    const message = [header, claims].map((part) => encoded(JSON.stringify(part))).join(".");
    const signature = sign("sha256", message, { key: privateKey, dsaEncoding: "ieee-p1363" });
    return `${message}.${encoded(signature)}`;
  };

  const places = () => ({
    issuer: provider.issuer,
    authorization_endpoint: `${provider.issuer}/authorize`,
    token_endpoint: `${provider.issuer}/token`,
    jwks_uri: `${provider.issuer}/jwks`,
    response_types_supported: ["code"],
    subject_types_supported: ["public"],
    id_token_signing_alg_values_supported: ["ES256"],
    code_challenge_methods_supported: ["S256"],
  });

  /** What a browser asks for, if the client may have it. */
  const asked = (query) => {
    const ask = Object.fromEntries(query);
    check(ask.client_id === client, "unauthorized_client", `client ${ask.client_id}`);
    check(ask.redirect_uri === provider.redirect, "invalid_request", ask.redirect_uri);
    check(ask.response_type === "code", "unsupported_response_type", ask.response_type);
    check(ask.scope?.split(" ").includes("openid"), "invalid_scope", ask.scope);
    check(ask.code_challenge_method === "S256", "invalid_request", "only PKCE with S256");
    for (const name of ["state", "nonce", "code_challenge"]) {
      check(ask[name]?.length >= 43, "invalid_request", `${name} is too short`);
    }
    return ask;
  };

  /** Sends a browser back, with a code or with a refusal. */
  const answered = (ask, decision) => {
    const back = new URL(ask.redirect_uri);
    back.searchParams.set("state", ask.state);
    if (decision === "allow") {
      const code = randomUUID();
      codes.set(code, { ask, claims: provider.claims });
      back.searchParams.set("code", code);
    } else {
      back.searchParams.set("error", "access_denied");
      back.searchParams.set("error_description", "ann refused");
    }
    return back.href;
  };

  /** The token that a code is for: once, for the client that has the verifier. */
  const exchanged = (headers, form) => {
    const pair = `${encodeURIComponent(client)}:${encodeURIComponent(secret)}`;
    const basic = `Basic ${Buffer.from(pair).toString("base64")}`;
    check(headers.authorization === basic, "invalid_client", "not the client's secret");
    check(form.get("grant_type") === "authorization_code", "unsupported_grant_type", "grant");
    const held = codes.get(form.get("code"));
    codes.delete(form.get("code"));
    check(held, "invalid_grant", "the code is not known, or was used");
    const { ask, claims } = held;
    check(form.get("client_id") === client, "invalid_grant", "another client");
    check(form.get("redirect_uri") === ask.redirect_uri, "invalid_grant", "another address");
    const challenge = hashed(form.get("code_verifier") ?? "");
    check(challenge === ask.code_challenge, "invalid_grant", "the verifier is not of the code");
    const now = Math.floor(Date.now() / 1000);
    const own = { iss: provider.issuer, aud: client, sub: "ann", iat: now, exp: now + TOKEN_S };
    const id_token = signed({ ...own, nonce: ask.nonce, ...claims });
    return { token_type: "Bearer", access_token: randomUUID(), expires_in: TOKEN_S, id_token };
  };

  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, provider.issuer);
    const json = (value, status = 200) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    try {
      const route = `${request.method} ${pathname}`;
      if (route === "GET /.well-known/openid-configuration") json(places());
      else if (route === "GET /jwks") json({ keys: [{ ...jwk, use: "sig", kid: KEY_ID }] });
      else if (route === "GET /authorize") {
        asked(searchParams);
        response.writeHead(200, { "content-type": "text/html; charset=utf-8" });
        response.end(PAGE);
      } else if (route === "POST /authorize") {
        const form = new URLSearchParams(await bodyOf(request));
        const location = answered(asked(searchParams), form.get("decision"));
        response.writeHead(303, { location }).end();
      } else if (route === "POST /token") {
        json(exchanged(request.headers, new URLSearchParams(await bodyOf(request))));
      } else json({ error: "not_found" }, 404);
    } catch (error) {
      provider.refused.push(`${error.code}: ${error.message}`);
      json({ error: error.code, error_description: error.message }, 400);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  provider.issuer = `http://localhost:${server.address().port}`;
  provider.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return provider;
}

/** Posts to the address that it is at: what was asked for stays in the query. */
const PAGE = `<!doctype html>
<html lang="en"><title>Stand-in for an identity provider</title><link rel="icon" href="data:,">
<h1>A stand-in for an identity provider</h1>
<form method="post">
<button name="decision" value="allow">Sign in as ann</button>
<button name="decision" value="refuse">Refuse</button>
</form></html>`;

async function bodyOf(request) {
  let text = "";
  for await (const part of request.setEncoding("utf8")) text += part;
  return text;
}
