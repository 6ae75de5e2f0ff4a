/** Pauses and restores programs; `treadle plugin build` makes a component of this module. */

import { defineEviction, whole } from "treadle-plugin";

export const { plugin, evictionPolicy } = defineEviction({
  name: "@name@",
  version: "0.1.0",
  summary: "Pauses the program that acts longest and restores first come, first served",
  config: {
    grace_ms: whole(2000, 1, 86_400_000, "Time in a tool call during which a program counts in full, in milliseconds."),
  },

  weigh({ phaseMs }, { config }) {
    const grace = config.grace_ms;
    return phaseMs.map((phase) => (phase <= grace ? 1 : grace / phase));
  },

  pauseOrder({ phase, phaseMs }) {
    // Any acting program goes before all that reason.
    return phaseMs.map((ms, row) => (phase[row] === "acting" ? ms : -1 - ms));
  },

  restoreOrder({ waitedMs }) {
    return waitedMs;
  },
});
