"""The world `eviction`: which programs keep their place in a worker's KV cache."""

from dataclasses import dataclass
from typing import Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra


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
    acting: bytes
    """1 while acting, 0 while reasoning."""
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
    reasoning: bytes
    """1 when an LLM call is ready to be sent, 0 while an action runs."""
    waited_ms: Sequence[int]
    """Time in the waiting queue, in milliseconds."""
    steps: Sequence[int]
    """LLM calls finished so far."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class ServiceColumns(Columns):
    """Services that may be unloaded, one row each."""

    bytes: Sequence[int]
    """Memory that it holds."""
    idle_ms: Sequence[int]
    """Time since it was used last, in milliseconds."""
    load_ms: Sequence[int]
    """Time to load it again, in milliseconds."""
    uses: Sequence[int]
    """Times that it was used in the last hour."""
    extra: Extra
    """Further columns by their names."""


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

    def drop_order(self, services: ServiceColumns) -> Sequence[float]:
        """A finite score for each service; the highest is dropped first."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `EvictionPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, "weigh", "pause_order", "restore_order")
    return guest.plugin(slot), interface(slot)


def interface(slot: guest.Slot) -> type:
    """The class `EvictionPolicy` of a component."""

    class EvictionPolicy:
        def weigh(
            self,
            tokens: list[int],
            phase_ms: list[int],
            extra: list[float],
        ) -> list[float]:
            columns = ActingColumns(
                tokens,
                phase_ms,
                slot.extra(extra, len(tokens)),
            )
            return slot.ask(lambda policy: list(policy.weigh(columns)))

        def pause_order(
            self,
            tokens: list[int],
            acting: bytes,
            phase_ms: list[int],
            steps: list[int],
            extra: list[float],
        ) -> list[float]:
            columns = ActiveColumns(
                tokens,
                acting,
                phase_ms,
                steps,
                slot.extra(extra, len(tokens)),
            )
            return slot.ask(lambda policy: list(policy.pause_order(columns)))

        def restore_order(
            self,
            tokens: list[int],
            reasoning: bytes,
            waited_ms: list[int],
            steps: list[int],
            extra: list[float],
        ) -> list[float]:
            columns = WaitingColumns(
                tokens,
                reasoning,
                waited_ms,
                steps,
                slot.extra(extra, len(tokens)),
            )
            return slot.ask(lambda policy: list(policy.restore_order(columns)))

        def drop_order(
            self,
            bytes: list[int],
            idle_ms: list[int],
            load_ms: list[int],
            uses: list[int],
            extra: list[float],
        ) -> list[float]:
            columns = ServiceColumns(
                bytes,
                idle_ms,
                load_ms,
                uses,
                slot.extra(extra, len(bytes)),
            )
            return slot.ask(lambda policy: list(policy.drop_order(columns)))

    return EvictionPolicy
