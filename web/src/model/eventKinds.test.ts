// The list of kinds beside the core's own.
import { expect, it } from "vitest";
import { EVENT_KINDS } from "./eventKinds";

/** Where the core's events name their kinds: `StepFailed = "step_failed",`. */
const SOURCES = import.meta.glob<string>(
  [
    "../../../host/core/machine/src/daemon.rs",
    "../../../host/core/src/bindings.rs",
    "../../../host/core/src/*/event.rs",
    "../../../host/core/*/src/event.rs",
  ],
  { query: "?raw", import: "default", eager: true },
);
const NAMES = /^kinds! \{.*?\n\}\n/gms;

it("the kinds to choose from are all that there are", () => {
  const lists = Object.values(SOURCES).flatMap((text) => text.match(NAMES) ?? []);
  const kinds = lists.flatMap((text) => [...text.matchAll(/ = "(\w+)"/g)].map(([, kind]) => kind));
  expect(kinds.length).toBeGreaterThan(40);
  expect(EVENT_KINDS).toEqual(kinds.sort());
});
