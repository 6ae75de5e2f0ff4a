import { expect, test } from "vitest";
import type { ActionView } from "../api/types";
import { amounts, causeOf, endingOf, timesOf } from "./actions";

const action = (fields: object) =>
  ({ submitted_at_us: 10, status: "ended", cost: {}, given: {}, ...fields }) as ActionView;

test("only an action that ran to its end shows its code", () => {
  const told = (outcome: object) => endingOf(action({ outcome }));
  expect(told({ outcome: "exited", code: 0 })).toMatchObject({ text: "exit 0", tone: "good" });
  expect(told({ outcome: "exited", code: 1 })).toMatchObject({ text: "exit 1", tone: "accent" });
  expect(told({ outcome: "exited", code: 503 })).toMatchObject({ text: "status 503" });
  expect(told({ outcome: "killed", signal: 9 })).toMatchObject({ text: "killed by 9" });
  expect(told({ outcome: "unknown" })).toMatchObject({ tone: "warn" });
  expect(told({ outcome: "something_new" })).toMatchObject({ text: "something_new" });
  expect(endingOf(action({ status: "running" }))).toBeNull();
  const failed = action({ outcome: { outcome: "infrastructure_failure", cause: "no disk" } });
  expect(causeOf(failed)).toBe("no disk");
});

test("times are of the parts that there were", () => {
  expect(timesOf(action({ granted_at_us: 15, began_at_us: 18, ended_at_us: 30 }), 99)).toEqual({
    queue: 5,
    overhead: 3,
    run: 12,
  });
  const waits = { queue: 89, overhead: null, run: null };
  expect(timesOf(action({ status: "waiting" }), 99)).toEqual(waits);
});

test("amounts are those that people count in", () => {
  const gpu = { units: 2, node: 0, devices: [2, 3] };
  expect(amounts({ cpu: [1, 2], gpu })).toBe("cpu 1 or 2, gpu 2 (2, 3)");
  expect(amounts({})).toBe("–");
});
