"""SkyRL: the fully asynchronous trainer, whose mini-batches treadle cuts.

    class Experiment(BasePPOExp):  # in the module that trainer.override_entrypoint names
        def get_trainer(self, *args, **rest):
            return TreadleTrainer(*args, **rest)

treadle takes the place of SkyRL's staleness manager and of its queue: a group begins when it can
be trained within `trainer.fully_async.max_staleness_steps`, mini-batch `k` is batch `k`, and what
became too old is cancelled and sampled again, where SkyRL trains it with a warning. Trajectories
are members by the ids of their sessions. Tokens stay in the trainer: after a crash it goes on under
another `job_name`. Needs SkyRL 0.4.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from .. import AsyncBatch, AsyncClient, AsyncMember, Group, NotReady, Settings, TreadleError
from .._http import DROPPED

try:
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import (
        get_sampling_params_for_backend,
    )
    from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer, GeneratedOutputGroup
    from skyrl.train.generators.base import TrajectoryID
    from skyrl.train.generators.utils import prepare_generator_input
except ImportError as error:
    message = "treadle_rl.adapters.skyrl runs inside SkyRL 0.4, which can't be imported here"
    raise ImportError(message) from error

LOOK_S = 5.0
"""Seconds after which a trainer that waits for a batch looks whether its rollouts have failed."""


class _Versions:
    """In place of SkyRL's staleness manager: reports the version that engines have."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    async def notify_capacity_change(self, new_global_step: int) -> None:
        await self._trainer.treadle.version(new_global_step - 1)

    async def validate_state_at_epoch_end(self, global_step: int) -> None:
        """treadle keeps the account."""


class TreadleBatches:
    """What a subclass of `FullyAsyncRayPPOTrainer` derives from first, to train treadle's batches."""

    job_name = "skyrl"
    pipeline: int | None = None
    """Batches that are begun ahead; by default as many as the staleness allows."""
    stale: Literal["cut", "finish", "wait"] = "cut"
    """What happens to a group that became too old, as in `Settings`."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        here: Any = self
        if here.sample_full_batch:
            raise ValueError(
                "treadle cuts batches before SkyRL sees their rewards: "
                "set trainer.fully_async.sample_full_batch=false"
            )
        self.treadle_client = AsyncClient()
        self.treadle = self.treadle_client.job(self.job_name)
        self._generated: dict[str, Any] = {}
        """Groups that are sampled and not trained, by their key at treadle."""
        self._running: dict[str, tuple[AsyncMember, asyncio.Task[Any]]] = {}
        """A member of each group that is being sampled, and what samples it."""
        self._failure: BaseException | None = None
        here._staleness_manager = _Versions(self)

    async def train(self) -> None:
        """SkyRL's loop, with a job of its own."""
        here: Any = self
        lag_max = int(here.max_staleness_steps)
        settings = Settings(
            group_size=here.cfg.generator.n_samples_per_prompt,
            batch_groups=here.mini_batch_size,
            lag_max=lag_max,
            pipeline=lag_max if self.pipeline is None else self.pipeline,
            stale=self.stale,
        )
        view = await self.treadle.declare(settings)
        if view.next_batch > 1:
            raise RuntimeError(
                f"job `{self.job_name}` has batches, and their tokens were in the trainer that is "
                "gone; give another job_name"
            )
        try:
            await super().train()  # type: ignore[misc]
        finally:
            await self.treadle_client.close()

    async def _run_generate_for_a_group_loop(self, buffer: Any) -> None:
        """A worker: samples one group after the other, each until a batch may have it."""
        here: Any = self
        try:
            while prompts := await here.async_train_dataloader.get_next_non_consumed_data():
                inference = here.cfg.generator.inference_engine
                sampling = get_sampling_params_for_backend(
                    inference.backend, here.cfg.generator.sampling_params
                )
                given, uids = prepare_generator_input(
                    prompts,
                    here.cfg.generator.n_samples_per_prompt,
                    sampling,
                    here.cfg.environment.env_class,
                    "train",
                    here.global_step,
                )
                key = f"{here.epoch}/{uids[0]}"
                await self.treadle.submit([Group(key)])
                attempt = 0
                while not await self._sample(given, uids[0], key, attempt):
                    attempt += 1
        except Exception as failure:  # noqa: BLE001 - the trainer raises it
            self._failure = failure

    async def _sample(self, given: Any, uid: str, key: str, attempt: int) -> bool:
        """Samples a group. `False` if it became too old meanwhile."""
        here: Any = self
        name = f"{self.job_name}/{key}/{attempt}"
        ids = [TrajectoryID(name, t.repetition_id) for t in given["trajectory_ids"]]
        began = [self.treadle.begin(t.to_string(), key, wait_s=None) for t in ids]
        try:
            members = await asyncio.gather(*began)
        except TreadleError as error:
            if error.code not in DROPPED:
                raise
            return False
        start = time.monotonic()
        task = asyncio.create_task(here.generator.generate({**given, "trajectory_ids": ids}))
        self._running[key] = (min(members, key=lambda member: member.version), task)
        try:
            await asyncio.wait([task])
        finally:
            del self._running[key]
            task.cancel()
        if task.cancelled():
            return False
        if (failure := task.exception()) is not None:
            # A program that was cut may get an error instead of its answer.
            if await members[0].end("client_failed"):
                raise failure
            return False
        output = task.result()
        group = GeneratedOutputGroup(
            generator_output=output,
            uid=uid,
            global_step_when_scheduled=0,
            group_completion_time_s=time.monotonic() - start,
            prompts=given["prompts"],
        )
        # A batch may have it as soon as its last member has ended.
        self._generated[key] = group
        if await self._end(members, output):
            return True
        self._generated.pop(key, None)
        return False

    async def _end(self, members: list[AsyncMember], output: Any) -> bool:
        for member, reward, tokens in zip(members, output["rewards"], output["response_ids"]):
            scalar = sum(reward) if isinstance(reward, list) else reward
            if not await member.end(reward=scalar, tokens=len(tokens)):
                return False
        return True

    async def _collect_generation_mini_batch(
        self, buffer: Any, done: Any
    ) -> tuple[list[Any], list[Any], bool]:
        """The mini-batch of this step, in SkyRL's form."""
        here: Any = self
        here.all_metrics["async/gen_buffer_qsize_at_wait_start"] = len(self._generated)
        with here._phase_gauge.timed_phase("wait_for_generation_buffer", here.all_timings):
            batch = await self._batch(here.global_step)
        groups = []
        for cut in batch.groups:
            group = self._generated.pop(cut.group)
            # Version `n` is what step `n` made, and SkyRL counts the step that was under way.
            group.global_step_when_scheduled = cut.version + 1
            groups.append(group)
        await self._cancel_cut(here.global_step - here.max_staleness_steps)
        return groups, [], False

    async def _cancel_cut(self, floor: int) -> None:
        """Cancels groups that treadle cut because their version is older than this one."""
        for member, task in list(self._running.values()):
            if member.version < floor:
                try:
                    # Asked again, it answers as before, unless the member was cut.
                    await self.treadle.begin(member.program, member.group, wait_s=0)
                except TreadleError as error:
                    if error.code not in DROPPED:
                        raise
                    task.cancel()

    async def _batch(self, k: int) -> AsyncBatch:
        while self._failure is None:
            try:
                return await self.treadle.batch(k, wait_s=LOOK_S)
            except NotReady:
                continue
        raise self._failure

    async def _run_training(self, training_input: Any) -> Any:
        here: Any = self
        status = await super()._run_training(training_input)  # type: ignore[misc]
        await self.treadle.trained(here.global_step)
        return status


class TreadleTrainer(TreadleBatches, FullyAsyncRayPPOTrainer):
    """SkyRL's fully asynchronous trainer, with treadle's batches."""
