import { describe, expect, it } from "vitest";
import { setsOf, textOf } from "./sets";

describe("sets", () => {
  it("reads names and objects", () => {
    const sets = ["recorded", { name: "low", settings: { low_watermark_ppm: 700000 } }];
    expect(setsOf(textOf(sets))).toEqual({ sets, error: null });
  });
  it("says what is wrong", () => {
    const error = (text: string) => setsOf(text).error;
    expect(error("[")).toMatch(/^This is no JSON: /);
    expect(error('{"name": "a"}')).toMatch(/^Give a list/);
    expect(error("[]")).toBe("Give 1 to 8 sets.");
    expect(error(JSON.stringify(Array.from({ length: 9 }, (_, at) => `s${at}`)))).toMatch(/1 to 8/);
    expect(error('["a", {"mode": "sticky"}]')).toBe(
      "sets[1] is neither a name nor an object with a name.",
    );
    expect(error('["a", null]')).toMatch(/^sets\[1\]/);
    expect(error('["a", {"name": "a"}]')).toBe("Two sets are called a.");
  });
});
