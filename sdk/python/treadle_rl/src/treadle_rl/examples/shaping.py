"""The bandit under a shaping policy: groups sample more members than are trained.

    python -m treadle_rl.examples.bandit --shaping darts      # or uniform, to compare

Answers have several tokens, more in the domain `long` than in `short`. The policy, which comes with
treadle, says how many members each group samples, ends those that are not needed, and selects which
are trained. After each batch the example prints what that did: members, lengths and tokens that were
sampled against those that are trained, and what was left out, with the reason.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle_rl import Job, JobBatch, JobMember, Sample, Settings, Step, StreamEvent
from treadle_rl.records import Batch

from ._daemon import address, daemon_at
from ._loop import CONTEXTS, GROUP_SIZE, Floats, Workers, run
from .answers import (
    DOMAINS,
    THINK,
    VOCABULARY,
    Environment,
    domain_of,
    groups_of,
    initial,
    is_over,
    next_token,
)

WORKERS = 24
TOKEN_S = 0.002
"""Time for a token."""
CONFIGS: dict[str, dict[str, Any]] = {
    # Tokens of members that their clients sample are known at their ends only, so members can't end
    # early by their lengths (`exact`).
    "darts": {"ratio": 1.5, "early_stop": "first"},
    "uniform": {"ratio": 1.5},
}
REASONS = {
    "curtailed": "enough of their groups had ended",
    "unselected": "others of their groups were selected",
    "postponed": "their prompts run later",
    "cut": "their weights were too old",
}


@dataclass(slots=True)
class Sampled:
    """A member that was sampled here. `lost` is why it is not trained."""

    group: str = ""
    tokens: int = 0
    lost: str | None = None


@dataclass(slots=True)
class Sums:
    """Members and their tokens."""

    members: int = 0
    tokens: int = 0

    def add(self, tokens: int) -> None:
        self.members += 1
        self.tokens += tokens

    def __str__(self) -> str:
        return f"{self.members:4} of {self.tokens / max(1, self.members):5.1f} tokens"


@dataclass(slots=True)
class Account:
    """What was sampled and what is trained, by domain, and what was left out, by reason."""

    sampled: dict[str, Sums] = field(default_factory=lambda: {name: Sums() for name in DOMAINS})
    trained: dict[str, Sums] = field(default_factory=lambda: {name: Sums() for name in DOMAINS})
    lost: dict[str, Sums] = field(default_factory=dict)

    def add(self, batch: Batch, members: dict[str, Sampled]) -> None:
        """Adds a batch, and all members of its groups that were sampled here."""
        domains = {group.group: domain_of(group.content["context"]) for group in batch.groups}
        tokens = {m.program: (g.group, m.tokens) for g in batch.groups for m in g.members}
        for group, count in tokens.values():
            self.trained[domains[group]].add(count)
            self.sampled[domains[group]].add(count)
        for program, member in members.items():
            if member.group in domains and program not in tokens:
                self.sampled[domains[member.group]].add(member.tokens)
                self.lost.setdefault(member.lost or "running", Sums()).add(member.tokens)

    def tokens(self) -> str:
        sampled, trained = (
            sum(sums.tokens for sums in of.values()) for of in (self.sampled, self.trained)
        )
        share = trained / max(1, sampled)
        return f"{trained} of {sampled} sampled tokens are trained ({share:.0%})"

    def lines(self) -> list[str]:
        by_domain = [
            f"  {name:6} sampled {self.sampled[name]}, trained {self.trained[name]}"
            for name in DOMAINS
        ]
        lost = [
            f"  {end}: {sums.members} with {sums.tokens} tokens, {REASONS.get(end, 'they failed')}"
            for end, sums in sorted(self.lost.items())
        ]
        return by_domain + lost


class Ledger:
    """What became of members, as the job's stream says."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.members: dict[str, Sampled] = {}
        self.parts: Counter[int] = Counter()
        self.cut: set[int] = set()

    def member(self, program: str) -> Sampled:
        with self.changed:
            return self.members.setdefault(program, Sampled())

    def follow(self, events: Iterable[StreamEvent]) -> None:
        for event in events:
            self.take(event)

    def take(self, event: StreamEvent) -> None:
        data = event.data
        with self.changed:
            if event.kind == "dropped":
                self.members.setdefault(data["program"], Sampled()).lost = data["end"]
            elif event.kind == "batch":
                self.parts[data["batch"]] += 1
                if self.parts[data["batch"]] >= data["groups"]:
                    self.cut.add(data["batch"])
            elif event.kind == "gone" and data["what"] == "batch":
                self.cut.add(data["batch"])
            self.changed.notify_all()

    def has(self, batch: int, wait_s: float) -> bool:
        """Whether the stream has come to a batch: what its groups lost is known then."""
        with self.changed:
            return self.changed.wait_for(lambda: batch in self.cut, wait_s)

    def of_groups(self, groups: set[str]) -> dict[str, Sampled]:
        """The members of these groups, which are forgotten."""
        with self.changed:
            found = {p: m for p, m in self.members.items() if m.group in groups}
            for program in found:
                del self.members[program]
            return found


class Shaped(Workers):
    """Members are answers; one that the policy ends stops at its next token."""

    def __init__(self, job: Job, out: Path, environment: Environment) -> None:
        super().__init__(job, out, WORKERS)
        self.environment = environment
        self.ledger, self.total = Ledger(), Account()

    def start(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()
        super().start()

    def _follow(self) -> None:
        try:
            self.ledger.follow(self.job.stream())
        except Exception as failure:  # noqa: BLE001 - the main thread raises it
            self.failure = failure

    def _sample(self, member: JobMember, logits: Floats) -> None:
        context, sampled = int(member.content["context"]), self.ledger.member(member.program)
        sampled.group = member.group
        rng = self.environment.rng(member.program)
        tokens: list[int] = []
        logprobs: list[float] = []
        while not is_over(tokens):
            if sampled.lost is not None:
                return
            time.sleep(TOKEN_S)
            token, logprob = next_token(rng, logits[context])
            tokens.append(token)
            logprobs.append(logprob)
            sampled.tokens = len(tokens)
        step = Step(prompt=[context], output=tokens, logprobs=logprobs, version=member.version)
        member.end(
            "truncated" if tokens[-1] == THINK else "completed",
            reward=self.environment.reward(context, tokens, rng),
            sample=Sample([step], vocabulary=VOCABULARY),
        )

    def tell(self, batch: JobBatch, saves: bool) -> None:
        while not self.ledger.has(batch.batch, wait_s=1):
            if self.failure is not None:
                raise self.failure
        members = self.ledger.of_groups({group.group for group in batch.groups})
        own = Account()
        for account in (own, self.total):
            account.add(batch, members)
        reward = f"mean reward {batch.reward_mean:.3f}  lag max {batch.lag_max}"
        print(f"batch {batch.batch:4}  {reward}  {own.tokens()}")
        print("\n".join(own.lines()), flush=True)


def play(arguments: argparse.Namespace) -> None:
    """The bandit under a shaping policy."""
    name, out = arguments.shaping, arguments.out
    settings = Settings(group_size=GROUP_SIZE, batch_groups=CONTEXTS, capture="tokens")
    start = ["up", "--instant"]
    with daemon_at(address(arguments.url), out, start) as daemon, daemon.client() as client:
        policy = f"{name}-shaping"
        client.bind(policy, world="shaping", job=arguments.job, config=CONFIGS[name])
        shaped = Shaped(client.job(arguments.job), out, Environment(arguments.seed))
        run(shaped, settings, groups_of(arguments.steps), initial(), arguments.steps)
        print(f"in all, {policy}: {shaped.total.tokens()}")
        print("\n".join(shaped.total.lines()), flush=True)
        daemon.check(arguments.job, out)
