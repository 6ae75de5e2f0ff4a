"""The world `placement`: which worker a program goes to."""

from dataclasses import dataclass
from typing import Any, Callable, Sequence, TypeVar

from . import guest, policy
from .errors import PolicyError
from .policy import Columns, Extra, Phase

C = TypeVar("C")

NOWHERE = 4294967295
"""Stands for no worker in `last_worker`."""

NO_CLASS = 4294967295
"""Stands for no class in `hardware_class` and `preferred_class`."""

NO_GROUP = 4294967295
"""Stands for a worker that steps by itself in `lockstep_group`."""


@dataclass(slots=True)
class WorkerColumns(Columns):
    """Workers, one row each."""

    capacity_tokens: Sequence[int]
    """KV cache, in tokens; 0 if unknown."""
    used_tokens: Sequence[int]
    """Tokens that it is charged for."""
    running: Sequence[int]
    """Steps that it runs."""
    token_us: Sequence[float]
    """Time that it takes for a token while it runs one step, in microseconds; -1 until enough
    steps were seen."""
    step_us: Sequence[float]
    """Time that each further step adds to this, in microseconds; -1 if unknown."""
    prefill_us: Sequence[float]
    """Time per prompt token, in microseconds; -1 if unknown."""
    hardware_class: Sequence[int]
    """Number of its class of hardware in this call, `NO_CLASS` for none."""
    lockstep_group: Sequence[int]
    """Number, in this call, of the workers with which it steps together: ranks of one endpoint,
    whose steps all take as long as at the one with most to do. `NO_GROUP` if it steps by itself."""


@dataclass(slots=True)
class AssignColumns(Columns):
    """Programs that are about to get a place, one row each, and the workers."""

    group: Sequence[int]
    """An opaque number, the same for programs of one group: samples of one task."""
    tokens: Sequence[int]
    """Context that the place must hold."""
    remaining_tokens: Sequence[float]
    """Predicted tokens still to be generated, -1 without a prediction."""
    last_worker: Sequence[int]
    """Where it was placed last, `NOWHERE` for nowhere."""
    growth: Sequence[float]
    """Growth of its job's contexts in tokens per generated token, including tool results; -1 if
    unknown."""
    tool_us: Sequence[float]
    """Time in tools of its job per generated token, in microseconds; -1 if unknown."""
    preferred_class: Sequence[int]
    """Number of the class of hardware that it prefers, `NO_CLASS` for none."""
    workers: WorkerColumns
    """The workers to choose from."""
    extra: Extra
    """Further columns by their names."""


@dataclass(slots=True)
class RouteColumns(Columns):
    """Workers that could take one step, one row each."""

    tokens: int
    """Context length of the step's program."""
    cached_tokens: Sequence[int]
    """How much of it each worker is believed to hold."""
    workers: WorkerColumns
    """The workers to choose from."""
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
    """Predicted tokens still to be generated, -1 without a prediction."""
    phase: Sequence[Phase]
    """While a program acts, a move is hidden."""
    growth: Sequence[float]
    """Growth of its job's contexts in tokens per generated token, including tool results; -1 if
    unknown."""
    tool_us: Sequence[float]
    """Time in tools of its job per generated token, in microseconds; -1 if unknown."""
    preferred_class: Sequence[int]
    """Number of the class of hardware that it prefers, `NO_CLASS` for none."""
    workers: WorkerColumns
    """The workers to choose from."""
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
    slot = guest.Slot(policy_class, Policy, ("assign", "route", "migrate"), ("assign",))

    def placed(columns_class: Callable[..., C], record: Any) -> C:
        workers = slot.columns(WorkerColumns, record.workers)
        return slot.columns(columns_class, record, workers=workers)

    class PlacementPolicy:
        def assign(self, programs: Any) -> list[int]:
            columns = placed(AssignColumns, programs)
            return slot.ask(lambda policy: list(policy.assign(columns)))

        def route(self, workers: Any) -> list[float]:
            columns = placed(RouteColumns, workers)
            return slot.ask(lambda policy: list(policy.route(columns)))

        def migrate(self, programs: Any) -> list[int]:
            columns = placed(MigrateColumns, programs)
            return slot.ask(lambda policy: list(policy.migrate(columns)))

    return guest.plugin(slot), PlacementPolicy
