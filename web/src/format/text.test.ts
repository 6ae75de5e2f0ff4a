// Text of others as the console writes it.
import { describe, expect, it } from "vitest";
import { sentence } from "./text";

describe("a reason as a sentence", () => {
  it("begins with a capital and ends", () => {
    expect(sentence("the token has expired; get a new one")).toBe(
      "The token has expired; get a new one.",
    );
    expect(sentence(" Why? ")).toBe("Why?");
    expect(sentence("élan")).toBe("Élan.");
    expect(sentence("`treadle_tenant` is missing")).toBe("`treadle_tenant` is missing.");
    expect(sentence("")).toBe("");
  });
});
