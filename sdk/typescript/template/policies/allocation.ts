/** Shares out resources; `treadle plugin build` makes a component of this module. */

import { defineAllocation, whole } from "treadle-plugin";

export const { plugin, allocationPolicy } = defineAllocation({
  name: "@name@",
  version: "0.1.0",
  summary: "The actions that have waited longest get the least that they can run with",
  config: {
    reserve_units: whole(0, 0, 1_000_000, "Units of each pool that are never granted."),
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
