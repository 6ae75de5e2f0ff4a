// Keys reach every span.
import { expect, it } from "vitest";
import type { Lane } from "../../model/timeline";
import { walk } from "./walk";

const lane = (id: string, ...from: number[]): Lane => ({
  id,
  label: id,
  spans: from.map((at) => ({ state: "decode", from: at, to: at + 5, label: "" })),
});
const lanes = [lane("a"), lane("b", 0, 10, 20), lane("c"), lane("d", 12)];

it("leads along a lane and to the next one that has spans", () => {
  const first = walk(lanes, null, "ArrowDown", 8);
  expect(first).toEqual({ lane: 1, span: 1 });
  expect(walk(lanes, first, "ArrowRight", 0)).toEqual({ lane: 1, span: 2 });
  expect(walk(lanes, { lane: 1, span: 2 }, "ArrowRight", 0)).toEqual({ lane: 1, span: 2 });
  expect(walk(lanes, first, "Home", 0)).toEqual({ lane: 1, span: 0 });
  expect(walk(lanes, first, "ArrowDown", 0)).toEqual({ lane: 3, span: 0 });
  expect(walk(lanes, { lane: 3, span: 0 }, "ArrowUp", 0)).toEqual({ lane: 1, span: 1 });
  expect(walk(lanes, first, "ArrowUp", 0)).toEqual(first);
  expect(walk(lanes, first, "x", 0)).toBeNull();
});
