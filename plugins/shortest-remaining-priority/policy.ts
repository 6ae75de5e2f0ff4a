/** Shortest remaining work first, with ageing so that long programs are not starved. */

import { bounded, definePriority } from "treadle-plugin";

export const { plugin, priorityPolicy } = definePriority({
  name: "shortest-remaining-priority",
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
