"""Judges finished programs; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import bounded, reward


@dataclass
class Config:
    """Keys of the configuration."""

    length_penalty: float = bounded(0.125, 0, 1e3, "What a thousand generated tokens cost.")


class ExactMatch(reward.Policy):
    """One for the reference's answer, less a penalty for length."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def score(self, programs: reward.AnswerColumns) -> reward.Scores:
        correct = [
            1.0 if answer.strip() == reference.strip() else 0.0
            for answer, reference in zip(programs.answer, programs.reference)
        ]
        penalty = self.config.length_penalty
        length = [-penalty * tokens / 1000 for tokens in programs.output_tokens]
        totals = [a + b for a, b in zip(correct, length)]
        return reward.Scores(totals, {"correct": correct, "length": length})


Plugin, RewardPolicy = reward.export(ExactMatch)
