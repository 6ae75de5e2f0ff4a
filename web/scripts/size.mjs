// Fails where the JavaScript that the first page needs is larger than it may be, gzipped.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 350 * 1024;
const FIRST_PAGES = ["index.html", "src/pages/overview/Overview.tsx"];
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL(".vite/manifest.json", dist), "utf8"));

const files = new Set();
const seen = new Set();
function add(key) {
  const entry = manifest[key];
  if (!entry || seen.has(key)) return;
  seen.add(key);
  if (entry.file.endsWith(".js")) files.add(entry.file);
  for (const other of entry.imports ?? []) add(other);
}
for (const key of FIRST_PAGES) add(key);

let total = 0;
for (const file of files) {
  const size = gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length;
  total += size;
  console.log(`${String(size).padStart(8)}  ${file}`);
}
console.log(
  `${String(total).padStart(8)}  bytes of initial JavaScript, gzipped (at most ${LIMIT_BYTES})`,
);
if (total === 0 || total > LIMIT_BYTES) process.exit(1);
