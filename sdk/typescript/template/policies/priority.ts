/** Orders the waiting queue; `treadle plugin build` makes a component of this module. */

import { bounded, definePriority } from "treadle-plugin";

export const { plugin, priorityPolicy } = definePriority({
  name: "@name@",
  version: "0.1.0",
  summary: "The program with the least left to do goes first, and waiting makes up for length",
  config: {
    age_weight: bounded(1, 0, 1e6, "Thousands of tokens that a second in the queue makes up for."),
  },

  score({ tokens, waitedMs, remainingTokens }, { config }) {
    return remainingTokens.map((left, row) => {
      // Where nothing was predicted, the context tells how long a program is.
      const length = left >= 0 ? left : tokens[row];
      return (waitedMs[row] * config.age_weight - length) / 1000;
    });
  },
});
