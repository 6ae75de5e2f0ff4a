"""Policies that are uploaded and bound, against answers that a daemon gave."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from treadle_rl import AsyncClient, Binding, Client, Policy, TreadleError

BOUND = {"world": "shaping", "job": "math", "role": "active"}
CHANGE = {"policy": "darts-shaping@0.1.0", "active": "darts-shaping@0.1.0", "before": "native"}
HEAD = {"name": "own-shaping", "version": "1.2.0", "world": "shaping", "digest": "ab12"}


class Daemon:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        body: Any = request.content
        kind = request.headers["content-type"]
        if body and kind == "application/json":
            body = json.loads(body)
        self.asked.append((request.method, request.url.raw_path.decode(), kind, body))
        if request.url.path == "/api/v1/plugins":
            return httpx.Response(201, json={**HEAD, "summary": "x", "size_bytes": 3, "new": True})
        if isinstance(body, dict) and body["policy"] == "unknown":
            error = {"code": "plugin_unknown", "message": "no policy is called `unknown`"}
            return httpx.Response(404, json={"error": error})
        return httpx.Response(200, json={**BOUND, **CHANGE, "held_up_us": 7})


def test_a_policy_is_uploaded_and_bound(tmp_path: Path) -> None:
    daemon, file = Daemon(), tmp_path / "own.wasm"
    file.write_bytes(b"\0asm")
    with Client("http://daemon", "tr_test", transport=daemon.transport()) as client:
        assert client.push_policy(file) == client.push_policy(b"\0asm") == Policy(**HEAD, new=True)
        config = {"early_stop": "first"}
        bound = client.bind("darts-shaping", world="shaping", job="math", config=config)
        client.unbind("shaping", job="math")
        with pytest.raises(TreadleError, match="plugin_unknown"):
            client.bind("unknown")
    assert bound == Binding(**BOUND, **CHANGE)
    upload = ("POST", "/api/v1/plugins", "application/wasm", b"\0asm")
    path, plain = "/api/v1/bindings", "application/json"
    wanted = {"policy": "darts-shaping", "world": "shaping", "job": "math", "config": config}
    assert daemon.asked == [
        upload,
        upload,
        ("PUT", path, plain, wanted),
        ("DELETE", f"{path}?world=shaping&job=math", plain, b""),
        ("PUT", path, plain, {"policy": "unknown"}),
    ]


def test_the_same_with_await() -> None:
    async def run(daemon: Daemon) -> None:
        client = AsyncClient("http://daemon", "tr_test", transport=daemon.transport())
        async with client:
            assert (await client.push_policy(b"\0asm")).new
            assert (await client.bind("darts-shaping")).policy == CHANGE["policy"]
            assert (await client.unbind("shaping")).job == "math"

    daemon = Daemon()
    asyncio.run(run(daemon))
    assert [asked[0] for asked in daemon.asked] == ["POST", "PUT", "DELETE"]
