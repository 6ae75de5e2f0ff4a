// Facts about a worker, in words.
import { expect, it } from "vitest";
import { abilitiesOf } from "./parts";

it("what is not known of an engine is absent", () => {
  expect(abilitiesOf({ continues: false })).toEqual({
    can: [],
    cannot: ["stop in the middle of an answer and go on later"],
  });
  const known = { offload: true, migrate: false, missing: "a connector", continues: true };
  expect(abilitiesOf({ ...known, priorities: null })).toEqual({
    can: ["keep caches outside of its memory", "stop in the middle of an answer and go on later"],
    cannot: ["send caches to an engine of its kind"],
  });
});
