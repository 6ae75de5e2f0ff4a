"""slime: its rollout function and data source, with treadle between rollouts and training.

    --rollout-function-path treadle_rl.adapters.slime.generate_rollout
    --data-source-path treadle_rl.adapters.slime.TreadleDataSource

Rollout `r` is batch `r + 1`. slime samples and scores; each finished group is on record before the
batch is cut, and a rollout that is asked for again comes back from treadle instead of the engines.
`TREADLE_JOB` names the job (default `slime`). With `train_async.py` set `TREADLE_AHEAD=1`, because
it generates one batch while it trains on the one before. Interface as of slime 624b824a8.
"""

from __future__ import annotations

import asyncio
import copy
import os
from typing import Any

from .. import (
    AsyncClient,
    AsyncJob,
    AsyncMember,
    Client,
    Group,
    NotReady,
    Settings,
    TreadleError,
)
from ..records import TRAINED, End
from ._samples import info_of, restore, scalar, steps_of

try:
    from slime.rollout import sglang_rollout
    from slime.rollout.base_types import RolloutFnTrainOutput
    from slime.rollout.data_source import RolloutDataSourceWithBuffer
    from slime.utils.async_utils import run
    from slime.utils.types import Sample
except ImportError as error:
    message = "treadle_rl.adapters.slime runs inside slime, which is not installed here"
    raise ImportError(message) from error

ATTEMPTS_MAX = 8
"""How often a member that fails is sampled again."""
ENDS: dict[str, End] = {
    "completed": "completed",
    "truncated": "truncated",
    "failed": "environment_failed",
}


def job_name() -> str:
    return os.environ.get("TREADLE_JOB", "slime")


def ahead() -> int:
    """Batches that are generated ahead of the one that is trained on."""
    return int(os.environ.get("TREADLE_AHEAD", "0"))


class TreadleDataSource(RolloutDataSourceWithBuffer):
    """slime's prompts; saving is treadle's checkpoint, loading its resumption."""

    def save(self, rollout_id: int) -> None:
        super().save(rollout_id)
        with Client() as client:
            client.job(job_name()).checkpoint(rollout_id + 1)

    def load(self, rollout_id: int | None = None) -> None:
        super().load(rollout_id)
        done = 0 if rollout_id is None else rollout_id + 1
        with Client() as client:
            job = client.job(job_name())
            try:
                view = job.view()
            except TreadleError as error:
                if error.status == 404:  # A new run.
                    return
                raise
            if view.next_batch > 1:
                if done > view.checkpoint:
                    job.checkpoint(done)
                job.resume(done)
                job.version(done)


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """slime's rollout function: the groups of batch `rollout_id + 1`, in the order of prompts."""
    if evaluation:
        return sglang_rollout.generate_rollout(args, rollout_id, data_source, evaluation=True)
    # Also if the batch exists already: the data source has to stay in step.
    groups = data_source.get_samples(args.rollout_batch_size)
    return RolloutFnTrainOutput(samples=run(_rollout(args, rollout_id, groups)))


async def _rollout(args: Any, rollout_id: int, groups: list[list[Any]]) -> list[list[Any]]:
    k = rollout_id + 1
    keys = {f"{rollout_id}/{group[0].group_index}": group for group in groups}
    sampled: dict[str, Any] = {}
    async with AsyncClient() as client:
        job = client.job(job_name())
        await _prepare(args, job, k)
        try:
            batch = await job.batch(k, wait_s=0)
        except NotReady:
            await job.submit(Group(key) for key in keys)
            finished = (_group(args, job, key, group) for key, group in keys.items())
            for samples in await asyncio.gather(*finished):
                sampled |= samples
            batch = await job.batch(k)
        members = [member for group in batch.groups for member in group.members]
        if any(member.program not in sampled for member in members):  # Sampled before a restart.
            info = {member.program: member.info for member in members}
            for sequence in await batch.payload():
                sampled[sequence.member] = restore(Sample, info[sequence.member], sequence)
    found = [[sampled[member.program] for member in group.members] for group in batch.groups]
    ordered = [sorted(group, key=lambda sample: int(sample.index)) for group in found]
    return sorted(ordered, key=lambda group: int(group[0].index))


async def _prepare(args: Any, job: AsyncJob, k: int) -> None:
    """Declares the job, and reports what was trained before batch `k` is generated."""
    lag = ahead()
    settings = Settings(
        group_size=args.n_samples_per_prompt,
        batch_groups=args.rollout_batch_size,
        lag_max=lag,
        pipeline=lag,
        stale="wait",
        failures_max=ATTEMPTS_MAX * args.n_samples_per_prompt,
        capture="tokens",
    )
    view = await job.declare(settings)
    if (done := k - 1 - lag) > view.checkpoint:
        await job.trained(done)
    if done > 0 and (view.version is None or view.version < done):
        await job.version(done)


async def _group(args: Any, job: AsyncJob, key: str, prompts: list[Any]) -> dict[str, Any]:
    """Samples a group; members that fail are sampled again. Samples by program."""
    missing = list(prompts)
    sampled: dict[str, Any] = {}
    for attempt in range(ATTEMPTS_MAX):
        programs = [f"{job.name}/{key}/{prompt.index}#{attempt}" for prompt in missing]
        begun = [await _begin(job, key, program) for program in programs]
        prompts = [copy.deepcopy(p) for p, member in zip(missing, begun) if member is not None]
        parameters = sglang_rollout.GenerateState(args).sampling_params.copy()
        samples = iter(
            await sglang_rollout.generate_and_rm_group(args, prompts, parameters, evaluation=False)
        )
        failed = []
        for prompt, member in zip(missing, begun):
            sample = None if member is None else next(samples)
            if isinstance(sample, list):
                raise TypeError("treadle's adapter takes one sample for each member, not several")
            if member is None or not await _report(args, member, sample, sampled):
                failed.append(prompt)
        if not (missing := failed):
            return sampled
    raise RuntimeError(f"{len(missing)} members of group `{key}` failed {ATTEMPTS_MAX} times")


async def _begin(job: AsyncJob, key: str, program: str) -> AsyncMember | None:
    """Begins a member; `None` if it failed before a restart."""
    try:
        return await job.begin(program, key, wait_s=None)
    except TreadleError as error:
        if error.code != "member_dropped":
            raise
        return None


async def _report(args: Any, member: AsyncMember, sample: Any, sampled: dict[str, Any]) -> bool:
    """Reports how a member ended. Whether it is trained."""
    end = ENDS.get(sample.status.value, "aborted")
    if end not in TRAINED:
        await member.end(end)
        return False
    reward = scalar(sample.reward, args.reward_key)
    tokens = steps_of(sample, member.version)
    try:
        if not await member.end(end, reward=reward, sample=tokens, info=info_of(sample)):
            return False
    except TreadleError as error:
        if error.code != "member_conflict":
            raise
        return True  # It ended before a restart: what is on record then is trained.
    sampled[member.program] = sample
    return True
