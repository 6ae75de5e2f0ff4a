/** Judges finished programs; `treadle plugin build` makes a component of this module. */

import { bounded, defineReward } from "treadle-plugin";

export const { plugin, rewardPolicy } = defineReward({
  name: "@name@",
  version: "0.1.0",
  summary: "One for the reference's answer, less a penalty for length",
  config: {
    length_penalty: bounded(0.125, 0, 1e3, "What a thousand generated tokens cost."),
  },

  score({ answer, reference, outputTokens }, { config }) {
    const correct = answer.map((text, row) => (text.trim() === reference[row].trim() ? 1 : 0));
    const length = outputTokens.map((tokens) => (-config.length_penalty * tokens) / 1000);
    return { totals: correct.map((value, row) => value + length[row]), parts: { correct, length } };
  },
});
