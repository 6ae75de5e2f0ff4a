"""miles' adapter against stand-ins of miles: interface as of 31f1ca961."""

from __future__ import annotations

import asyncio
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from framework import FrameworkSample, sampled
from stand_in import StandIn


@dataclass
class DataBufferInput:
    prompt_group: list[Any]
    group: list[Any]


class DataBuffer(ABC):
    @abstractmethod
    async def put(self, input: DataBufferInput) -> None: ...

    @abstractmethod
    async def get(self, **context: Any) -> DataBufferInput: ...

    @abstractmethod
    def get_metrics(self) -> dict[str, float]: ...


@pytest.fixture
def miles(everywhere: StandIn, modules: Any) -> Iterator[Any]:
    classes = {"DataBuffer": DataBuffer, "DataBufferInput": DataBufferInput}
    modules("miles.rollout.fully_async_data_buffer", **classes)
    modules("miles.utils.types", Sample=FrameworkSample)
    sys.modules.pop("treadle_rl.adapters.miles", None)
    yield importlib.import_module("treadle_rl.adapters.miles")
    sys.modules.pop("treadle_rl.adapters.miles", None)


def buffer(miles: Any, unused: list[Any], start: int = 0) -> Any:
    args = SimpleNamespace(
        n_samples_per_prompt=2,
        rollout_batch_size=2,
        max_weight_staleness=1,
        reward_key="accuracy",
        save_interval=2,
        start_rollout_id=start,
    )
    return miles.TreadleDataBuffer(SimpleNamespace(args=args, unused_handler_fn=unused.append))


def group(number: int, version: int) -> DataBufferInput:
    prompts = [FrameworkSample(group_index=number, index=2 * number + n) for n in range(2)]
    finished = [sampled(FrameworkSample(**vars(prompt)), version) for prompt in prompts]
    return DataBufferInput(prompts, finished)


async def take(buffer: Any, version: int) -> list[int]:
    """One batch, as `FullyAsyncRolloutFn` drains it; versions of engines begin at 1 here."""
    got = [await buffer.get(current_version=version + 1) for _ in range(2)]
    return [entry.group[0].group_index for entry in got]


def test_groups_come_in_batches_and_survive_a_restart(miles: Any, everywhere: StandIn) -> None:
    async def run() -> None:
        first = buffer(miles, [])
        for number in range(3):
            await first.put(group(number, 1))
        assert await take(first, 0) == [0, 1]
        second = buffer(miles, [])
        await second.put(group(2, 1))  # It is known.
        await second.put(group(3, 1))
        assert await take(second, 0) == [0, 1], "the same batch"
        entry = await second.get(current_version=1)
        assert entry.group[0].group_index == 2
        assert entry.group[1].tokens == [1, 2, 15, 50, 25]
        assert entry.group[1].reward == {"accuracy": 1.0, "length": 3.0}
        assert entry.group[1].weight_versions == ["1"]
        assert [sample.tokens for sample in entry.prompt_group] == [[], []]

    asyncio.run(run())


def test_groups_that_are_too_old_are_given_back(miles: Any, everywhere: StandIn) -> None:
    async def run() -> None:
        unused: list[Any] = []
        here = buffer(miles, unused)
        for number in range(3):
            await here.put(group(number, 1))
        assert await take(here, 0) == [0, 1]
        await here.put(group(3, 1))
        assert await take(here, 0) == [2, 3], "lag 1"

        async def put() -> None:  # It waits until the next version is told.
            await here.put(group(4, 1))
            for number in (5, 6):
                await here.put(group(number, 2))

        putting = asyncio.create_task(put())
        assert await take(here, 1) == [5, 6]
        await putting
        [given] = unused
        assert [sample.group_index for sample in given] == [4, 4]
        assert [sample.metadata for sample in given] == [{miles.ATTEMPT: 1}] * 2
        assert everywhere.jobs["miles"].version == 1
        metrics = here.get_metrics()
        assert metrics["rollout/fully_async/stale_groups_filtered"] == 1
        assert metrics["rollout/fully_async/max_staleness"] == 1
        aborted = group(8, 2)
        aborted.group[0].status = FrameworkSample.Status.ABORTED
        await here.put(aborted)
        assert len(unused) == 2

    asyncio.run(run())
