"""The bandit learns, and goes on after it was killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from stand_in import StandIn

pytest.importorskip("numpy")


def run(monkeypatch: pytest.MonkeyPatch, out: Path, steps: int) -> None:
    from treadle_rl.examples import bandit

    arguments = ["bandit", "--steps", str(steps), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    bandit.main()


def test_it_learns_and_resumes(
    everywhere: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    run(monkeypatch, tmp_path, 6)
    run(monkeypatch, tmp_path, 12)
    assert "resumed after batch 6" in capsys.readouterr().out
    groups = []
    for number in range(1, 13):
        stored = json.loads((tmp_path / f"batch-{number}.json").read_bytes())
        groups += [group["group"] for group in stored["groups"]]
        assert all(group["lag"] <= 1 for group in stored["groups"])
        assert (tmp_path / f"batch-{number}.safetensors").exists()
    assert len(set(groups)) == 12 * 8
    from treadle_rl.examples._loop import mean_reward

    assert mean_reward(tmp_path, 12) > mean_reward(tmp_path, 1) + 0.1


def test_a_batch_that_changed_stops_it(
    everywhere: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "batch-1.safetensors").write_bytes(b"another")
    with pytest.raises(SystemExit, match="came again and differs"):
        run(monkeypatch, tmp_path, 1)
