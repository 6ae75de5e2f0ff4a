"""The settings of a job are those that the daemon documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from treadle_rl import Settings
from treadle_rl.records import fields_of

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "openapi.json"


def documented() -> dict[str, dict[str, Any]]:
    """Settings of a job by name, each with its schema."""
    schemas = json.loads(REFERENCE.read_bytes())["components"]["schemas"]
    properties: dict[str, dict[str, Any]] = schemas["TrainingSettings"]["properties"]
    return properties


def test_settings_have_the_names_and_defaults_of_the_daemon() -> None:
    schema, own = documented(), fields_of(Settings())
    assert own.keys() == schema.keys()
    defaults = {name: of["default"] for name, of in schema.items() if "default" in of}
    assert defaults.pop("model") is None, "it is sent only if it is set"
    assert Settings().body() == defaults


def test_a_reward_is_sent_as_it_is() -> None:
    action = {"kind": "judge", "run": {"http": {"url": "http://judge:9000/score"}}}
    assert Settings(reward=action).body()["reward"] == action
