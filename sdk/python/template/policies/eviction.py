"""Pauses and restores programs; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import PolicyError, eviction


@dataclass
class Config:
    """Keys of the configuration."""

    grace_ms: int = 2000
    """Time in a tool call during which a program counts in full, in milliseconds."""

    def __post_init__(self) -> None:
        if self.grace_ms < 1:
            raise PolicyError.invalid_config("grace_ms is below 1; give a positive number")


class LongestActing(eviction.Policy):
    """Pauses the program that acts longest and restores first come, first served."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def weigh(self, programs: eviction.ActingColumns) -> list[float]:
        grace = self.config.grace_ms
        return [1.0 if phase <= grace else grace / phase for phase in programs.phase_ms]

    def pause_order(self, programs: eviction.ActiveColumns) -> list[float]:
        # Any acting program goes before all that reason.
        return [
            float(phase) if acting else -1.0 - phase
            for acting, phase in zip(programs.acting, programs.phase_ms)
        ]

    def restore_order(self, programs: eviction.WaitingColumns) -> list[float]:
        return [float(waited) for waited in programs.waited_ms]


Plugin, EvictionPolicy = eviction.export(LongestActing)
