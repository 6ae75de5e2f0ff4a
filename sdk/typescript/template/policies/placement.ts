/** Places programs on workers; `treadle plugin build` makes a component of this module. */

import { definePlacement, flag, PolicyError } from "treadle-plugin";

export const { plugin, placementPolicy } = definePlacement({
  name: "@name@",
  version: "0.1.0",
  summary: "A program goes back to its last worker, else to the one with the most room",
  config: {
    stay: flag(true, "Whether a program returns to its last worker if that has room."),
  },

  assign({ tokens, lastWorker, workers }, { config }) {
    const room = workers.capacityTokens.map((total, row) => total - workers.usedTokens[row]);
    if (room.length === 0) {
      throw PolicyError.failed("there is no worker; nothing can be placed");
    }
    return tokens.map((size, row) => {
      const last = lastWorker[row];
      const stays = config.stay && last < room.length && room[last] >= size;
      const worker = stays ? last : room.indexOf(Math.max(...room));
      room[worker] -= size;
      return worker;
    });
  },
});
