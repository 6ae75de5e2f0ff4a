"""Jobs, groups, members, samples and batches, as `docs/training.md` defines them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, SupportsFloat, TypeAlias, TypedDict

End: TypeAlias = Literal[
    "completed",
    "truncated",
    "aborted",
    "environment_failed",
    "engine_failed",
    "reward_failed",
    "client_failed",
]
TRAINED = ("completed", "truncated")
"""Ends of members that are trained; any other makes room for a replacement."""

Numbers: TypeAlias = Any
"""A list, a tuple or a one-dimensional numpy array of numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a job declares. Lags count training steps, timeouts seconds."""

    group_size: int = 8
    batch_groups: int = 16
    lag_max: int = 1
    pipeline: int = 1
    stale: Literal["cut", "finish", "wait"] = "cut"
    failures_max: int = 8
    starved_after: int = 3
    redundancy_max: int = 2
    rewarded: bool = True
    capture: Literal["none", "tokens"] = "none"
    history: Literal["as_sent", "as_sampled"] = "as_sent"
    member_timeout_s: int = 3600
    affinity: Mapping[str, str] | Literal["auto"] | None = None
    """Class of hardware by domain, `default` for all others; or "auto"."""
    reward: Mapping[str, Any] | None = None
    """What computes rewards that clients don't report: an action, or `{"policy": True}`."""
    model: str | None = None

    def body(self) -> dict[str, Any]:
        return {name: value for name, value in fields_of(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt to sample. `content` is any JSON of at most 1 MiB; `size` defaults to the job's; the
    bias account is kept by `domain` too."""

    group: str
    content: Any = None
    size: int | None = None
    domain: str | None = None

    def body(self) -> dict[str, Any]:
        given = {"size": self.size, "domain": self.domain}
        given = {name: value for name, value in given.items() if value is not None}
        return {"group": self.group, "content": self.content, **given}


@dataclass(frozen=True, slots=True)
class Member:
    """A program that may begin. `version` is that of the weights that engines have."""

    program: str
    group: str
    content: Any
    version: int
    surplus: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Tokens that a model sampled, as ids, after a prompt. `logprobs` has one number per `output`.

    `version` is that of the weights that sampled all of `output`; `versions` has ranges
    `(start, end, version)` instead if the weights changed in between. A `foreign` step is context
    only: another model made it.
    """

    prompt: Numbers
    output: Numbers
    logprobs: Numbers = ()
    version: int | None = None
    versions: Sequence[tuple[int, int, int]] | None = None
    foreign: bool = False

    def body(self) -> dict[str, Any]:
        output, logprobs = _listed(self.output), [float(x) for x in _listed(self.logprobs)]
        if not self.foreign and len(logprobs) != len(output):
            raise ValueError(f"{len(logprobs)} log-probabilities for {len(output)} sampled tokens")
        if not all(map(math.isfinite, logprobs)):
            raise ValueError("a log-probability is not finite; report the engine's own numbers")
        body: dict[str, Any] = {
            "prompt": [int(x) for x in _listed(self.prompt)],
            "output": [int(x) for x in output],
            "logprobs": logprobs,
        }
        if self.version is not None:
            body["version"] = int(self.version)
        if self.versions is not None:
            ranges = [[int(x) for x in span] for span in self.versions]
            body["versions"] = [{"start": s, "end": e, "version": v} for s, e, v in ranges]
        return body | ({"foreign": True} if self.foreign else {})


@dataclass(frozen=True, slots=True)
class Sample:
    """The steps of a member, in order. With `vocabulary`, ids are checked against that size."""

    steps: Sequence[Step]
    vocabulary: int | None = None

    def body(self) -> dict[str, Any]:
        vocabulary = {} if self.vocabulary is None else {"vocabulary": self.vocabulary}
        return {"steps": [step.body() for step in self.steps], **vocabulary}


class Report(TypedDict, total=False):
    """What a member's end comes with; each may be absent. `info` is any JSON of at most 64 KiB."""

    reward: SupportsFloat | None
    sample: Sample | None
    tokens: int | None
    turns: int | None
    info: Any


@dataclass(frozen=True, slots=True)
class BatchMember:
    """A member in a batch. `sample` is the digest of its sequences, if it has a sample.

    `deleted` says that what was stored of it is deleted: its sample is gone.
    """

    program: str
    end: str
    reward: float | None
    version: int
    tokens: int
    turns: int
    sample: str | None
    info: Any
    deleted: bool | None = None


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """A group in a batch. `lag` counts training steps."""

    group: str
    content: Any
    version: int
    lag: int
    members: tuple[BatchMember, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, numbered from 1. `raw` is the daemon's answer, byte for byte."""

    job: str
    batch: int
    lineage: int
    trained_on: int
    was_trained: bool
    groups: tuple[BatchGroup, ...]
    raw: bytes = field(repr=False)

    @property
    def lag_max(self) -> int:
        """The largest lag of a group, in training steps."""
        return max((group.lag for group in self.groups), default=0)

    @property
    def reward_mean(self) -> float:
        """Mean over the members that have a reward; NaN if none has."""
        rewards = [m.reward for g in self.groups for m in g.members if m.reward is not None]
        return sum(rewards) / len(rewards) if rewards else math.nan


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the daemon shows it; `raw` has everything."""

    job: str
    settings: dict[str, Any]
    lineage: int
    version: int | None
    next_batch: int
    checkpoint: int
    queued: int
    running: int
    ready: int
    held: int
    waits: Any
    account: dict[str, Any]
    raw: dict[str, Any] = field(repr=False)


def _listed(values: Numbers) -> list[Any]:
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if not isinstance(listed, list) or any(isinstance(x, (list, tuple)) for x in listed):
        raise ValueError("token ids and log-probabilities have one dimension")
    return listed


def finite(reward: Any) -> float:
    """A reward as a number. One that could not be computed is a failure, not a number."""
    value = float(reward)
    if not math.isfinite(value):
        raise ValueError(
            f"the reward is {value}, and has to be finite; if it could not be computed, report "
            "end='reward_failed', or reward(program, failed='why')"
        )
    return value


def ending(end: str, report: Report) -> dict[str, Any]:
    """The report that a member ended."""
    body: dict[str, Any] = {name: value for name, value in report.items() if value is not None}
    if "reward" in body:
        if end not in TRAINED:
            raise ValueError(f"a member with end={end!r} has no reward: a failure is not a score")
        body["reward"] = finite(body["reward"])
    if (sample := report.get("sample")) is not None:
        body["sample"] = sample.body()
    return {"end": end, **body}


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record, by name."""
    return {f.name: getattr(record, f.name) for f in fields(record)}


def member_of(answer: dict[str, Any]) -> Member:
    """A member from the daemon's answer."""
    surplus = bool(answer.get("surplus", False))
    version = int(answer.get("version") or 0)
    return Member(answer["program"], answer["group"], answer.get("content"), version, surplus)


def batch_of(raw: bytes) -> Batch:
    """A batch from the daemon's answer."""
    answer = json.loads(raw)
    names = [f.name for f in fields(BatchMember)]
    groups = tuple(
        BatchGroup(
            group=group["group"],
            content=group.get("content"),
            version=group["version"],
            lag=group["lag"],
            members=tuple(BatchMember(**{n: m.get(n) for n in names}) for m in group["members"]),
        )
        for group in answer["groups"]
    )
    return Batch(
        job=answer["job"],
        batch=answer["batch"],
        lineage=answer["lineage"],
        trained_on=answer["trained_on"],
        was_trained=answer["trained"],
        groups=groups,
        raw=raw,
    )


def view_of(answer: dict[str, Any]) -> JobView:
    """A job from the daemon's answer."""
    counts = {name: int(answer.get(name) or 0) for name in ("queued", "running", "ready", "held")}
    return JobView(
        job=answer.get("job", ""),
        settings=answer.get("settings", {}),
        lineage=int(answer.get("lineage") or 0),
        version=answer.get("version"),
        next_batch=int(answer.get("next_batch") or 1),
        checkpoint=int(answer.get("checkpoint") or 0),
        waits=answer.get("waits"),
        account=answer.get("account", {}),
        raw=answer,
        **counts,
    )
