/** Shares out resources; `treadle plugin build` makes a component of this module. */

import { Arrangement, defineAllocation, optionsOf, whole } from "treadle-plugin";

export const { plugin, allocationPolicy } = defineAllocation({
  name: "@name@",
  version: "0.1.0",
  summary: "The actions that came first start with the least that they can do with",
  config: {
    reserve_units: whole(0, 0, 1_000_000, "Units of each pool that no action is started with."),
  },

  arrange(actions, { config }) {
    const { pool, candidate, optionUnits, pools } = actions;
    const arrangement = new Arrangement(actions);
    const ended = pools.freeUnits.map(() => false);
    for (const row of pool.keys()) {
      if (candidate[row] === 0 || ended[pool[row]]) continue;
      const units = optionsOf(actions, row).map((option) => optionUnits[option]);
      const left = arrangement.free(pool[row]).units - config.reserve_units;
      const isThere = units.length > 0 && units[0] <= left;
      // The first that does not fit keeps those after it waiting.
      ended[pool[row]] = !(isThere && arrangement.start(row, 0));
    }
    return arrangement.answer();
  },
});
