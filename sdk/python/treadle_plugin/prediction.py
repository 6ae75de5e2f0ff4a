"""The world `prediction`: how much of each program is still to come."""

from dataclasses import dataclass
from typing import Any, Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra


@dataclass(slots=True)
class LiveColumns(Columns):
    """Live programs, one row each."""

    group: Sequence[int]
    """An opaque number, the same for programs of one group: samples of one task."""
    tokens: Sequence[int]
    """Context length."""
    output_tokens: Sequence[int]
    """Tokens generated so far, all steps together."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    tool_ms: Sequence[int]
    """Time in tools so far, in milliseconds."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class FinishedColumns(Columns):
    """What was known at some step of a finished program, and what then came."""

    group: Sequence[int]
    """An opaque number, the same for programs of one group: samples of one task."""
    tokens: Sequence[int]
    """Context length."""
    output_tokens: Sequence[int]
    """Tokens generated until then, all steps together."""
    steps: Sequence[int]
    """LLM calls finished until then."""
    tool_ms: Sequence[int]
    """Time in tools until then, in milliseconds."""
    remaining_tokens: Sequence[int]
    """Tokens that were generated after that step."""
    remaining_tool_ms: Sequence[int]
    """Time in tools after that step, in milliseconds."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class Estimates:
    """Estimates, one entry per program in each list."""

    remaining_tokens: Sequence[float]
    """Tokens still to be generated: the mean, finite and not negative."""
    remaining_tokens_p90: Sequence[float]
    """Their 90th percentile, at least the mean."""
    remaining_tool_s: Sequence[float]
    """Seconds still to be spent in tools, finite and not negative."""


class Policy(policy.Policy):
    """A policy of this world."""

    def predict(self, programs: LiveColumns) -> Estimates:
        """Estimates for live programs."""
        raise NotImplementedError

    def learn(self, programs: FinishedColumns) -> None:
        """Takes in the truth about programs that have finished."""
        raise PolicyError.not_supported()


_Estimates = guest.record("prediction_policy", "Estimates")


def _record(estimates: Estimates) -> object:
    """Estimates as the component model knows them."""
    return _Estimates(
        list(estimates.remaining_tokens),
        list(estimates.remaining_tokens_p90),
        list(estimates.remaining_tool_s),
    )


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `PredictionPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, ("predict", "learn"), ("predict",))

    class PredictionPolicy:
        def predict(self, programs: Any) -> object:
            columns = slot.columns(LiveColumns, programs)
            return slot.ask(lambda policy: _record(policy.predict(columns)))

        def learn(self, programs: Any) -> None:
            columns = slot.columns(FinishedColumns, programs)
            return slot.ask(lambda policy: policy.learn(columns))

    return guest.plugin(slot), PredictionPolicy
