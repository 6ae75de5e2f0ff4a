"""Shares out resources; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import allocation, bounded


@dataclass
class Config:
    """Keys of the configuration."""

    reserve_units: int = bounded(0, 0, 1_000_000, "Units of each pool that are never granted.")


class LongestWaiting(allocation.Policy):
    """The actions that have waited longest get the least that they can run with."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def grant(self, actions: allocation.GrantColumns) -> list[int]:
        free = [units - self.config.reserve_units for units in actions.free_units]
        granted = [0] * len(actions)
        # On equal times the first row goes first, because sorting is stable.
        for row in sorted(range(len(actions)), key=lambda row: -actions.waited_ms[row]):
            pool, units = actions.pool[row], actions.units_min[row]
            if free[pool] >= units:
                free[pool] -= units
                granted[row] = units
        return granted


Plugin, AllocationPolicy = allocation.export(LongestWaiting)
