"""What slime and miles share, as stand-ins: interface as of slime 624b824a8 and miles 31f1ca961."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass
class FrameworkSample:
    """`slime.utils.types.Sample` and `miles.utils.types.Sample`: the fields that adapters use."""

    group_index: int | None = None
    index: int | None = None
    prompt: str = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def oldest_weight_version(self) -> int | None:
        return min(map(int, self.weight_versions)) if self.weight_versions else None

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "status": self.status.value}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> FrameworkSample:
        return FrameworkSample(**{**data, "status": FrameworkSample.Status(data["status"])})


def sampled(prompt: FrameworkSample, version: int) -> FrameworkSample:
    """A response with a tool's output in the middle."""
    number = prompt.index or 0
    prompt.tokens = [1, 2, 10 + number, 50, 20 + number]
    prompt.response, prompt.response_length = f"answer {number}", 3
    prompt.loss_mask, prompt.rollout_log_probs = [1, 0, 1], [-0.5, 0.0, -0.25 * (number + 1)]
    prompt.weight_versions = [str(version)]
    prompt.reward = {"accuracy": float(number % 2), "length": 3.0}
    prompt.status = FrameworkSample.Status.COMPLETED
    return prompt
