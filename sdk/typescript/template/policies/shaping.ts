/** Shapes the groups of training runs; `treadle plugin build` makes a component of this module. */

import { defineShaping, rowsOfGroups, RUNNING, TRUNCATED, type Verdict, whole } from "treadle-plugin";

export const { plugin, shapingPolicy } = defineShaping({
  name: "@name@",
  version: "0.1.0",
  summary: "Samples some members more than are trained, and trains the shortest that end first",
  config: {
    spares: whole(2, 0, 1024, "Members that each group samples beyond those it trains."),
  },

  size({ size, sizeMax }, { config }) {
    return size.map((trained, group) => Math.min(trained + config.spares, sizeMax[group]));
  },

  curtail(members) {
    const verdicts = members.group.map((): Verdict => "go-on");
    rowsOfGroups(members).forEach((rows, group) => {
      const running = rows.filter((row) => members.state[row] === RUNNING);
      if (rows.length - running.length >= members.groups.size[group]) {
        for (const row of running) verdicts[row] = "end";
      }
    });
    return verdicts;
  },

  select(members) {
    const selected = members.group.map(() => false);
    // What a limit ended counts as longest.
    const limited = (row: number) => Number(members.state[row] === TRUNCATED);
    rowsOfGroups(members).forEach((rows, group) => {
      rows.sort((a, b) => limited(a) - limited(b) || members.tokens[a] - members.tokens[b]);
      for (const row of rows.slice(0, members.groups.size[group])) selected[row] = true;
    });
    return selected;
  },
});
