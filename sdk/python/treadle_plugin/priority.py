"""The world `priority`: who goes first among the programs that wait for a place."""

from dataclasses import dataclass
from typing import Any, Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra


@dataclass(slots=True)
class QueueColumns(Columns):
    """Waiting programs, one row each."""

    tokens: Sequence[int]
    """Context length."""
    output_tokens: Sequence[int]
    """Tokens generated so far, all steps together."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    waited_ms: Sequence[int]
    """Time in the queue, in milliseconds."""
    remaining_tokens: Sequence[float]
    """Predicted tokens still to be generated, -1 without a prediction."""
    remaining_tool_s: Sequence[float]
    """Predicted seconds still in tools, -1 without a prediction."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class PreemptColumns(Columns):
    """Running steps, one row each, and beside them what waits."""

    running_score: Sequence[float]
    """What `score` gave for the program of each running step."""
    running_ms: Sequence[int]
    """How long each step has run, in milliseconds."""
    waiting_score: Sequence[float]
    """What `score` gave for each waiting program."""


class Policy(policy.Policy):
    """A policy of this world."""

    def score(self, programs: QueueColumns) -> Sequence[float]:
        """A finite score for each program; the highest goes first."""
        raise NotImplementedError

    def preempt(self, steps: PreemptColumns) -> Sequence[bool]:
        """For each running step, whether to preempt it; at most as many as programs wait."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `PriorityPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, ("score", "preempt"), ("score",))

    class PriorityPolicy:
        def score(self, programs: Any) -> list[float]:
            columns = slot.columns(QueueColumns, programs)
            return slot.ask(lambda policy: list(policy.score(columns)))

        def preempt(self, steps: Any) -> list[bool]:
            columns = slot.columns(PreemptColumns, steps)
            return slot.ask(lambda policy: list(policy.preempt(columns)))

    return guest.plugin(slot), PriorityPolicy
