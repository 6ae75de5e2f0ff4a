// Serves web/dist as the daemon will: its paths, its cache headers, its content security policy.
// Everything else goes to a daemon. For tests and screenshots of the built console.
//
//   node scripts/serve.mjs --daemon http://127.0.0.1:8300 --port 8301
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { extname, join, normalize } from "node:path";
import { parseArgs } from "node:util";

export const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join("; ");

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

const dist = new URL("../dist", import.meta.url).pathname;
const headers = {
  "content-security-policy": CSP,
  "x-content-type-options": "nosniff",
  "referrer-policy": "same-origin",
};

function isPage(path) {
  return path === "/" || path === "/console" || path.startsWith("/console/");
}

function page(response) {
  response.writeHead(200, {
    ...headers,
    "content-type": TYPES[".html"],
    "cache-control": "no-cache",
  });
  response.end(readFileSync(join(dist, "index.html")));
}

function asset(path, response) {
  const file = join(dist, normalize(path));
  if (!existsSync(file)) {
    response.writeHead(404, headers).end();
    return;
  }
  const hashed = /-[\w-]{8}\.\w+$/.test(path);
  response.writeHead(200, {
    ...headers,
    "content-type": TYPES[extname(path)] ?? "application/octet-stream",
    "cache-control": hashed ? "public, max-age=31536000, immutable" : "no-cache",
  });
  createReadStream(file).pipe(response);
}

function forward(daemon, incoming, response) {
  const target = new URL(incoming.url, daemon);
  const outgoing = request(
    target,
    { method: incoming.method, headers: incoming.headers },
    (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
    },
  );
  outgoing.on("error", () => {
    if (!response.headersSent) response.writeHead(502);
    response.end();
  });
  response.on("close", () => outgoing.destroy());
  incoming.pipe(outgoing);
}

/** Begins to serve; port 0 takes any that is free. */
export function serve(daemon, port) {
  const server = createServer((incoming, response) => {
    const { pathname } = new URL(incoming.url, "http://localhost");
    if (incoming.method === "GET" && isPage(pathname)) page(response);
    else if (pathname.startsWith("/assets/")) asset(pathname, response);
    else forward(daemon, incoming, response);
  });
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { values } = parseArgs({
    options: {
      daemon: { type: "string", default: "http://127.0.0.1:8300" },
      port: { type: "string", default: "8301" },
    },
  });
  const server = await serve(values.daemon, Number(values.port));
  console.log(`console on http://127.0.0.1:${server.address().port}/, daemon ${values.daemon}`);
}
