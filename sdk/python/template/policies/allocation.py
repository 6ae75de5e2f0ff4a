"""Shares out resources; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import allocation, bounded


@dataclass
class Config:
    """Keys of the configuration."""

    reserve_units: int = bounded(
        0, 0, 1_000_000, "Units of each pool that no action is started with."
    )


class FirstComeFirstServed(allocation.Policy):
    """The actions that came first start with the least that they can do with."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def arrange(self, actions: allocation.ActionColumns) -> list[int]:
        arrangement = allocation.Arrangement(actions)
        ended = [False] * len(actions.pools)
        for row, pool in enumerate(actions.pool):
            if not actions.is_candidate(row) or ended[pool]:
                continue
            units = [actions.option_units[option] for option in actions.options(row)]
            left = arrangement.free(pool).units - self.config.reserve_units
            is_there = bool(units) and units[0] <= left
            # The first that does not fit keeps those after it waiting.
            ended[pool] = not (is_there and arrangement.start(row, 0))
        return arrangement.answer()


Plugin, AllocationPolicy = allocation.export(FirstComeFirstServed)
