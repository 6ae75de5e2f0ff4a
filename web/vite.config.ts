// Builds the console; while developing, passes the daemon's own paths on to TREADLE_URL.
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const daemon = process.env.TREADLE_URL ?? "http://127.0.0.1:8300";
const paths = ["/api", "/v1", "/openapi.json", "/metrics", "/health"];

type Answer = [unknown, unknown, { flushHeaders: () => void }];

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    manifest: true,
  },
  server: {
    host: "127.0.0.1",
    // The Host header stays the browser's: the daemon compares it with the Origin.
    proxy: Object.fromEntries(
      paths.map((path) => [
        path,
        {
          target: daemon,
          changeOrigin: false,
          // An event stream begins with its head, long before there is an event.
          configure: (proxy: { on: (name: "proxyRes", then: (...all: Answer) => void) => void }) =>
            proxy.on("proxyRes", (_answer, _request, response) => response.flushHeaders()),
        },
      ]),
    ),
  },
});
