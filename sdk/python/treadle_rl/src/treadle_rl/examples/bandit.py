"""A contextual bandit that survives the death of either side.

    python -m treadle_rl.examples.bandit [--url URL] [--steps 30] [--job bandit] [--out FOLDER]

The policy is a table of logits, contexts by arms. Groups are contexts, members are draws of an arm
by worker threads, and the main thread trains on batches with GRPO. Kill the daemon or this program
at any point, start it again, and the run goes on. Needs numpy.

`--shaping darts` has answers of several tokens in two domains, and samples more than it trains
(`shaping.py`). `--engines 2` samples at two engines whose weights change (`engines.py`). Both start
`treadle` if nothing listens at the URL.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("the bandit needs numpy: pip install numpy")

from treadle_rl import Client, Group, Job, JobMember, Sample, Settings, Step

from ._loop import ARM_0, ARMS, CONTEXTS, GROUP_SIZE, Floats, Workers, log_softmax, run

WORKERS, NOISE = 4, 0.1


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


class Draws(Workers):
    """Members are one draw each."""

    def __init__(self, job: Job, out: Path, bandit: Bandit) -> None:
        super().__init__(job, out, WORKERS)
        self.bandit = bandit

    def _sample(self, member: JobMember, logits: Floats) -> None:
        context = int(member.content["context"])
        arm, logprob, reward = self.bandit.draw(logits, context, member.program)
        step = Step(
            prompt=[context], output=[ARM_0 + arm], logprobs=[logprob], version=member.version
        )
        member.end(reward=reward, sample=Sample([step], vocabulary=CONTEXTS + ARMS))


def play(arguments: argparse.Namespace) -> None:
    """The bandit of one token."""
    settings = Settings(group_size=GROUP_SIZE, batch_groups=CONTEXTS, capture="tokens")
    names = range(arguments.steps * CONTEXTS)
    groups = (Group(f"{n:06}", {"context": n % CONTEXTS}) for n in names)
    with Client(arguments.url) as client:
        draws = Draws(client.job(arguments.job), arguments.out, Bandit(arguments.seed))
        run(draws, settings, groups, np.zeros((CONTEXTS, ARMS)), arguments.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="A bandit that survives the death of either side.")
    parser.add_argument("--url", help="the daemon; default TREADLE_URL, or http://127.0.0.1:8300")
    parser.add_argument("--steps", type=int, default=30, help="batches to train on")
    parser.add_argument("--job", help="name of the job; default bandit, bandit-darts and so on")
    parser.add_argument("--out", type=Path, help="folder of the run; default JOB-run")
    parser.add_argument("--seed", type=int, default=0)
    kinds = parser.add_mutually_exclusive_group()
    shapes = ("darts", "uniform")
    kinds.add_argument("--shaping", choices=shapes, help="sample more members than are trained")
    kinds.add_argument("--engines", type=int, metavar="N", help="sample at this many engines")
    arguments = parser.parse_args()
    kind = arguments.shaping or ("engines" if arguments.engines else None)
    arguments.job = arguments.job or (f"bandit-{kind}" if kind else "bandit")
    arguments.out = arguments.out or Path(f"{arguments.job}-run")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.shaping:
        from . import shaping

        shaping.play(arguments)
    elif arguments.engines:
        from . import engines

        engines.play(arguments)
    else:
        play(arguments)


if __name__ == "__main__":
    main()
