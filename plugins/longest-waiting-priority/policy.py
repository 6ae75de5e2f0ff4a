"""First come, first served, but what is half done is finished before more is begun."""

from dataclasses import dataclass

from treadle_plugin import bounded, priority


@dataclass
class Config:
    """Keys of the configuration."""

    step_bonus_ms: float = bounded(
        5000.0, 0, 1e9, "Waiting time that each finished step counts as, in milliseconds."
    )


class LongestWaiting(priority.Policy):
    """The program that has waited longest goes first, and finished steps count as waiting."""

    name = "longest-waiting-priority"
    version = "0.1.0"
    Config = Config

    def score(self, programs: priority.QueueColumns) -> list[float]:
        bonus = self.config.step_bonus_ms
        return [
            waited + bonus * steps
            for waited, steps in zip(programs.waited_ms, programs.steps)
        ]


Plugin, PriorityPolicy = priority.export(LongestWaiting)
