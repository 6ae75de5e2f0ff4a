// Compresses what the daemon serves, once, when it is built.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants } from "node:zlib";

const dist = new URL("../dist/", import.meta.url);
const KINDS = /\.(html|js|css|svg|json)$/;
// With less to gain they are served as they are.
const BYTES_MIN = 1024;

for (const name of readdirSync(dist, { recursive: true })) {
  if (!KINDS.test(name) || name.startsWith(".")) continue;
  const whole = readFileSync(new URL(name, dist));
  if (whole.length < BYTES_MIN) continue;
  const small = brotliCompressSync(whole, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11 },
  });
  if (small.length < whole.length) writeFileSync(new URL(`${name}.br`, dist), small);
}
