"""Builds answers to `arrange` that fit into the free units and chunks."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Callable, Sequence

if TYPE_CHECKING:
    from .allocation import ActionColumns, PoolColumns

_SIZES = (1, 2, 4, 8)
"""Sizes of chunks of devices."""


class FreeUnits:
    """The remaining units of one pool.

    Devices are granted in the smallest chunk that has them, which is split if it is larger. Because
    sizes are powers of two, some actions fit together, in any order, if and only if for each size
    those of that size and above fit into the chunks of that size and above. So it is enough to
    count what these have left.
    """

    __slots__ = ("_is_chunked", "_left")

    def __init__(self, is_chunked: bool, left: list[int]) -> None:
        self._is_chunked = is_chunked
        self._left = left
        """Units in chunks of at least 1, 2, 4 and 8; one count for a pool without chunks."""

    @classmethod
    def of(cls, pools: PoolColumns, pool: int) -> FreeUnits:
        """The free units of a pool."""
        chunks = pools.chunks(pool)
        return cls.plain(pools.free_units[pool]) if chunks is None else cls.chunked(chunks)

    @classmethod
    def plain(cls, units: int) -> FreeUnits:
        """A pool of interchangeable units."""
        return cls(False, [units])

    @classmethod
    def chunked(cls, chunks: Sequence[int]) -> FreeUnits:
        """A pool with these numbers of chunks of 1, 2, 4 and 8 devices."""
        units = [count * size for count, size in zip(chunks, _SIZES)]
        return cls(True, [sum(units[level:]) for level in range(len(_SIZES))])

    @property
    def units(self) -> int:
        """The number of remaining units."""
        return self._left[0]

    def taken(self, units: int) -> int | None:
        """Units that an action with this demand takes: a whole chunk, if there are chunks. `None`
        if no size of chunk is large enough."""
        if not self._is_chunked or units == 0:
            return units
        return next((size for size in _SIZES if size >= units), None)

    def fits(self, units: int) -> bool:
        """Whether an action with this demand fits."""
        taken = self.taken(units)
        if taken is None:
            return False
        return all(left >= taken for left in self._left[: self._levels(taken)])

    def take(self, units: int) -> bool:
        """Takes the units for an action with this demand, if they are free."""
        fits = self.fits(units)
        if fits:
            self._add(units, -1)
        return fits

    def give_back(self, units: int) -> None:
        """Returns the units of an action with this demand."""
        self._add(units, 1)

    def _add(self, units: int, sign: int) -> None:
        taken = self.taken(units)
        if taken is not None:
            for level in range(self._levels(taken)):
                self._left[level] += sign * taken

    def _levels(self, taken: int) -> int:
        """The number of counts that an action of this size is part of."""
        return sum(size <= taken for size in _SIZES) if self._is_chunked else 1


class Arrangement:
    """An answer to `arrange` under construction, which takes only free units. At first all rows
    wait."""

    def __init__(self, actions: ActionColumns) -> None:
        self._actions = actions
        self._free = [FreeUnits.of(actions.pools, pool) for pool in range(len(actions.pools))]
        self._chosen = [-1] * len(actions)

    def free(self, pool: int) -> FreeUnits:
        """The remaining units of a pool."""
        return self._free[pool]

    def start(self, row: int, option: int) -> bool:
        """Starts a row with an option, by its index within the row, or changes its option. Returns
        `False` and changes nothing if that does not fit or there is no such option."""
        options = self._actions.options(row)
        if not 0 <= option < len(options):
            return False
        units, chosen = self._actions.option_units, self._chosen[row]
        free = self._free[self._actions.pool[row]]
        if chosen >= 0:
            free.give_back(units[options[chosen]])
        if free.take(units[options[option]]):
            self._chosen[row] = option
            return True
        if chosen >= 0:
            free.take(units[options[chosen]])
        return False

    def in_order(self, choose: Callable[[int], int]) -> None:
        """Starts the candidates of each pool in order, each with the option that `choose` returns
        for its row, up to the first that does not fit."""
        ended = [False] * len(self._free)
        for row, pool in enumerate(self._actions.pool):
            if self._actions.is_candidate(row) and not ended[pool]:
                ended[pool] = not self.start(row, choose(row))

    def share_out(self) -> None:
        """Distributes remaining units to the rows that start, each time where they save most time
        per unit."""
        found = (self._step(row) for row in range(len(self._chosen)))
        steps = [step for step in found if step is not None]
        heapify(steps)
        while steps:
            _, row, option = heappop(steps)
            self.start(row, option)
            # If it no longer fits, a smaller option may.
            step = self._step(row)
            if step is not None:
                heappush(steps, step)

    def answer(self) -> list[int]:
        """The answer."""
        return self._chosen

    def _step(self, row: int) -> tuple[float, int, int] | None:
        """The best larger option of a row that starts, among those that fit now. The least tuple is
        the best: the negated time saved per additional unit, the row, and the option."""
        actions, chosen = self._actions, self._chosen[row]
        if chosen < 0:
            return None
        options, free = actions.options(row), self._free[actions.pool[row]]
        now, now_us = options[chosen], actions.option_time_us(options[chosen])
        held = free.taken(actions.option_units[now])
        if now_us is None or held is None:
            return None
        free.give_back(held)
        best = None
        for option in range(chosen + 1, len(options)):
            units = actions.option_units[options[option]]
            time_us = actions.option_time_us(options[option])
            if time_us is not None and time_us < now_us and free.fits(units):
                more = (free.taken(units) or 0) - held
                step = ((time_us - now_us) / max(more, 1), row, option)
                best = step if best is None else min(best, step)
        free.take(held)
        return best
