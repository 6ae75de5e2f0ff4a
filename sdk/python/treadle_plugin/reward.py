"""The world `reward`: what a finished program is worth, and which are trained on."""

from dataclasses import dataclass, field
from typing import Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra


@dataclass(slots=True)
class AnswerColumns(Columns):
    """Finished programs, one row each."""

    answer: Sequence[str]
    """The program's final answer."""
    reference: Sequence[str]
    """What it is compared with; empty where there is none."""
    output_tokens: Sequence[int]
    """Tokens generated, all steps together."""
    steps: Sequence[int]
    """LLM calls."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class CandidateColumns(Columns):
    """Finished programs that could be trained on, one row each."""

    group: Sequence[int]
    """An opaque number, the same for programs with the same prompt."""
    reward: Sequence[float]
    """What `score` gave."""
    staleness: Sequence[int]
    """How many weight versions old the program is."""
    output_tokens: Sequence[int]
    """Tokens generated, all steps together."""
    wanted: int
    """The most rows that may be selected."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class Scores:
    """Rewards of programs, and the parts that make them up."""

    totals: Sequence[float]
    """The reward of each program, finite."""
    parts: dict[str, Sequence[float]] = field(default_factory=dict)
    """Parts by their names, each as long as `totals`; may be empty."""


class Policy(policy.Policy):
    """A policy of this world."""

    def score(self, programs: AnswerColumns) -> Scores:
        """Rewards of finished programs."""
        raise NotImplementedError

    def select(self, programs: CandidateColumns) -> Sequence[int]:
        """The rows to train on: distinct, at most `wanted`, best first."""
        raise PolicyError.not_supported()


_Scores = guest.record("reward_policy", "Scores")


def _record(scores: Scores) -> object:
    """Scores as the component model knows them."""
    parts = [value for part in scores.parts.values() for value in part]
    return _Scores(list(scores.totals), list(scores.parts), parts)


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `RewardPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, "score")

    class RewardPolicy:
        def score(
            self,
            answer: list[str],
            reference: list[str],
            output_tokens: list[int],
            steps: list[int],
            extra: list[float],
        ) -> object:
            columns = AnswerColumns(
                answer,
                reference,
                output_tokens,
                steps,
                slot.extra(extra, len(answer)),
            )
            return slot.ask(lambda policy: _record(policy.score(columns)))

        def select(
            self,
            group: list[int],
            reward: list[float],
            staleness: list[int],
            output_tokens: list[int],
            wanted: int,
            extra: list[float],
        ) -> list[int]:
            columns = CandidateColumns(
                group,
                reward,
                staleness,
                output_tokens,
                wanted,
                slot.extra(extra, len(group)),
            )
            return slot.ask(lambda policy: list(policy.select(columns)))

    return guest.plugin(slot), RewardPolicy
