"""Predicts what programs need; `treadle plugin build` makes a component of this module."""

import json
from dataclasses import dataclass

from treadle_plugin import bounded, prediction


@dataclass
class Config:
    """Keys of the configuration."""

    prior_tokens: float = bounded(
        2000.0, 0, 1e9, "Tokens still to come, before anything was learnt."
    )
    tool_s: float = bounded(1.0, 0, 1e9, "Seconds still to be spent in tools.")


class RunningMean(prediction.Policy):
    """Every program has left what programs had left so far, on average."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    rows = 0
    sum_tokens = 0

    def predict(self, programs: prediction.LiveColumns) -> prediction.Estimates:
        mean = self.sum_tokens / self.rows if self.rows else self.config.prior_tokens
        rows = len(programs)
        return prediction.Estimates([mean] * rows, [2 * mean] * rows, [self.config.tool_s] * rows)

    def learn(self, programs: prediction.FinishedColumns) -> None:
        self.rows += len(programs)
        self.sum_tokens += sum(programs.remaining_tokens)

    def snapshot(self) -> bytes:
        return json.dumps([self.rows, self.sum_tokens]).encode()

    def restore(self, snapshot: bytes) -> None:
        self.rows, self.sum_tokens = json.loads(snapshot)


Plugin, PredictionPolicy = prediction.export(RunningMean)
