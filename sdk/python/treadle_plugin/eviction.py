"""The world `eviction`: which programs keep their place in a worker's KV cache."""

from dataclasses import dataclass
from typing import Any, Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import CacheAction, Columns, Extra, Phase


NEVER = 2**64 - 1
"""The time of what cannot be done."""


@dataclass(slots=True)
class ActingColumns(Columns):
    """Acting programs on one worker, one row each."""

    tokens: Sequence[int]
    """Context length."""
    phase_ms: Sequence[int]
    """Time in the tool call so far, in milliseconds."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class ActiveColumns(Columns):
    """Active programs on one worker, one row each."""

    tokens: Sequence[int]
    """Context length."""
    phase: Sequence[Phase]
    """What each does."""
    phase_ms: Sequence[int]
    """Time in the present phase, in milliseconds."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class WaitingColumns(Columns):
    """Waiting programs, one row each."""

    tokens: Sequence[int]
    """Context length."""
    phase: Sequence[Phase]
    """Reasoning where an LLM call is ready to be sent."""
    waited_ms: Sequence[int]
    """Time in the waiting queue, in milliseconds."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class RetentionColumns(Columns):
    """Programs that act at one worker, one row each; times in milliseconds."""

    capacity_tokens: int
    """Tokens that the worker holds; `NEVER` if unknown."""
    free_tokens: int
    """Tokens left below the worker's low watermark; below 0 when it holds more."""
    wanted_tokens: int
    """Tokens that programs without a place need that wait for one."""
    tokens: Sequence[int]
    """Context length."""
    phase_ms: Sequence[int]
    """Time in the tool call so far."""
    idle_ms: Sequence[int]
    """Time that the tool call is expected to last yet, by those that had lasted as long."""
    soonest_ms: Sequence[int]
    """Time in which one in ten of such calls ended."""
    back_ms: Sequence[int]
    """Time to bring the cache back from host memory; `NEVER` if it can't be offloaded."""
    moved_ms: Sequence[int]
    """Time to move the cache to another worker; `NEVER` if it can't be moved."""
    prefill_ms: Sequence[int]
    """Time to compute the cache again; 0 if the worker's speed is unknown."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    extra: Extra
    """Further columns by their names."""

    def __len__(self) -> int:
        return len(self.tokens)


class Policy(policy.Policy):
    """A policy of this world."""

    def weigh(self, programs: ActingColumns) -> Sequence[float]:
        """The share of each program's tokens that counts, within 0 and 1, no larger later."""
        raise NotImplementedError

    def pause_order(self, programs: ActiveColumns) -> Sequence[float]:
        """A finite score for each program; the highest is paused first."""
        raise NotImplementedError

    def restore_order(self, programs: WaitingColumns) -> Sequence[float]:
        """A finite score for each program; the highest is restored first."""
        raise NotImplementedError

    def retain(self, programs: RetentionColumns) -> Sequence[CacheAction]:
        """The action for each cache; one that can't be carried out counts as `KEEP`."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `EvictionPolicy` of a component."""
    functions = ("weigh", "pause_order", "restore_order", "retain")
    slot = guest.Slot(policy_class, Policy, functions, ("weigh", "pause_order", "restore_order"))

    class EvictionPolicy:
        def weigh(self, programs: Any) -> list[float]:
            columns = slot.columns(ActingColumns, programs)
            return slot.ask(lambda policy: list(policy.weigh(columns)))

        def pause_order(self, programs: Any) -> list[float]:
            columns = slot.columns(ActiveColumns, programs)
            return slot.ask(lambda policy: list(policy.pause_order(columns)))

        def restore_order(self, programs: Any) -> list[float]:
            columns = slot.columns(WaitingColumns, programs)
            return slot.ask(lambda policy: list(policy.restore_order(columns)))

        def retain(self, programs: Any) -> list[CacheAction]:
            columns = slot.columns(RetentionColumns, programs)
            return slot.ask(lambda policy: list(policy.retain(columns)))

    return guest.plugin(slot), EvictionPolicy
