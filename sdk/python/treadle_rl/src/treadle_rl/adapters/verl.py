"""verl: a sampler with `ReplayBufferAsync`'s interface that asks treadle which groups are a batch.

    trainer.v1.sampler.custom_sampler.path=pkg://treadle_rl.adapters.verl
    trainer.v1.sampler.custom_sampler.name=TreadleSampler
    +trainer.v1.sampler.sampler_kwargs.job=math

TransferQueue keeps the tensors. verl's rules decide which groups are too old, and refill; treadle
records each prompt group as a group with one member, its start, its end and its batch. Training
step `k` is batch `k`: asked for again, it has the same groups, whose prompt keys stay in
TransferQueue until the step is trained. `sampler_kwargs` also takes `url`, `token`, `save_freq` (as
`trainer.save_freq`) and `first_step` (the training step that is batch 1). Needs verl 0.9.
"""

from __future__ import annotations

import time
from typing import Any

from .. import Client, NotReady, Settings, TreadleError
from .._http import DROPPED

try:
    import transfer_queue as tq
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
except ImportError as error:
    message = "treadle_rl.adapters.verl runs inside verl 0.9, which can't be imported here"
    raise ImportError(message) from error

BATCH = "treadle_batch"
"""Tag of a prompt key that is in a batch: the batch's number."""


class TreadleSampler(ReplayBufferAsync):
    """verl's asynchronous replay buffer, whose training batches treadle keeps on record."""

    def __init__(self, *args: Any, sampler_kwargs: Any, **rest: Any) -> None:
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **rest)
        given = dict(sampler_kwargs or {})
        if self.max_off_policy_threshold is None:
            raise ValueError("treadle needs trainer.v1.sampler.max_off_policy_threshold")
        if self.max_off_policy_strategy != "drop":
            raise ValueError("treadle's bound is strict: set max_off_policy_strategy=drop")
        if int((self.trainer_config or {}).get("parameter_sync_step", 1)) != 1:
            raise ValueError("treadle's batches are training steps: set parameter_sync_step=1")
        self.client = Client(given.get("url"), given.get("token"))
        self.job = self.client.job(str(given.get("job", "verl")))
        self.first_step = int(given.get("first_step", 1))
        self.save_freq = int(given.get("save_freq", 0))
        self._k = 0
        self._batch: list[str] = []
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def _program(self, uid: str) -> str:
        return f"{self.job.name}/{uid}"

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[Any, dict[str, Any]]:
        """The groups of training step `global_steps`. Validation stays verl's."""
        if partition_id != "train":
            result: tuple[Any, dict[str, Any]] = super().sample(
                global_steps, partition_id, batch_size
            )
            return result
        k = global_steps - self.first_step + 1
        if k != self._k:
            self._advance(k, batch_size)
        metrics: dict[str, Any] = {}
        wait_s = 0.0
        while True:
            try:
                batch = self.job.batch(k, wait_s=wait_s)
                break
            except NotReady:
                ready, metrics = self.wait_for_sampleable(global_steps, partition_id, batch_size)
                uids, _, _ = self._select_prompt_uids(partition_id, ready, batch_size)
                for uid in uids:
                    self._end(partition_id, uid)
                wait_s = 1.0
        return self._take(k, partition_id, [group.group for group in batch.groups]), metrics

    def wait_for_sampleable(
        self, global_steps: int, partition_id: str, target_count: int
    ) -> tuple[set[str], dict[str, Any]]:
        """verl's; before it, the end of the step before is reported."""
        k = global_steps - self.first_step + 1
        if partition_id == "train" and 0 < self._k < k:
            self._advance(k, target_count)
        found: tuple[set[str], dict[str, Any]] = super().wait_for_sampleable(
            global_steps, partition_id, target_count
        )
        return found

    def _advance(self, k: int, batch_size: int) -> None:
        """Reports that step `k - 1` is trained, and removes what TransferQueue kept for it."""
        if self._k == 0:
            self._open(k, batch_size)
        elif k != self._k + 1:
            raise ValueError(f"step {k} was asked for after step {self._k}")
        else:
            self.job.trained(k - 1)
            self.job.version(k - 1)
            if self.save_freq and (k - 2 + self.first_step) % self.save_freq == 0:
                self.job.checkpoint(k - 1)
        items = (tq.kv_list("train") or {}).get("train", {})
        done = [key for key, tag in items.items() if 0 < tag.get(BATCH, 0) < k]
        if done:
            tq.kv_clear(partition_id="train", keys=done)
        self._begun.difference_update(done)
        self._ended.difference_update(done)
        self._k, self._batch = k, []

    def _open(self, k: int, batch_size: int) -> None:
        """Declares the job; after a restart, goes back to verl's checkpoint after step `k - 1`."""
        lag_max = int(self.max_off_policy_threshold) - 1
        settings = Settings(
            group_size=1,
            batch_groups=batch_size,
            lag_max=lag_max,
            pipeline=lag_max,
            failures_max=0,
            rewarded=False,
        )
        view = self.job.declare(settings)
        if view.next_batch > 1:
            if k - 1 > view.checkpoint:
                self.job.checkpoint(k - 1)
            self.job.resume(k - 1)
            self.job.version(k - 1)

    def _sync_metadata_from_transfer_queue(self) -> None:
        """verl's, and begins members for prompts that were dispatched since."""
        super()._sync_metadata_from_transfer_queue()
        if self._k == 0:
            return
        steps = self.prompt_global_steps["train"]
        for uid in self._batch:  # It is being trained on.
            self.finished_keys["train"].discard(uid)
            steps.pop(uid, None)
        for uid in sorted(steps.keys() - self._begun, key=lambda uid: (steps[uid], uid)):
            try:
                if not self.job.begin(self._program(uid), uid, wait_s=0).surplus:
                    self._begun.add(uid)
            except NotReady:  # As many groups as may begin have begun.
                return
            except TreadleError as error:
                if error.code != "member_dropped":
                    raise

    def _sampleable_terminal_keys(self, partition_id: str, eviction_reasons: Any) -> set[str]:
        ready: set[str] = super()._sampleable_terminal_keys(partition_id, eviction_reasons)
        return ready & self._begun if partition_id == "train" else ready

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: Any, batch_size: int) -> Any:
        """verl's order, oldest first, with a fixed order among equals."""
        _, snapshot, steps = super()._select_prompt_uids(partition_id, sampleable_keys, 0)
        ordered = sorted(sampleable_keys, key=lambda u: (u not in self._ended, steps.get(u, 0), u))
        return ordered[:batch_size], snapshot, steps

    def _end(self, partition_id: str, uid: str) -> None:
        """Reports that a group is finished: with it treadle can cut the batch."""
        if uid in self._ended:
            return
        tags = [t for key, t in self.partitions[partition_id].items() if key.split("_")[0] == uid]
        tokens = sum(int(tag.get("seq_len", 0)) for tag in tags)
        try:
            self.job.end(self._program(uid), tokens=tokens, turns=len(tags))
        except TreadleError as error:
            if error.code not in DROPPED:
                raise
            self._clear_groups(partition_id, {uid})  # treadle found it too old.
            if self.refill_fn is not None:
                self.refill_fn(1)
            return
        self._ended.add(uid)

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        """verl's eviction of groups that are too old or failed, which treadle records too."""
        failed = set(self.failure_keys[partition_id])
        super()._clear_groups(partition_id, uids)
        for uid in uids & self._begun if partition_id == "train" else ():
            end = "environment_failed" if uid in failed else "aborted"
            try:
                self.job.end(self._program(uid), end)  # type: ignore[arg-type]
            except TreadleError as error:
                if error.code not in {*DROPPED, "member_conflict"}:
                    raise
            self._begun.discard(uid)

    def _take(self, k: int, partition_id: str, uids: list[str]) -> Any:
        """Marks the prompt keys of a batch, and collects its trajectories."""
        wanted = set(uids)
        self._batch = []
        while True:
            self._sync_metadata_from_transfer_queue()
            running = self.pending_keys[partition_id] | self.running_keys[partition_id]
            if not wanted & running:
                break
            time.sleep(self.poll_interval)  # After a restart verl samples these groups again.
        if lost := wanted - self.prompt_global_steps[partition_id].keys():
            raise RuntimeError(
                f"TransferQueue has lost the tokens of groups in batch {k} ({sorted(lost)[:3]}): "
                "go on under another sampler_kwargs.job, with first_step at this step"
            )
        step_of = self.prompt_global_steps[partition_id]
        tags = [
            {"is_prompt": True, "status": "finished", "global_steps": step_of[uid], BATCH: k}
            for uid in uids
        ]
        tq.kv_batch_put(keys=uids, partition_id=partition_id, tags=tags)
        self._batch = uids
        items = self.partitions[partition_id].items()
        found = [(key, tag) for key, tag in items if key.split("_")[0] in wanted]
        keys, tags = [key for key, _ in found], [tag for _, tag in found]
        return tq.KVBatchMeta(partition_id=partition_id, keys=keys, tags=tags)
