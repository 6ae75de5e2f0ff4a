/** Orders the waiting queue; `treadle plugin build` makes a component of this module. */

import { definePriority, PolicyError } from "treadle-plugin";

export const { plugin, priorityPolicy } = definePriority({
  name: "@name@",
  version: "0.1.0",
  summary: "The program with the least left to do goes first, and waiting makes up for length",
  defaults: {
    /** Thousands of tokens that a second in the queue makes up for. */
    age_weight: 1,
  },

  check(config) {
    if (config.age_weight < 0) {
      throw PolicyError.invalidConfig("age_weight is negative; give 0 or more");
    }
  },

  score({ tokens, waitedMs, remainingTokens }, { config }) {
    return remainingTokens.map((left, row) => {
      // Where nothing was predicted, the context tells how long a program is.
      const length = left >= 0 ? left : tokens[row];
      return (waitedMs[row] * config.age_weight - length) / 1000;
    });
  },
});
