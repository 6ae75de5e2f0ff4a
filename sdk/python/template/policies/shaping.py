"""Shapes the groups of training runs; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import bounded, shaping
from treadle_plugin.shaping import RUNNING, TRUNCATED, Verdict


@dataclass
class Config:
    """Keys of the configuration."""

    spares: int = bounded(2, 0, 1024, "Members that each group samples beyond those it trains.")


class ShortestOfMore(shaping.Policy):
    """Samples some members more than are trained, and trains the shortest that end first."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def size(self, groups: shaping.GroupColumns) -> list[int]:
        spares = self.config.spares
        return [min(size + spares, most) for size, most in zip(groups.size, groups.size_max)]

    def curtail(self, members: shaping.MemberColumns) -> list[Verdict]:
        verdicts = [Verdict.GO_ON] * len(members)
        for rows, size in zip(members.of_groups(), members.groups.size):
            running = [row for row in rows if members.state[row] == RUNNING]
            if len(rows) - len(running) >= size:
                for row in running:
                    verdicts[row] = Verdict.END
        return verdicts

    def select(self, members: shaping.MemberColumns) -> list[bool]:
        selected = [False] * len(members)
        for rows, size in zip(members.of_groups(), members.groups.size):
            # What a limit ended counts as longest.
            rows.sort(key=lambda row: (members.state[row] == TRUNCATED, members.tokens[row]))
            for row in rows[:size]:
                selected[row] = True
        return selected


Plugin, ShapingPolicy = shaping.export(ShortestOfMore)
