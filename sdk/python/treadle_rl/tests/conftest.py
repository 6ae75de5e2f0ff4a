"""Fixtures that tests share."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from stand_in import StandIn

from treadle_rl import Client


@pytest.fixture
def daemon() -> StandIn:
    return StandIn()


@pytest.fixture
def client(daemon: StandIn) -> Iterator[Client]:
    with Client("http://daemon", "tr_test", retry_s=1, transport=daemon.transport()) as client:
        yield client


@pytest.fixture
def everywhere(daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Clients that adapters make reach the stand-in."""
    monkeypatch.setenv("TREADLE_TOKEN", "tr_test")
    for name in ("Client", "AsyncClient"):
        kind = getattr(httpx, name)

        def made(*, transport: Any = None, kind: Any = kind, **rest: Any) -> Any:
            return kind(transport=transport or daemon.transport(), **rest)

        monkeypatch.setattr(httpx, name, made)
    return daemon


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts modules of a framework into place: `modules("a.b", name=value)`."""

    def put(name: str, **values: Any) -> types.ModuleType:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            parent = ".".join(parts[:depth])
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        module = types.ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
        if len(parts) > 1:
            monkeypatch.setattr(sys.modules[".".join(parts[:-1])], parts[-1], module, raising=False)
        return module

    return put
