"""miles: a data buffer for fully asynchronous rollouts that survives a crash.

    --custom-async-data-buffer-path treadle_rl.adapters.miles.TreadleDataBuffer

Finished groups are on record once `put` returns. `get` gives the groups of batch 1, 2 and so on,
which have `rollout_batch_size` groups each. After a restart with `start_rollout_id` `c`, batches
come from `c + 1`, and finished groups that were in no batch are still there. `TREADLE_JOB` names
the job (default `miles`). Interface as of miles 31f1ca961.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Any

from .. import AsyncBatch, AsyncClient, AsyncJob, Group, Settings
from ._samples import info_of, restore, scalar, steps_of

try:
    from miles.rollout.fully_async_data_buffer import DataBuffer, DataBufferInput
    from miles.utils.types import Sample
except ImportError as error:
    message = "treadle_rl.adapters.miles runs inside miles, which is not installed here"
    raise ImportError(message) from error

ATTEMPT = "treadle_attempt"
"""Key of a prompt's metadata: how often it was given back."""


class TreadleDataBuffer(DataBuffer):
    """Groups that treadle keeps between rollouts and training."""

    def __init__(self, input: Any) -> None:
        self.args, self._unused = input.args, input.unused_handler_fn
        self.first = int(getattr(self.args, "start_rollout_id", None) or 0)
        """The batch after which this process began."""
        self.k = self.first
        self.lag_max = 1 if (lag := self.args.max_weight_staleness) is None else int(lag)
        if self.lag_max < 1:
            raise ValueError("asynchronous rollouts need --max-weight-staleness of 1 or more")
        self._shift: int | None = None
        """A version of miles' engines less the same version here."""
        self._held: dict[str, tuple[int, Any]] = {}
        """Version and input of groups that this process put, and that are in no batch."""
        self._groups: deque[Any] = deque()
        self._counts = {"aborted_groups_filtered": 0, "stale_groups_filtered": 0}
        self._lags: list[int] = []
        self._client: AsyncClient | None = None
        self._lock = asyncio.Lock()

    async def _job(self) -> AsyncJob:
        """The job, declared with the first call."""
        name = os.environ.get("TREADLE_JOB", "miles")
        async with self._lock:
            if self._client is not None:
                return self._client.job(name)
            client = AsyncClient()
            job = client.job(name)
            settings = Settings(
                group_size=self.args.n_samples_per_prompt,
                batch_groups=self.args.rollout_batch_size,
                lag_max=self.lag_max,
                pipeline=self.lag_max,
                stale="finish",
                capture="tokens",
            )
            view = await job.declare(settings)
            if view.next_batch > 1:
                if self.first > view.checkpoint:
                    await job.checkpoint(self.first)
                await job.resume(self.first)
                await job.version(self.first)
            self._client = client
            return job

    async def put(self, input: Any) -> None:
        """Records a finished group; waits while treadle has enough of them."""
        if any(sample.status == Sample.Status.ABORTED for sample in input.group):
            self._give_back(input.prompt_group, "aborted_groups_filtered")
            return
        job = await self._job()
        first = input.group[0]
        key = f"{first.group_index}.{first.metadata.get(ATTEMPT, 0)}"
        prompt = [sample.to_dict() for sample in input.prompt_group]
        await job.submit([Group(key, {"prompt": prompt})])
        version = None
        for number, sample in enumerate(input.group):
            member = await job.begin(f"{job.name}/{key}/{number}", key, wait_s=None)
            if member.surplus:  # It was put before a restart.
                return
            oldest = sample.oldest_weight_version
            known = oldest is not None and self._shift is not None
            own = max(0, oldest - self._shift) if known else member.version
            version = min(own, member.version if version is None else version)
            reward = scalar(sample.reward, self.args.reward_key)
            await member.end(
                "truncated" if sample.status == Sample.Status.TRUNCATED else "completed",
                reward=reward,
                sample=steps_of(sample, own),
                info=info_of(sample),
            )
        self._held[key] = (version or 0, input)

    async def get(self, current_version: int | None = None, **_: Any) -> Any:
        """The next group of the current batch, or the first one of the next."""
        job = await self._job()
        if not self._groups:
            if current_version is not None:
                # While batch `k + 1` is collected, training on batch `k` goes on.
                self._shift = current_version - max(self.first, self.k - 1)
            await self._report(job)
            batch = await job.batch(self.k + 1)
            self._groups.extend(await self._inputs(batch))
            self._lags += [group.lag for group in batch.groups]
            self.k += 1
            self._drop_stale()
        return self._groups.popleft()

    async def _report(self, job: AsyncJob) -> None:
        done = self.k - 1
        if done > self.first:
            await job.trained(done)
            await job.version(done)
            interval = getattr(self.args, "save_interval", None)
            if interval and done % interval == 0:
                await job.checkpoint(done)

    async def _inputs(self, batch: AsyncBatch) -> list[Any]:
        """The groups of a batch. Those that were put before a restart come from treadle."""
        found: dict[str, list[tuple[str, Any]]] = {group.group: [] for group in batch.groups}
        if any(key not in self._held for key in found):
            info = {member.program: member.info for g in batch.groups for member in g.members}
            for sequence in await batch.payload():
                sample = restore(Sample, info[sequence.member], sequence)
                found[sequence.group].append((sequence.member, sample))
        inputs = []
        for group in batch.groups:
            if (held := self._held.pop(group.group, None)) is not None:
                inputs.append(held[1])
                continue
            prompt = [Sample.from_dict(sample) for sample in group.content["prompt"]]
            members = sorted(found[group.group], key=lambda pair: int(pair[0].rsplit("/", 1)[1]))
            samples = [sample for _, sample in members]
            inputs.append(DataBufferInput(prompt_group=prompt, group=samples))
        return inputs

    def _drop_stale(self) -> None:
        """Gives prompts back whose groups are too old for the next batch: treadle forgot them."""
        floor = self.k - self.lag_max
        for key in [key for key, (version, _) in self._held.items() if version < floor]:
            self._give_back(self._held.pop(key)[1].prompt_group, "stale_groups_filtered")

    def _give_back(self, prompt_group: list[Any], count: str) -> None:
        self._counts[count] += 1
        for sample in prompt_group:
            sample.metadata[ATTEMPT] = sample.metadata.get(ATTEMPT, 0) + 1
        self._unused(prompt_group)

    def get_metrics(self) -> dict[str, float]:
        """Counts since the last call."""
        metrics: dict[str, float] = {"queue_size": len(self._held), **self._counts}
        if self._lags:
            metrics["avg_staleness"] = sum(self._lags) / len(self._lags)
            metrics["max_staleness"] = max(self._lags)
        self._counts = dict.fromkeys(self._counts, 0)
        self._lags = []
        return {f"rollout/fully_async/{name}": float(value) for name, value in metrics.items()}
