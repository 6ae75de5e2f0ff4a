"""Pauses and restores programs; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import Phase, bounded, eviction


@dataclass
class Config:
    """Keys of the configuration."""

    grace_ms: int = bounded(
        2000,
        1,
        86_400_000,
        "Time in a tool call during which a program counts in full, in milliseconds.",
    )


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
            float(ms) if phase is Phase.ACTING else -1.0 - ms
            for phase, ms in zip(programs.phase, programs.phase_ms)
        ]

    def restore_order(self, programs: eviction.WaitingColumns) -> list[float]:
        return [float(waited) for waited in programs.waited_ms]


Plugin, EvictionPolicy = eviction.export(LongestActing)
