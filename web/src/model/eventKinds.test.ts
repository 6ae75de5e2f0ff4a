// The list of kinds beside the core's own.
import { expect, it } from "vitest";
import { EVENT_KINDS } from "./eventKinds";

/** Where the core's events name their kinds: `Self::StepFailed { .. } => "step_failed"`. */
const SOURCES = import.meta.glob<string>(
  [
    "../../../host/core/src/event.rs",
    "../../../host/core/src/bindings.rs",
    "../../../host/core/src/*/event.rs",
  ],
  { query: "?raw", import: "default", eager: true },
);
const KIND_OF = /fn kind\(&self\) -> &'static str \{.*?\n {4}\}\n/gs;

it("the kinds to choose from are all that there are", () => {
  const functions = Object.values(SOURCES).flatMap((text) => text.match(KIND_OF) ?? []);
  const kinds = functions.flatMap((text) =>
    [...text.matchAll(/=> "(\w+)"/g)].map(([, kind]) => kind),
  );
  expect(kinds.length).toBeGreaterThan(40);
  expect(EVENT_KINDS).toEqual(kinds.sort());
});
