"""slime's adapter against stand-ins of slime: interface as of 624b824a8."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from framework import FrameworkSample, sampled
from stand_in import StandIn

ARGS = SimpleNamespace(n_samples_per_prompt=2, rollout_batch_size=2, reward_key="accuracy")


@dataclass
class RolloutFnTrainOutput:
    samples: list[list[Any]]
    metrics: Any = None


class RolloutDataSourceWithBuffer:
    def __init__(self, args: Any) -> None:
        self.args, self.next = args, 0

    def get_samples(self, num_samples: int) -> list[list[FrameworkSample]]:
        groups = range(self.next, self.next + num_samples)
        self.next += num_samples
        size = self.args.n_samples_per_prompt
        return [
            [FrameworkSample(group_index=g, index=g * size + n) for n in range(size)]
            for g in groups
        ]

    def save(self, rollout_id: int) -> None:
        self.saved = self.next

    def load(self, rollout_id: int | None = None) -> None:
        self.next = 0 if rollout_id is None else 2 * (rollout_id + 1)


class Engine:
    """`slime.rollout.sglang_rollout`: the first sample of each prompt in `failing` fails."""

    def __init__(self) -> None:
        self.calls, self.failing = 0, set[int]()

    def GenerateState(self, args: Any) -> Any:
        return SimpleNamespace(sampling_params={})

    async def generate_and_rm_group(
        self, args: Any, group: list[Any], sampling_params: Any, evaluation: bool = False
    ) -> list[Any]:
        self.calls += len(group)
        for sample in group:
            sampled(sample, 0)
            if sample.index in self.failing:
                self.failing.remove(sample.index)
                sample.status = FrameworkSample.Status.FAILED
        return group

    def generate_rollout(self, args: Any, *rest: Any, evaluation: bool) -> str:
        return "evaluated"


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def slime(everywhere: StandIn, modules: Any, engine: Engine) -> Iterator[Any]:
    modules("slime.rollout", sglang_rollout=engine)
    modules("slime.rollout.base_types", RolloutFnTrainOutput=RolloutFnTrainOutput)
    source = {"RolloutDataSourceWithBuffer": RolloutDataSourceWithBuffer}
    modules("slime.rollout.data_source", **source)
    modules("slime.utils.async_utils", run=asyncio.run)
    modules("slime.utils.types", Sample=FrameworkSample)
    sys.modules.pop("treadle_rl.adapters.slime", None)
    yield importlib.import_module("treadle_rl.adapters.slime")
    sys.modules.pop("treadle_rl.adapters.slime", None)


def shown(output: Any) -> list[list[Any]]:
    return [
        [
            (s.index, s.tokens, s.loss_mask, s.rollout_log_probs, s.reward, s.status, s.response)
            for s in group
        ]
        for group in output.samples
    ]


def test_a_rollout_is_sampled_once_and_comes_again(
    slime: Any, engine: Engine, everywhere: StandIn
) -> None:
    engine.failing = {1}
    source = slime.TreadleDataSource(ARGS)
    first = shown(slime.generate_rollout(ARGS, 0, source))
    assert [[row[0] for row in group] for group in first] == [[0, 1], [2, 3]]
    assert engine.calls == 5, "the member that failed was sampled again"
    again = slime.TreadleDataSource(ARGS)
    again.load(-1)
    assert shown(slime.generate_rollout(ARGS, 0, again)) == first
    assert engine.calls == 5
    assert first[0][1][1:4] == ([1, 2, 11, 50, 21], [1, 0, 1], [-0.5, 0.0, -0.5])
    rewards = [m["reward"] for m in everywhere.jobs["slime"].batch_view(1)["groups"][0]["members"]]
    assert sorted(rewards) == [0.0, 1.0], "of a dictionary treadle has the entry `reward_key`"


def test_training_is_reported_with_the_next_rollout(slime: Any, everywhere: StandIn) -> None:
    source = slime.TreadleDataSource(ARGS)
    for rollout in range(2):
        slime.generate_rollout(ARGS, rollout, source)
    job = everywhere.jobs["slime"]
    assert (job.version, job.trained) == (1, {1})
    source.save(0)
    assert job.checkpoint == 1
    source.load(0)
    assert (job.version, job.lineage) == (1, 1)
    assert [group["lag"] for group in job.batch_view(2)["groups"]] == [0, 0]


def test_a_rollout_that_was_cut_short_goes_on(slime: Any, engine: Engine) -> None:
    source = slime.TreadleDataSource(ARGS)
    groups = source.get_samples(2)

    async def one_group() -> None:
        async with slime.AsyncClient() as client:
            job = client.job("slime")
            await slime._prepare(ARGS, job, 1)
            engine.failing = {0}
            await slime._group(ARGS, job, "0/0", groups[0])

    asyncio.run(one_group())
    again = slime.TreadleDataSource(ARGS)
    output = slime.generate_rollout(ARGS, 0, again)
    assert [[row[0] for row in group] for group in shown(output)] == [[0, 1], [2, 3]]


def test_evaluation_stays_slimes(slime: Any) -> None:
    assert slime.generate_rollout(ARGS, 0, None, evaluation=True) == "evaluated"


def test_without_slime_the_error_is_clear() -> None:
    sys.modules.pop("treadle_rl.adapters.slime", None)
    with pytest.raises(ImportError, match="runs inside slime"):
        importlib.import_module("treadle_rl.adapters.slime")
