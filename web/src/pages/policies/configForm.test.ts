// Forms of configurations.
import { describe, expect, it } from "vitest";
import type { BindingShown, PluginDetails } from "../../api/types";
import { configFieldsOf, nestedConfigOf, presentConfig, textsOf } from "./configForm";

const number = { type: "number", minimum: 0 };
const schema = {
  properties: {
    hold: number,
    pace: { type: ["object", "null"], properties: { a: number, on: { type: "boolean" } } },
  },
};

describe("forms of configurations", () => {
  const fields = configFieldsOf(schema) ?? [];
  it("have the fields of objects, and give them back as objects", () => {
    expect(fields.map(({ key }) => key)).toEqual(["hold", "pace.a", "pace.on"]);
    const config = { hold: 0, pace: { a: 2, on: false } };
    const texts = textsOf(fields, config);
    expect(texts).toEqual({ hold: "0", "pace.a": "2", "pace.on": "false" });
    expect(nestedConfigOf(fields, texts)).toEqual({ config, errors: {} });
    expect(nestedConfigOf(fields, {}).config).toEqual({});
    expect(nestedConfigOf(fields, { "pace.a": "-1" }).errors).toEqual({ "pace.a": "At least 0." });
    expect(textsOf(fields, { hold: null, pace: null })).toEqual(textsOf(fields, {}));
  });
  it("are not made of lists, or of objects in objects", () => {
    const deep = { type: "object", properties: { b: schema } };
    for (const property of [{ type: "array" }, { type: "object" }, deep])
      expect(configFieldsOf({ properties: { property } })).toBeNull();
  });
});

describe("the present configuration", () => {
  const plugin = { name: "p", digest: "ab".repeat(32) } as PluginDetails;
  const binding = (active: string, previous: string) =>
    ({
      policy: active,
      previous,
      on_record: { active: { config: { hold: 1 } }, previous: { config: { hold: 2 } } },
    }) as unknown as BindingShown;
  it("is the policy's own, else another version's", () => {
    const own = `p@2+${"ab".repeat(6)}`;
    expect(presentConfig(plugin, binding("p@1+cdcd", own))?.config).toEqual({ hold: 2 });
    expect(presentConfig(plugin, binding("p@1+cdcd", "q@1+efef"))).toEqual({
      config: { hold: 1 },
      from: "p@1, active",
    });
    expect(presentConfig(plugin, binding("q@1+efef", "r@1+native"))).toBeNull();
    expect(presentConfig(plugin, undefined)).toBeNull();
  });
});
