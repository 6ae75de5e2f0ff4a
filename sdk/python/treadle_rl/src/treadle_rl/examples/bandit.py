"""A contextual bandit that survives the death of either side.

    python -m treadle_rl.examples.bandit [--url URL] [--steps 30] [--job bandit] [--out FOLDER]

The policy is a table of logits, contexts by arms. Groups are contexts, members are draws of an arm
by worker threads, and the main thread trains on batches with GRPO. Kill the daemon or this program
at any point, start it again, and the run goes on. Needs numpy.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import threading
import zlib
from pathlib import Path
from typing import Any, TypeAlias

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError:
    sys.exit("the bandit needs numpy: pip install numpy")

from treadle_rl import (
    Client,
    Group,
    Job,
    JobBatch,
    JobMember,
    JobView,
    NotReady,
    Payload,
    Sample,
    Settings,
    Step,
    TreadleError,
)
from treadle_rl._names import write_atomically

CONTEXTS, ARMS, GROUP_SIZE, WORKERS = 8, 6, 8, 4
ARM_0 = CONTEXTS
"""Token ids: contexts come first, then arms."""
LEARNING_RATE, CLIP, NOISE, CHECKPOINT_EVERY = 1.0, 0.2, 0.1, 5

Floats: TypeAlias = NDArray[np.float64]


def log_softmax(logits: Floats) -> Floats:
    shifted: Floats = logits - logits.max(axis=-1, keepdims=True)
    normal: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normal


class Bandit:
    """The environment: a mean reward for each context and arm, in [0, 1]."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.means: Floats = np.random.default_rng(seed).random((CONTEXTS, ARMS))

    def draw(self, logits: Floats, context: int, program: str) -> tuple[int, float, float]:
        """An arm, its log-probability and its reward. The same for the same arguments."""
        rng = np.random.default_rng([self.seed, zlib.crc32(program.encode())])
        logprobs = log_softmax(logits[context])
        arm = int(rng.choice(ARMS, p=np.exp(logprobs)))
        reward = self.means[context, arm] + NOISE * rng.standard_normal()
        return arm, float(logprobs[arm]), float(reward)


class Rollouts:
    """Worker threads that sample members with the version of the weights that engines have."""

    def __init__(self, job: Job, bandit: Bandit, out: Path) -> None:
        self.job, self.bandit, self.out = job, bandit, out
        self.lineage = 0
        self.weights: dict[int, Floats] = {}
        self.failure: Exception | None = None

    def publish(self, version: int, logits: Floats) -> None:
        """Gives engines new weights. They hold old ones too: members may have begun with them."""
        self.weights = {v: w for v, w in self.weights.items() if v > version - 8}
        self.weights[version] = logits.copy()
        self.job.version(version, lineage=self.lineage)

    def start(self) -> None:
        for number in range(WORKERS):
            threading.Thread(target=self._work, args=(number,), daemon=True).start()

    def _work(self, number: int) -> None:
        try:
            state = self.out / f"worker-{number}"
            for member in self.job.members(f"{self.job.name}-{number}", state=state):
                self._sample(member)
        except Exception as failure:  # noqa: BLE001 - the main thread raises it
            self.failure = failure

    def _sample(self, member: JobMember) -> None:
        try:
            logits = self.weights.get(member.version)
            if logits is None:  # It began before a restart, with weights that are gone.
                member.end("client_failed")
                return
            context = int(member.content["context"])
            arm, logprob, reward = self.bandit.draw(logits, context, member.program)
            step = Step(
                prompt=[context], output=[ARM_0 + arm], logprobs=[logprob], version=member.version
            )
            member.end(reward=reward, sample=Sample([step], vocabulary=CONTEXTS + ARMS))
        except TreadleError as error:
            if error.code != "member_conflict":  # It ended before a restart, or timed out.
                raise


def grpo(logits: Floats, payload: Payload) -> Floats:
    """A step of GRPO: advantages are rewards minus the group's mean, ratios are clipped."""
    new = logits.copy()
    sequences = list(payload)
    rewards: dict[str, list[float]] = {}
    for sequence in sequences:
        rewards.setdefault(sequence.group, []).append(sequence.reward)
    for sequence in sequences:
        context, arm = int(sequence.ids[0]), int(sequence.ids[sequence.mask][0]) - ARM_0
        advantage = sequence.reward - float(np.mean(rewards[sequence.group]))
        logprobs = log_softmax(logits[context])
        ratio = float(np.exp(logprobs[arm] - sequence.logprobs[sequence.mask][0]))
        if (ratio > 1 + CLIP and advantage > 0) or (ratio < 1 - CLIP and advantage < 0):
            continue
        gradient = -np.exp(logprobs)
        gradient[arm] += 1
        new[context] += LEARNING_RATE * advantage * ratio * gradient
    return new


def save(out: Path, batch: int, logits: Floats) -> None:
    """Writes the checkpoint after a batch."""
    data = io.BytesIO()
    np.savez(data, batch=batch, logits=logits)
    write_atomically(out / "checkpoint.npz", data.getvalue())


def load(out: Path) -> tuple[int, Floats]:
    """The checkpoint: its last batch, and the logits; without one, the start of a run."""
    path = out / "checkpoint.npz"
    if not path.exists():
        return 0, np.zeros((CONTEXTS, ARMS))
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


def next_batch(job: Job, rollouts: Rollouts, number: int) -> JobBatch:
    while True:
        try:
            return job.batch(number, wait_s=10)
        except NotReady:
            if rollouts.failure is not None:
                raise rollouts.failure from None


def train(job: Job, rollouts: Rollouts, out: Path, first: int, logits: Floats, steps: int) -> None:
    """Trains on batches from `first` to `steps`."""
    for number in range(first, steps + 1):
        batch = next_batch(job, rollouts, number)
        logits = grpo(logits, store(out, batch))
        batch.trained()
        saves = number % CHECKPOINT_EVERY == 0 or number == steps
        if saves:
            save(out, number, logits)
        rollouts.publish(number, logits)
        if saves:
            job.checkpoint(number)
            view = job.view()
            print(
                f"batch {number:4}  mean reward {batch.reward_mean:.3f}  lag max {batch.lag_max}  "
                f"groups waiting: {view.ready} ready, {view.queued} queued",
                flush=True,
            )


def mean_reward(out: Path, batch: int) -> float:
    stored: dict[str, Any] = json.loads((out / f"batch-{batch}.json").read_bytes())
    return float(np.mean([m["reward"] for g in stored["groups"] for m in g["members"]]))


def main() -> None:
    parser = argparse.ArgumentParser(description="A bandit that survives the death of either side.")
    parser.add_argument("--url", help="the daemon; default TREADLE_URL, or http://127.0.0.1:8300")
    parser.add_argument("--steps", type=int, default=30, help="batches to train on")
    parser.add_argument("--job", default="bandit", help="name of the job")
    parser.add_argument("--out", type=Path, default=Path("bandit-run"), help="folder of the run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with Client(arguments.url) as client:
        job = client.job(arguments.job)
        view = job.declare(Settings(group_size=GROUP_SIZE, batch_groups=CONTEXTS, capture="tokens"))
        done, logits = load(out)
        rollouts = Rollouts(job, Bandit(arguments.seed), out)
        if done < arguments.steps:
            rollouts.lineage = resume(job, view, done)
            rollouts.publish(done, logits)
            names = range(arguments.steps * CONTEXTS)
            job.submit(Group(f"{n:06}", {"context": n % CONTEXTS}) for n in names)
            rollouts.start()
            train(job, rollouts, out, done + 1, logits, arguments.steps)
            job.stop()
    first, last = mean_reward(out, 1), mean_reward(out, max(done, arguments.steps))
    print(f"mean reward {first:.3f} at first, {last:.3f} at last. To prove the run, call:")
    print(f"treadle training check --job {arguments.job} --batches {out}")


if __name__ == "__main__":
    main()
