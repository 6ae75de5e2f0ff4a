"""The world `eviction-retention`: as `eviction`, and what becomes of the caches of programs that act."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Sequence

from . import eviction, guest
from .policy import Columns, Extra

NEVER = 2**64 - 1
"""The time of what cannot be done."""


class Fate(IntEnum):
    """What becomes of the KV cache of a program that acts."""

    KEEP = 0
    """It stays, and so does the program's place."""
    OFFLOAD = 1
    """It goes to host memory, and comes back with the program."""
    MIGRATE = 2
    """It goes to a worker with room."""
    DROP = 3
    """It is given up, and computed again when the program comes back."""


@dataclass(slots=True)
class RetentionColumns(Columns):
    """Programs that act at one worker, one row each; times in milliseconds."""

    tokens: Sequence[int]
    """Context length."""
    phase_ms: Sequence[int]
    """Time in the tool call so far."""
    idle_ms: Sequence[int]
    """Time that the tool call is expected to last yet, by those that had lasted as long."""
    soonest_ms: Sequence[int]
    """Time in which one in ten of such calls ended."""
    back_ms: Sequence[int]
    """Time to bring the cache back from host memory; `NEVER` where it cannot go there."""
    moved_ms: Sequence[int]
    """Time to move the cache to another worker; `NEVER` where it cannot be moved."""
    prefill_ms: Sequence[int]
    """Time to compute the cache again; 0 where the worker's pace is not known."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    extra: Extra
    """Further columns by their names."""


class Policy(eviction.Policy):
    """A policy of this world."""

    def retain(
        self,
        capacity_tokens: int,
        free_tokens: int,
        wanted_tokens: int,
        programs: RetentionColumns,
    ) -> Sequence[Fate]:
        """What becomes of each cache. The worker holds `capacity_tokens`; `free_tokens` are left below the low watermark, below 0
        when the worker holds more; programs without a place wait for `wanted_tokens`."""
        raise NotImplementedError


def export(policy_class: type[Policy]) -> tuple[type, type, type]:
    """The classes `Plugin`, `EvictionPolicy` and `RetentionPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, "weigh", "pause_order", "restore_order", "retain")

    class RetentionPolicy:
        def retain(
            self,
            capacity_tokens: int,
            free_tokens: int,
            wanted_tokens: int,
            tokens: list[int],
            phase_ms: list[int],
            idle_ms: list[int],
            soonest_ms: list[int],
            back_ms: list[int],
            moved_ms: list[int],
            prefill_ms: list[int],
            steps: list[int],
            extra: list[float],
        ) -> bytes:
            columns = RetentionColumns(
                tokens,
                phase_ms,
                idle_ms,
                soonest_ms,
                back_ms,
                moved_ms,
                prefill_ms,
                steps,
                slot.extra(extra, len(tokens)),
            )
            return slot.ask(
                lambda policy: bytes(
                    policy.retain(capacity_tokens, free_tokens, wanted_tokens, columns)
                )
            )

    return guest.plugin(slot), eviction.interface(slot), RetentionPolicy
