"""The world `allocation`: how much of a resource each consumer gets."""

from dataclasses import dataclass
from typing import Sequence

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
    """Expected run time with `units_min`, -1 where it is not known."""
    free_units: Sequence[int]
    """What each pool has left; one entry per pool."""
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
    capacity_tokens: Sequence[int]
    """KV cache of one worker of that degree."""
    expected_tokens: Sequence[int]
    """Expected length of each program that is to run."""

    def __len__(self) -> int:
        return len(self.degree)


@dataclass(slots=True)
class RedundancyColumns(Columns):
    """Prompts whose rollouts run, one row each."""

    wanted: Sequence[int]
    """Finished rollouts that training needs."""
    finished: Sequence[int]
    """Rollouts that have finished."""
    running: Sequence[int]
    """Rollouts that run."""
    failed: Sequence[int]
    """Rollouts that failed."""
    running_ms: Sequence[int]
    """How long the oldest running one has run, in milliseconds."""
    extra: Extra
    """Further columns by their names."""


class Policy(policy.Policy):
    """A policy of this world."""

    def grant(self, actions: GrantColumns) -> Sequence[int]:
        """Units for each action: 0 to let it wait, else within its bounds and its pool."""
        raise NotImplementedError

    def parallelism(self, degrees: ParallelismColumns) -> Sequence[int]:
        """Workers of each degree; degrees times counts add up to at most `gpus`."""
        raise PolicyError.not_supported()

    def redundancy(self, prompts: RedundancyColumns) -> Sequence[int]:
        """Further rollouts to start now for each prompt."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `AllocationPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, "grant")

    class AllocationPolicy:
        def grant(
            self,
            pool: list[int],
            units_min: list[int],
            units_max: list[int],
            waited_ms: list[int],
            expected_ms: list[float],
            free_units: list[int],
            extra: list[float],
        ) -> list[int]:
            columns = GrantColumns(
                pool,
                units_min,
                units_max,
                waited_ms,
                expected_ms,
                free_units,
                slot.extra(extra, len(pool)),
            )
            return slot.ask(lambda policy: list(policy.grant(columns)))

        def parallelism(
            self,
            gpus: int,
            degree: list[int],
            token_us: list[float],
            capacity_tokens: list[int],
            expected_tokens: list[int],
        ) -> list[int]:
            columns = ParallelismColumns(
                gpus,
                degree,
                token_us,
                capacity_tokens,
                expected_tokens,
            )
            return slot.ask(lambda policy: list(policy.parallelism(columns)))

        def redundancy(
            self,
            wanted: list[int],
            finished: list[int],
            running: list[int],
            failed: list[int],
            running_ms: list[int],
            extra: list[float],
        ) -> list[int]:
            columns = RedundancyColumns(
                wanted,
                finished,
                running,
                failed,
                running_ms,
                slot.extra(extra, len(wanted)),
            )
            return slot.ask(lambda policy: list(policy.redundancy(columns)))

    return guest.plugin(slot), AllocationPolicy
