"""The world `placement`: which worker a program goes to."""

from dataclasses import dataclass
from typing import Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra

NOWHERE = 4294967295
"""Stands for no worker in `last_worker`."""


@dataclass(slots=True)
class AssignColumns(Columns):
    """Programs that are about to get a place, one row each, and the workers."""

    group: Sequence[int]
    """An opaque number, the same for programs with the same prompt."""
    tokens: Sequence[int]
    """Context that the place must hold."""
    remaining_tokens: Sequence[float]
    """Predicted tokens still to be generated, -1 where nothing was predicted."""
    last_worker: Sequence[int]
    """Where it was placed last, `NOWHERE` for nowhere."""
    worker_capacity_tokens: Sequence[int]
    """KV cache of each worker, in tokens; 0 where it is not known."""
    worker_used_tokens: Sequence[int]
    """Tokens that each worker is charged for."""
    worker_running: Sequence[int]
    """Steps that each worker runs."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class RouteColumns(Columns):
    """Workers that could take one step, one row each."""

    tokens: int
    """Context length of the step's program."""
    cached_tokens: Sequence[int]
    """How much of it each worker is believed to hold."""
    worker_capacity_tokens: Sequence[int]
    """KV cache of each worker, in tokens; 0 where it is not known."""
    worker_used_tokens: Sequence[int]
    """Tokens that each worker is charged for."""
    worker_running: Sequence[int]
    """Steps that each worker runs."""
    extra: Extra
    """Further columns by their names."""

    def __len__(self) -> int:
        return len(self.cached_tokens)


@dataclass(slots=True)
class MigrateColumns(Columns):
    """Placed programs, one row each, and the workers."""

    at_worker: Sequence[int]
    """Where it is."""
    tokens: Sequence[int]
    """Context length."""
    remaining_tokens: Sequence[float]
    """Predicted tokens still to be generated, -1 where nothing was predicted."""
    acting: bytes
    """1 while acting, when a move is hidden, 0 while reasoning."""
    worker_capacity_tokens: Sequence[int]
    """KV cache of each worker, in tokens; 0 where it is not known."""
    worker_used_tokens: Sequence[int]
    """Tokens that each worker is charged for."""
    worker_running: Sequence[int]
    """Steps that each worker runs."""
    extra: Extra
    """Further columns by their names."""


class Policy(policy.Policy):
    """A policy of this world."""

    def assign(self, programs: AssignColumns) -> Sequence[int]:
        """A worker for each program, by its row in the worker columns."""
        raise NotImplementedError

    def route(self, workers: RouteColumns) -> Sequence[float]:
        """A finite score for each worker; the highest that has room takes the step."""
        raise PolicyError.not_supported()

    def migrate(self, programs: MigrateColumns) -> Sequence[int]:
        """The worker on which each program should be; its own for staying."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `PlacementPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, "assign")

    class PlacementPolicy:
        def assign(
            self,
            group: list[int],
            tokens: list[int],
            remaining_tokens: list[float],
            last_worker: list[int],
            worker_capacity_tokens: list[int],
            worker_used_tokens: list[int],
            worker_running: list[int],
            extra: list[float],
        ) -> list[int]:
            columns = AssignColumns(
                group,
                tokens,
                remaining_tokens,
                last_worker,
                worker_capacity_tokens,
                worker_used_tokens,
                worker_running,
                slot.extra(extra, len(group)),
            )
            return slot.ask(lambda policy: list(policy.assign(columns)))

        def route(
            self,
            tokens: int,
            cached_tokens: list[int],
            worker_capacity_tokens: list[int],
            worker_used_tokens: list[int],
            worker_running: list[int],
            extra: list[float],
        ) -> list[float]:
            columns = RouteColumns(
                tokens,
                cached_tokens,
                worker_capacity_tokens,
                worker_used_tokens,
                worker_running,
                slot.extra(extra, len(cached_tokens)),
            )
            return slot.ask(lambda policy: list(policy.route(columns)))

        def migrate(
            self,
            at_worker: list[int],
            tokens: list[int],
            remaining_tokens: list[float],
            acting: bytes,
            worker_capacity_tokens: list[int],
            worker_used_tokens: list[int],
            worker_running: list[int],
            extra: list[float],
        ) -> list[int]:
            columns = MigrateColumns(
                at_worker,
                tokens,
                remaining_tokens,
                acting,
                worker_capacity_tokens,
                worker_used_tokens,
                worker_running,
                slot.extra(extra, len(at_worker)),
            )
            return slot.ask(lambda policy: list(policy.migrate(columns)))

    return guest.plugin(slot), PlacementPolicy
