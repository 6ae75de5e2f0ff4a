/** Pauses and restores programs; `treadle plugin build` makes a component of this module. */

import { defineEviction, PolicyError } from "treadle-plugin";

export const { plugin, evictionPolicy } = defineEviction({
  name: "@name@",
  version: "0.1.0",
  summary: "Pauses the program that acts longest and restores first come, first served",
  defaults: {
    /** Time in a tool call during which a program counts in full, in milliseconds. */
    grace_ms: 2000,
  },

  check(config) {
    if (config.grace_ms < 1) {
      throw PolicyError.invalidConfig("grace_ms is below 1; give a positive number");
    }
  },

  weigh({ phaseMs }, { config }) {
    const grace = config.grace_ms;
    return phaseMs.map((phase) => (phase <= grace ? 1 : grace / phase));
  },

  pauseOrder({ acting, phaseMs }) {
    // Any acting program goes before all that reason.
    return phaseMs.map((phase, row) => (acting[row] === 1 ? phase : -1 - phase));
  },

  restoreOrder({ waitedMs }) {
    return waitedMs;
  },
});
