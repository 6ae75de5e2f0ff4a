"""Payloads, with numpy and without."""

from __future__ import annotations

import math
from typing import Any

import pytest
import stand_in

from treadle_rl import Payload, PayloadError, digest, payload

STEPS = [
    {"prompt": [1, 15, 7], "output": [9, 2], "logprobs": [-0.11, -0.52], "version": 3},
    {"prompt": [1, 15, 7, 9, 2, 30], "output": [4], "logprobs": [-1.5], "version": 4},
    {"prompt": [8], "output": [5], "logprobs": [-2.0], "version": 3},
]


def batch() -> tuple[bytes, str]:
    sequences = stand_in.assemble(STEPS)
    said = stand_in.digest(sequences)
    member = {"sequences": sequences, "sample": said, "reward": 0.5}
    empty: dict[str, Any] = {"sequences": [], "sample": None, "reward": None}
    groups = {"g": {"members": {"p": member, "q": empty}}}
    return stand_in.safetensors("j", 1, groups), said


@pytest.mark.parametrize("with_numpy", [True, False])
def test_sequences_have_their_mask_and_versions(
    with_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_numpy:
        monkeypatch.setattr(payload, "_numpy", None)
    raw, said = batch()
    read = Payload(raw)
    first, second = read
    assert list(first.ids) == [1, 15, 7, 9, 2, 30, 4]
    assert [int(m) for m in first.mask] == [0, 0, 0, 1, 1, 0, 1]
    assert [round(float(x), 2) for x in first.logprobs] == [0, 0, 0, -0.11, -0.52, 0, -1.5]
    assert [int(v) for v in first.versions] == [-1, -1, -1, 3, 3, -1, 4]
    assert (first.reward, first.group, first.member, second.number) == (0.5, "g", "p", 1)
    assert math.isnan(float(read.rewards[1]))
    assert digest([first, second]) == said
    assert digest([first]) != said
    assert read.check() == []
    assert Payload(raw.replace(b"sha256:", b"sha256;")).check() == ["p"]


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:4], lambda raw: raw[:-9], lambda raw: b"\0" * 99]
)
def test_damaged_files_are_refused(damage: Any) -> None:
    with pytest.raises(PayloadError):
        Payload(damage(batch()[0]))
