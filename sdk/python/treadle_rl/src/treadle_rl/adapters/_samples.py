"""Samples of slime and miles, which share their form, as samples of treadle and back."""

from __future__ import annotations

import json
from typing import Any

from ..payload import Sequence
from ..records import Sample, Step

TOKENS = ("tokens", "response_length", "loss_mask", "rollout_log_probs", "reward")
"""Fields that come back with the payload."""
INFO_BYTES_MAX = 60_000


def steps_of(sample: Any, version: int) -> Sample:
    """One step for each run of sampled tokens. `rollout_log_probs` and `loss_mask` have
    `response_length` entries; without a mask the whole response was sampled."""
    tokens, length = [int(t) for t in sample.tokens], int(sample.response_length)
    logprobs, start = sample.rollout_log_probs, len(tokens) - int(sample.response_length)
    if logprobs is None or len(logprobs) != length:
        raise ValueError("a sample has no log-probabilities: let the engine return them")
    mask = [1] * length if sample.loss_mask is None else [int(m) for m in sample.loss_mask]
    steps, at = [], 0
    while at < length:
        end = at
        while end < length and mask[end] == mask[at]:
            end += 1
        if mask[at]:
            prompt, output = tokens[: start + at], tokens[start + at : start + end]
            step = Step(prompt=prompt, output=output, logprobs=logprobs[at:end], version=version)
            steps.append(step)
        at = end
    return Sample(steps)


def info_of(sample: Any) -> dict[str, Any]:
    """What the payload does not carry, as JSON. A response too long for it is left out."""
    values = {k: v for k, v in sample.to_dict().items() if k not in TOKENS and _is_json(v)}
    if isinstance(sample.reward, dict):
        values["reward"] = sample.reward
    if len(json.dumps(values)) > INFO_BYTES_MAX:
        values.pop("response", None)
    return values


def restore(kind: type, info: dict[str, Any], sequence: Sequence) -> Any:
    """The sample of a member, from the batch and its payload; `kind` is the framework's class."""
    first = min(start for start, _ in sequence.ranges)
    values = {
        "reward": sequence.reward,
        **info,
        "tokens": [int(t) for t in sequence.ids],
        "response_length": len(sequence.ids) - first,
        "loss_mask": [int(m) for m in sequence.mask[first:]],
        "rollout_log_probs": [float(x) for x in sequence.logprobs[first:]],
    }
    return kind.from_dict(values)  # type: ignore[attr-defined]


def scalar(reward: Any, key: str | None) -> float:
    """A reward as one number; of a dictionary, the entry that the trainer uses."""
    return float(reward[key] if isinstance(reward, dict) else reward)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
