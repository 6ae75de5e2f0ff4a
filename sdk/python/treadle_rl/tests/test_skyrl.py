"""SkyRL's adapter in SkyRL's own loop, out of its wheel, and the report of the comparison."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import skyrl_compare
import skyrl_wheel
import wheels
from skyrl_compare import Model, Outcome, Setting
from stand_in import StandIn

LAG, STEPS, BATCH, LATE = 1, 10, 2, 5
"""One group takes until version `LATE` of the weights."""


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("skyrl")
    if not wheels.unpack(skyrl_wheel.PACKAGE, skyrl_wheel.FILES, folder):
        pytest.skip(f"{skyrl_wheel.PACKAGE} can't be downloaded from PyPI")
    return folder


@pytest.fixture
def sim(source: Path, modules: Any) -> Any:
    return skyrl_wheel.load(source, modules)


@pytest.fixture
def adapter(sim: Any, everywhere: StandIn) -> Iterator[Any]:
    sys.modules.pop("treadle_rl.adapters.skyrl", None)
    yield importlib.import_module("treadle_rl.adapters.skyrl")
    sys.modules.pop("treadle_rl.adapters.skyrl", None)


def model(**changes: Any) -> Model:
    given = vars(skyrl_compare.arguments(["--train-s", "0", "--sync-s", "0"]))
    fields = {name: given[name] for name in Model.__dataclass_fields__}
    fields |= {"steps": STEPS, "batch": BATCH, "group": 2, "lag": LAG}
    return Model(**{**fields, **changes})


class Engines:
    """A client and a generator in one: all groups but the first are sampled at once."""

    def __init__(self) -> None:
        self.weight_version = 0
        self.began: dict[str, int] = {}
        self.attempts = self.cancelled = 0
        self.late = asyncio.Event()
        self.fails = False

    async def pause_generation(self) -> None:
        pass

    resume_generation = pause_generation

    def increment_weight_version(self) -> None:
        self.weight_version += 1
        if self.weight_version >= LATE:
            self.late.set()

    async def generate(self, given: Any) -> dict[str, Any]:
        uid = str(given["prompts"][0][0])
        self.began[uid] = self.weight_version
        if uid == "0":
            self.attempts += 1
            if self.fails:
                raise OSError("the sandbox is gone")
            try:
                await self.late.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        count = len(given["trajectory_ids"])
        return {"response_ids": [[1, 2]] * count, "rewards": [[0.0, 1.0]] * count}


def trained(kind: Any, engines: Engines) -> Any:
    one = model()
    settings = skyrl_compare.settings_of(one, BATCH * (LAG + 1))
    trainer = kind(settings, one.rows(), engines, engines)

    async def bounded() -> None:
        await asyncio.wait_for(trainer.train(), 60)

    asyncio.run(bounded())
    return trainer


def test_skyrls_own_manager_bounds_the_sum_and_not_one_group(sim: Any) -> None:
    trainer = trained(skyrl_compare.observed(sim), Engines())
    assert len(trainer.staleness) == STEPS * BATCH
    assert max(trainer.staleness) >= LATE - 1 > LAG
    told = [step["async/staleness_max"] for step in trainer.tracker.steps.values()]
    assert max(told) == max(trainer.staleness), "SkyRL counts the same"


def test_treadle_has_a_group_that_became_too_old_sampled_again(
    sim: Any, adapter: Any, everywhere: StandIn
) -> None:
    engines = Engines()
    kind = type("Trainer", (adapter.TreadleBatches, skyrl_compare.observed(sim)), {})
    trainer = trained(kind, engines)
    assert len(trainer.staleness) == STEPS * BATCH
    assert max(trainer.staleness) <= LAG
    assert engines.attempts - 1 == engines.cancelled >= 1
    job = everywhere.jobs["skyrl"]
    assert job.trained == set(range(1, STEPS + 1))
    assert job.served >= {"0/0"}
    rewards = {m["reward"] for g in job.batch_view(1)["groups"] for m in g["members"]}
    assert rewards == {1.0}
    with pytest.raises(RuntimeError, match="job_name"):
        trained(kind, Engines())


def test_a_generator_that_fails_ends_the_training(sim: Any, adapter: Any) -> None:
    engines = Engines()
    engines.fails = True
    with pytest.raises(OSError, match="sandbox"):
        trained(type("Trainer", (adapter.TreadleBatches, skyrl_compare.observed(sim)), {}), engines)


def test_the_best_setting_of_each_is_compared() -> None:
    one = model(lag=2)
    outcomes = [
        Outcome(Setting("skyrl", 4), 10, 7200.0, [0, 3]),
        Outcome(Setting("skyrl", 2, bound=0), 10, 7200.0, [0, 0]),
        Outcome(Setting("skyrl", 6), 10, 3600.0, [1, 3, 4]),
        Outcome(Setting("treadle", 6, 1, "cut"), 10, 9000.0, [1, 1]),
        Outcome(Setting("treadle", 6, 2, "wait"), 10, 4000.0, [0, 2]),
    ]
    told = skyrl_compare.compared(one, outcomes)
    assert (told["best"]["skyrl"]["workers"], told["best"]["treadle"]["pipeline"]) == (6, 2)
    assert (told["treadle_over_skyrl"], told["treadle_over_skyrl_within_bound"]) == (0.9, 1.8)
    assert told["best"]["skyrl"]["groups_beyond_bound"] == 2
    text = skyrl_compare.text(told)
    assert "stand-ins" in text and "* treadle, 6 workers, pipeline 2, wait" in text
    settings = skyrl_compare.tried(one)
    assert {s.pipeline for s in settings if s.system == "treadle"} == {1, 2}, "never stop-and-wait"
    bounds = {(s.workers, s.bound) for s in settings if s.system == "skyrl"}
    assert bounds == {(2, None), (4, None), (6, None), (2, 0)}


def test_a_bound_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        skyrl_compare.arguments(["--lag", "0"])
    assert "--lag" in capsys.readouterr().err
