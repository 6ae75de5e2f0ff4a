"""The world `allocation`: how much of a resource each consumer gets."""

from dataclasses import dataclass
from typing import Any, Sequence

from . import guest, policy
from .arrangement import Arrangement as Arrangement
from .arrangement import FreeUnits as FreeUnits
from .errors import PolicyError
from .policy import Columns, Extra


@dataclass(slots=True)
class PoolColumns(Columns):
    """Resources of actions, one row each."""

    free_units: Sequence[int]
    """Free units; for chunked pools the sum of the free chunks."""
    chunked: Sequence[int]
    """1 if units are devices in chunks of 1, 2, 4 and 8. An action then gets one chunk, of the
    smallest size with its units; larger chunks are split, smaller ones are never merged."""
    free_chunks: Sequence[int]
    """Free chunks of 1, 2, 4 and 8 devices: four entries per pool, 0 if it is not chunked."""

    def chunks(self, pool: int) -> Sequence[int] | None:
        """Free chunks of 1, 2, 4 and 8 devices; `None` if the pool is not chunked."""
        return self.free_chunks[4 * pool : 4 * pool + 4] if self.chunked[pool] else None


@dataclass(slots=True)
class RunningColumns(Columns):
    """Running actions, one row each."""

    pool: Sequence[int]
    """The row of its pool."""
    units: Sequence[int]
    """Units that it holds."""
    left_us: Sequence[int]
    """Expected remaining run time, in microseconds."""


@dataclass(slots=True)
class ActionColumns(Columns):
    """Waiting actions in the order in which they are served, one row each, and what there is for
    them."""

    pool: Sequence[int]
    """The row in `pools` of its key resource: the one whose amount is variable."""
    candidate: Sequence[int]
    """1 for a candidate. Candidates are the first rows that fit together in every resource, each
    with its smallest option."""
    waited_us: Sequence[int]
    """Time in the queue, in microseconds."""
    option_start: Sequence[int]
    """Index of each row's first option in the three lists below; one entry more than rows.
    `options` returns the range of a row."""
    option_units: Sequence[int]
    """Units of the key resource, ascending within a row."""
    option_us: Sequence[float]
    """Expected run time with these units, in microseconds; -1 if unknown."""
    option_load_us: Sequence[float]
    """Time to load its service onto the devices first, in microseconds."""
    pools: PoolColumns
    """The resources that actions use."""
    running: RunningColumns
    """Running actions."""
    extra: Extra
    """Further columns by their names."""

    def options(self, row: int) -> range:
        """The range of a row's options in `option_units`, `option_us` and `option_load_us`."""
        return range(self.option_start[row], self.option_start[row + 1])

    def is_candidate(self, row: int) -> bool:
        """Whether a row is a candidate."""
        return self.candidate[row] != 0

    def option_time_us(self, option: int) -> float | None:
        """Total time of an option, to load the service and to run, in microseconds. `None` if
        unknown."""
        run_us = self.option_us[option]
        return run_us + max(self.option_load_us[option], 0.0) if run_us >= 0 else None


@dataclass(slots=True)
class ParallelismColumns(Columns):
    """Degrees of tensor parallelism, one row each, and the expected programs."""

    gpus: int
    """Devices to distribute."""
    degree: Sequence[int]
    """Available degrees, ascending."""
    token_us: Sequence[float]
    """Time per output token of a program that runs by itself, in microseconds."""
    step_us: Sequence[float]
    """Time that each further program adds to this, in microseconds; -1 if unknown."""
    prefill_us: Sequence[float]
    """Time per prompt token, in microseconds; -1 if unknown."""
    capacity_tokens: Sequence[int]
    """KV cache of one worker of that degree, in tokens."""
    expected_tokens: Sequence[int]
    """Expected length of each program, in tokens; one entry per program."""
    prompt_tokens: int
    """Context of a program in addition to generated tokens and tool results."""
    growth: float
    """Growth of contexts in tokens per generated token, including tool results; -1 if unknown."""
    tool_us: float
    """Time in tools per generated token, in microseconds; -1 if unknown."""

    def __len__(self) -> int:
        return len(self.degree)


class Policy(policy.Policy):
    """A policy of this world."""

    def arrange(self, actions: ActionColumns) -> Sequence[int]:
        """For each row the option with which it starts now, as an index within the row's options;
        -1 to let it wait. Actions that start must fit into the free units of their pool, which
        `Arrangement` ensures. Scheduling waits for the answer."""
        raise NotImplementedError

    def parallelism(self, degrees: ParallelismColumns) -> Sequence[int]:
        """How many workers of each degree to run; degrees times counts add up to at most `gpus`."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `AllocationPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, ("arrange", "parallelism"), ("arrange",))

    class AllocationPolicy:
        def arrange(self, actions: Any, pools: Any, running: Any) -> list[int]:
            columns = slot.columns(
                ActionColumns,
                actions,
                pools=slot.columns(PoolColumns, pools),
                running=slot.columns(RunningColumns, running),
            )
            return slot.ask(lambda policy: list(policy.arrange(columns)))

        def parallelism(self, degrees: Any) -> list[int]:
            columns = slot.columns(ParallelismColumns, degrees)
            return slot.ask(lambda policy: list(policy.parallelism(columns)))

    return guest.plugin(slot), AllocationPolicy
