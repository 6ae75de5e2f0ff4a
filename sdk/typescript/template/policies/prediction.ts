/** Predicts what programs need; `treadle plugin build` makes a component of this module. */

import { bounded, definePrediction, PolicyError } from "treadle-plugin";

/** Bytes of a snapshot: two numbers. */
const SNAPSHOT_BYTES = 16;

export const { plugin, predictionPolicy } = definePrediction({
  name: "@name@",
  version: "0.1.0",
  summary: "Every program has left what programs had left so far, on average",
  config: {
    prior_tokens: bounded(2000, 0, 1e9, "Tokens still to come, before anything was learnt."),
    tool_s: bounded(1, 0, 1e9, "Seconds still to be spent in tools."),
  },

  begin: () => ({ rows: 0, sumTokens: 0 }),

  predict({ group }, { config, state }) {
    const mean = state.rows > 0 ? state.sumTokens / state.rows : config.prior_tokens;
    return {
      remainingTokens: group.map(() => mean),
      remainingTokensP90: group.map(() => 2 * mean),
      remainingToolS: group.map(() => config.tool_s),
    };
  },

  learn({ remainingTokens }, { state }) {
    state.rows += remainingTokens.length;
    state.sumTokens += remainingTokens.reduce((sum, tokens) => sum + tokens, 0);
  },

  snapshot({ state }) {
    return new Uint8Array(Float64Array.of(state.rows, state.sumTokens).buffer);
  },

  restore(snapshot, self) {
    if (snapshot.length !== SNAPSHOT_BYTES) {
      throw PolicyError.failed("the snapshot is another policy's; begin without it");
    }
    const [rows, sumTokens] = new Float64Array(snapshot.slice().buffer);
    self.state = { rows, sumTokens };
  },
});
