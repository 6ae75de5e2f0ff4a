"""verl's adapter against the real `ReplayBufferAsync`, with stand-ins of what that file imports.

`VERL_WHEEL` names the wheel; without it, pip downloads verl 0.9.1.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import wheels
from stand_in import StandIn

FILE = "verl/trainer/ppo/v1/replay_buffer.py"
KINDS = ("numpy", "omegaconf")


@dataclass
class KVBatchMeta:
    partition_id: str
    keys: list[str]
    tags: list[dict[str, Any]]


class TransferQueue:
    """`transfer_queue`: tags of keys, in partitions."""

    def __init__(self) -> None:
        self.store: dict[str, dict[str, dict[str, Any]]] = {"train": {}, "val": {}}

    def kv_list(self, partition_id: str | None = None) -> Any:
        return {p: {k: dict(t) for k, t in items.items()} for p, items in self.store.items()}

    def kv_clear(self, keys: Any, partition_id: str) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            self.store[partition_id].pop(key, None)

    def kv_batch_put(self, keys: list[str], partition_id: str, tags: list[Any]) -> None:
        for key, tag in zip(keys, tags):
            self.store[partition_id].setdefault(key, {}).update(tag)

    def prompt(self, uid: str, step: int, status: str, partition: str = "train") -> None:
        tag = {"is_prompt": True, "status": status, "global_steps": step}
        self.store[partition].setdefault(uid, {}).update(tag)
        for session in range(2) if status == "finished" else ():
            self.store[partition][f"{uid}_{session}_0"] = {"status": "success", "seq_len": 5}

    def prompts(self) -> list[str]:
        return sorted(key for key, tag in self.store["train"].items() if tag.get("is_prompt"))


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for kind in KINDS:
        pytest.importorskip(kind)
    folder = tmp_path_factory.mktemp("verl")
    if not wheels.unpack("verl==0.9.1", [FILE], folder):
        pytest.skip("verl 0.9.1 can't be downloaded from PyPI")
    return folder / FILE


@pytest.fixture
def queue() -> TransferQueue:
    return TransferQueue()


@pytest.fixture
def verl(everywhere: StandIn, modules: Any, queue: TransferQueue, source: Path) -> Iterator[Any]:
    calls = {name: getattr(queue, name) for name in ("kv_list", "kv_clear", "kv_batch_put")}
    modules("transfer_queue", KVBatchMeta=KVBatchMeta, **calls)

    class SkipManager:
        @staticmethod
        def annotate_tq(role: str, phase: str) -> Any:
            return lambda function: function

    modules("verl.utils.skip", SkipManager=SkipManager)
    spec = importlib.util.spec_from_file_location("verl.trainer.ppo.v1.replay_buffer", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    modules("verl.trainer.ppo.v1.replay_buffer", ReplayBufferAsync=module.ReplayBufferAsync)
    sys.modules.pop("treadle_rl.adapters.verl", None)
    yield importlib.import_module("treadle_rl.adapters.verl")
    sys.modules.pop("treadle_rl.adapters.verl", None)


def sampler(verl: Any, refills: list[int], **given: Any) -> Any:
    """As `PPOTrainer._build_replay_buffer` makes one, except for the poll interval."""
    return verl.TreadleSampler(
        trainer_mode="separate_async",
        trainer_config={},
        max_off_policy_threshold=2,
        max_off_policy_strategy="drop",
        sampler_kwargs=given,
        refill_fn=refills.append,
        poll_interval=0.01,
    )


def uids(meta: Any) -> list[str]:
    assert all("_" in key for key in meta.keys), "trajectories only"
    return sorted({key.split("_")[0] for key in meta.keys})


def test_prompts_are_kept_until_their_step_is_trained(
    verl: Any, queue: TransferQueue, everywhere: StandIn
) -> None:
    refills: list[int] = []
    here = sampler(verl, refills, save_freq=1)
    for uid, status in [("a", "finished"), ("b", "failure"), ("c", "finished"), ("d", "running")]:
        queue.prompt(uid, 1, status)
    meta, _ = here.sample(global_steps=1, partition_id="train", batch_size=2)
    assert (uids(meta), refills) == (["a", "c"], [1])
    assert queue.prompts() == ["a", "c", "d"], "the real class removes a and c here"
    assert uids(here.sample(1, "train", 2)[0]) == ["a", "c"], "asked again: the same groups"
    assert here.get_sampleable_count(2, "train") == 0, "they are not counted for the next step"

    queue.prompt("d", 1, "finished")
    queue.prompt("e", 2, "finished")
    meta, _ = here.sample(2, "train", 2)
    assert uids(meta) == ["d", "e"]
    assert queue.prompts() == ["d", "e"]
    job = everywhere.jobs["verl"]
    assert (job.trained, job.version, job.checkpoint) == ({1}, 1, 1)
    groups = job.batch_view(2)["groups"]
    assert [(g["group"], g["lag"], g["members"][0]["program"]) for g in groups] == [
        ("d", 1, "verl/d"),
        ("e", 0, "verl/e"),
    ]


def test_groups_that_are_too_old_are_evicted_and_refilled(
    verl: Any, queue: TransferQueue, everywhere: StandIn
) -> None:
    refills: list[int] = []
    here = sampler(verl, refills)
    for uid in "ab":
        queue.prompt(uid, 1, "finished")
    queue.prompt("old", 1, "running")
    for step, fresh in [(1, ""), (2, "cd"), (3, "ef")]:
        if step == 3:
            queue.prompt("old", 1, "finished")
        for uid in fresh:
            queue.prompt(uid, step, "finished")
        here.sample(step, "train", 2)
    assert refills == [1]
    assert "old" not in queue.store["train"]
    assert "verl/old" in everywhere.jobs["verl"].dropped


def test_a_restarted_trainer_gets_the_same_batch(
    verl: Any, queue: TransferQueue, everywhere: StandIn
) -> None:
    first = sampler(verl, [])
    for uid in ("a", "b", "c", "d"):
        queue.prompt(uid, 1, "finished")
    assert uids(first.sample(1, "train", 2)[0]) == ["a", "b"]
    saved = {key: dict(tag) for key, tag in queue.store["train"].items()}
    assert uids(first.sample(2, "train", 2)[0]) == ["c", "d"]
    queue.store["train"] = saved  # TransferQueue as it was when step 1 was saved.
    queue.prompt("x", 2, "finished")
    second = sampler(verl, [])
    assert uids(second.sample(2, "train", 2)[0]) == ["c", "d"], "not x"
    assert queue.prompts() == ["c", "d", "x"], "step 1 was trained"
    assert everywhere.jobs["verl"].lineage == 1
    queue.kv_clear(["c", "c_0_0"], "train")
    with pytest.raises(RuntimeError, match="first_step"):
        sampler(verl, []).sample(2, "train", 2)


def test_validation_stays_verls(verl: Any, queue: TransferQueue, everywhere: StandIn) -> None:
    queue.prompt("v", 1, "finished", partition="val")
    assert uids(sampler(verl, []).sample(1, "val", 1)[0]) == ["v"]
    assert everywhere.requests == []


@pytest.mark.parametrize(
    "change", [{"max_off_policy_threshold": None}, {"max_off_policy_strategy": "wait"}]
)
def test_what_has_no_strict_bound_is_refused(verl: Any, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"max_off_policy_threshold": 2, "max_off_policy_strategy": "drop"}
    with pytest.raises(ValueError, match="treadle"):
        verl.TreadleSampler("separate_async", {}, sampler_kwargs={}, **{**given, **change})
