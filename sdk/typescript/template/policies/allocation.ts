/** Shares out resources; `treadle plugin build` makes a component of this module. */

import { defineAllocation, PolicyError } from "treadle-plugin";

export const { plugin, allocationPolicy } = defineAllocation({
  name: "@name@",
  version: "0.1.0",
  summary: "The actions that have waited longest get the least that they can run with",
  defaults: {
    /** Units of each pool that are never granted. */
    reserve_units: 0,
  },

  check(config) {
    if (config.reserve_units < 0) {
      throw PolicyError.invalidConfig("reserve_units is negative; give 0 or more");
    }
  },

  grant({ pool, unitsMin, waitedMs, freeUnits }, { config }) {
    const free = freeUnits.map((units) => units - config.reserve_units);
    const granted = pool.map(() => 0);
    // On equal times the first row goes first, because sorting is stable.
    const order = Array.from(pool.keys()).sort((a, b) => waitedMs[b] - waitedMs[a]);
    for (const row of order) {
      if (free[pool[row]] >= unitsMin[row]) {
        free[pool[row]] -= unitsMin[row];
        granted[row] = unitsMin[row];
      }
    }
    return granted;
  },
});
