/** Judges finished programs; `treadle plugin build` makes a component of this module. */

import { defineReward, PolicyError } from "treadle-plugin";

export const { plugin, rewardPolicy } = defineReward({
  name: "@name@",
  version: "0.1.0",
  summary: "One for the reference's answer, less a penalty for length",
  defaults: {
    /** What a thousand generated tokens cost. */
    length_penalty: 0.125,
  },

  check(config) {
    if (config.length_penalty < 0) {
      throw PolicyError.invalidConfig("length_penalty is negative; give 0 or more");
    }
  },

  score({ answer, reference, outputTokens }, { config }) {
    const correct = answer.map((text, row) => (text.trim() === reference[row].trim() ? 1 : 0));
    const length = outputTokens.map((tokens) => (-config.length_penalty * tokens) / 1000);
    return { totals: correct.map((value, row) => value + length[row]), parts: { correct, length } };
  },
});
