"""The world `reward`: what a finished program is worth."""

from dataclasses import dataclass, field
from typing import Any, Sequence

from . import guest, policy
from .policy import Columns, Extra


@dataclass(slots=True)
class AnswerColumns(Columns):
    """Finished programs, one row each."""

    answer: Sequence[str]
    """The program's final answer."""
    reference: Sequence[str]
    """The expected answer; empty if unknown."""
    output_tokens: Sequence[int]
    """Tokens generated, all steps together."""
    steps: Sequence[int]
    """LLM calls."""
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


_Scores = guest.record("reward_policy", "Scores")


def _record(scores: Scores) -> object:
    """Scores as the component model knows them."""
    parts = [value for part in scores.parts.values() for value in part]
    return _Scores(list(scores.totals), list(scores.parts), parts)


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `RewardPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, ("score",), ("score",))

    class RewardPolicy:
        def score(self, programs: Any) -> object:
            columns = slot.columns(AnswerColumns, programs)
            return slot.ask(lambda policy: _record(policy.score(columns)))

    return guest.plugin(slot), RewardPolicy
