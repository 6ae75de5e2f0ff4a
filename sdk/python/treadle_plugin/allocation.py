"""The world `allocation`: how much of a resource each consumer gets."""

from dataclasses import dataclass
from typing import Any, Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra


@dataclass(slots=True)
class GrantColumns(Columns):
    """Queued actions, one row each, and the pools."""

    pool: Sequence[int]
    """The row of `free_units` that the action draws from."""
    units_min: Sequence[int]
    """The least that it can run with."""
    units_max: Sequence[int]
    """The most that it can use."""
    waited_ms: Sequence[int]
    """Time in the queue, in milliseconds."""
    expected_ms: Sequence[float]
    """Expected run time with `units_min`, -1 if unknown."""
    free_units: Sequence[int]
    """Free units of each pool; one entry per pool."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class ParallelismColumns(Columns):
    """Degrees of tensor parallelism, one row each, and what is to run."""

    gpus: int
    """Devices to share out."""
    degree: Sequence[int]
    """Degrees that can be had, ascending."""
    token_us: Sequence[float]
    """Time per output token of one program alone, in microseconds."""
    step_us: Sequence[float]
    """Time that each further program adds to this, in microseconds, -1 if unknown."""
    prefill_us: Sequence[float]
    """Time per prompt token, in microseconds, -1 if unknown."""
    capacity_tokens: Sequence[int]
    """KV cache of one worker of that degree."""
    expected_tokens: Sequence[int]
    """Expected length of each program that is to run."""
    prompt_tokens: int
    """Context of a program in addition to generated tokens and tool results."""
    growth: float
    """Growth of contexts in tokens per generated token, -1 if unknown."""
    tool_us: float
    """Time in tools per generated token, in microseconds, -1 if unknown."""

    def __len__(self) -> int:
        return len(self.degree)


class Policy(policy.Policy):
    """A policy of this world."""

    def grant(self, actions: GrantColumns) -> Sequence[int]:
        """Units for each action: 0 to let it wait, else within its bounds and its pool."""
        raise NotImplementedError

    def parallelism(self, degrees: ParallelismColumns) -> Sequence[int]:
        """Workers of each degree; degrees times counts add up to at most `gpus`."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `AllocationPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, ("grant", "parallelism"), ("grant",))

    class AllocationPolicy:
        def grant(self, actions: Any) -> list[int]:
            columns = slot.columns(GrantColumns, actions)
            return slot.ask(lambda policy: list(policy.grant(columns)))

        def parallelism(self, degrees: Any) -> list[int]:
            columns = slot.columns(ParallelismColumns, degrees)
            return slot.ask(lambda policy: list(policy.parallelism(columns)))

    return guest.plugin(slot), AllocationPolicy
