"""What the bandits have in common: GRPO on a table of logits, and a loop that survives kills."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treadle_rl import (
    Group,
    Job,
    JobBatch,
    JobMember,
    JobView,
    NotReady,
    Payload,
    Settings,
    TreadleError,
)
from treadle_rl._names import write_atomically

CONTEXTS, ARMS, GROUP_SIZE = 8, 6, 8
ARM_0 = CONTEXTS
"""Token ids: contexts come first, then arms."""
LEARNING_RATE, CLIP, CHECKPOINT_EVERY = 1.0, 0.2, 5
VERSIONS_KEPT = 8

Floats: TypeAlias = NDArray[np.float64]


def log_softmax(logits: Floats) -> Floats:
    shifted: Floats = logits - logits.max(axis=-1, keepdims=True)
    normal: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normal


def grpo(logits: Floats, payload: Payload) -> Floats:
    """A step of GRPO: advantages are rewards minus the group's mean, ratios of tokens are clipped."""
    new = logits.copy()
    sequences = list(payload)
    rewards: dict[str, list[float]] = {}
    for sequence in sequences:
        rewards.setdefault(sequence.group, []).append(sequence.reward)
    for sequence in sequences:
        context = int(sequence.ids[0])
        advantage = sequence.reward - float(np.mean(rewards[sequence.group]))
        logprobs = log_softmax(logits[context])
        columns = sequence.ids[sequence.mask] - ARM_0
        for column, sampled in zip(columns, sequence.logprobs[sequence.mask], strict=True):
            ratio = float(np.exp(logprobs[column] - sampled))
            if (ratio > 1 + CLIP and advantage > 0) or (ratio < 1 - CLIP and advantage < 0):
                continue
            gradient = -np.exp(logprobs)
            gradient[column] += 1
            new[context] += LEARNING_RATE * advantage * ratio * gradient / len(columns)
    return new


class Rollouts:
    """What samples the members of a job, and gets each version of the weights."""

    def __init__(self, job: Job, out: Path) -> None:
        self.job, self.out = job, out
        self.lineage = 0
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begins to sample members, in threads."""
        raise NotImplementedError

    def publish(self, version: int, logits: Floats) -> None:
        """Gives engines new weights."""
        raise NotImplementedError

    def tell(self, batch: JobBatch, saves: bool) -> None:
        """Prints how it goes, after a batch was trained."""
        if saves:
            view = self.job.view()
            print(
                f"batch {batch.batch:4}  mean reward {batch.reward_mean:.3f}  "
                f"lag max {batch.lag_max}  "
                f"groups waiting: {view.ready} ready, {view.queued} queued",
                flush=True,
            )


class Workers(Rollouts):
    """Worker threads that sample members themselves, with the weights that engines have."""

    def __init__(self, job: Job, out: Path, workers: int) -> None:
        super().__init__(job, out)
        self.workers = workers
        self.weights: dict[int, Floats] = {}

    def publish(self, version: int, logits: Floats) -> None:
        """Engines hold old weights too: members may have begun with them."""
        kept = {v: w for v, w in self.weights.items() if v > version - VERSIONS_KEPT}
        self.weights = {**kept, version: logits.copy()}
        self.job.version(version, lineage=self.lineage)

    def start(self) -> None:
        for number in range(self.workers):
            threading.Thread(target=self._work, args=(number,), daemon=True).start()

    def _work(self, number: int) -> None:
        try:
            state = self.out / f"worker-{number}"
            for member in self.job.members(f"{self.job.name}-{number}", state=state):
                self._begun(member)
        except Exception as failure:  # noqa: BLE001 - the main thread raises it
            self.failure = failure

    def _begun(self, member: JobMember) -> None:
        try:
            logits = self.weights.get(member.version)
            if logits is None:  # It began before a restart, with weights that are gone.
                member.end("client_failed")
                return
            self._sample(member, logits)
        except TreadleError as error:
            if error.code != "member_conflict":  # It ended before a restart, or timed out.
                raise

    def _sample(self, member: JobMember, logits: Floats) -> None:
        raise NotImplementedError


def save(out: Path, batch: int, logits: Floats) -> None:
    """Writes the checkpoint after a batch."""
    data = io.BytesIO()
    np.savez(data, batch=batch, logits=logits)
    write_atomically(out / "checkpoint.npz", data.getvalue())


def load(out: Path, initial: Floats) -> tuple[int, Floats]:
    """The checkpoint: its last batch, and the logits; without one, the start of a run."""
    path = out / "checkpoint.npz"
    if not path.exists():
        return 0, initial
    with np.load(path) as saved:
        return int(saved["batch"]), saved["logits"]


def resume(job: Job, view: JobView, batch: int) -> int:
    """Tells the daemon that training goes on after a batch. Returns the lineage."""
    if view.next_batch <= batch or view.checkpoint > batch:
        sys.exit(
            f"job `{job.name}` has batches to {view.next_batch - 1} and a checkpoint after "
            f"{view.checkpoint}, the folder has one after {batch}: they belong to different runs; "
            "give another --job, with another --out"
        )
    if batch > view.checkpoint:
        job.checkpoint(batch)  # It was killed before it said so.
    if view.next_batch == 1:
        return view.lineage
    lineage = job.resume(batch)
    print(f"resumed after batch {batch}", flush=True)
    return lineage


def store(out: Path, batch: JobBatch) -> Payload:
    """Stores a batch for `treadle training check`. One that comes again has to be the same."""
    payload = batch.payload()
    if wrong := payload.check():
        sys.exit(f"the tokens of {wrong} in batch {batch.batch} are not those that were recorded")
    tokens = out / f"batch-{batch.batch}.safetensors"
    if tokens.exists() and tokens.read_bytes() != payload.raw:
        sys.exit(f"batch {batch.batch} came again and differs from {tokens}")
    write_atomically(out / f"batch-{batch.batch}.json", batch.raw)
    write_atomically(tokens, payload.raw)
    return payload


def next_batch(rollouts: Rollouts, number: int) -> JobBatch:
    while True:
        try:
            return rollouts.job.batch(number, wait_s=10)
        except NotReady:
            if rollouts.failure is not None:
                raise rollouts.failure from None


def train(rollouts: Rollouts, first: int, logits: Floats, steps: int) -> None:
    """Trains on batches from `first` to `steps`."""
    job, out = rollouts.job, rollouts.out
    for number in range(first, steps + 1):
        batch = next_batch(rollouts, number)
        logits = grpo(logits, store(out, batch))
        batch.trained()
        saves = number % CHECKPOINT_EVERY == 0 or number == steps
        if saves:
            save(out, number, logits)
        rollouts.publish(number, logits)
        rollouts.tell(batch, saves)
        if saves:
            job.checkpoint(number)


def mean_reward(out: Path, batch: int) -> float:
    stored: dict[str, Any] = json.loads((out / f"batch-{batch}.json").read_bytes())
    return float(np.mean([m["reward"] for g in stored["groups"] for m in g["members"]]))


def run(
    rollouts: Rollouts, settings: Settings, groups: Iterable[Group], initial: Floats, steps: int
) -> None:
    """Declares the job, and trains on `steps` batches, or on those that are left of them."""
    job, out = rollouts.job, rollouts.out
    view = job.declare(settings)
    done, logits = load(out, initial)
    if done < steps:
        rollouts.lineage = resume(job, view, done)
        rollouts.publish(done, logits)
        job.submit(groups)
        rollouts.start()
        train(rollouts, done + 1, logits, steps)
        job.stop()
    first, last = mean_reward(out, 1), mean_reward(out, max(done, steps))
    print(f"mean reward {first:.3f} at first, {last:.3f} at last. To prove the run, call:")
    print(f"treadle training check --job {job.name} --batches {out}", flush=True)
