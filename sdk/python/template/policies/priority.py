"""Orders the waiting queue; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import bounded, priority


@dataclass
class Config:
    """Keys of the configuration."""

    age_weight: float = bounded(
        1.0, 0, 1e6, "Thousands of tokens that a second in the queue makes up for."
    )


class ShortestRemaining(priority.Policy):
    """The program with the least left to do goes first, and waiting makes up for length."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def score(self, programs: priority.QueueColumns) -> list[float]:
        weight = self.config.age_weight
        columns = zip(programs.tokens, programs.waited_ms, programs.remaining_tokens)
        # Where nothing was predicted, the context tells how long a program is.
        return [
            (waited * weight - (left if left >= 0 else tokens)) / 1000
            for tokens, waited, left in columns
        ]


Plugin, PriorityPolicy = priority.export(ShortestRemaining)
