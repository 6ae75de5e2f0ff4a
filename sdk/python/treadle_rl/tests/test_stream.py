"""Streams against scripted connections: each message comes once, whatever breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from treadle_rl import AsyncClient, Client, StreamEvent, TreadleError, _stream

Streamed = list[bytes | Exception]


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Bytes as they come over a connection, which may break."""

    def __init__(self, parts: Streamed) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


class Daemon:
    """Answers each connection with what comes next, and records the offsets it was asked for."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.offsets: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/jobs/j/stream"
        self.offsets.append(request.headers.get("last-event-id"))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            return httpx.Response(answer[0], json={"error": answer[1]})
        return httpx.Response(200, stream=Body(answer))


def message(at: str, kind: str = "chunk", **data: Any) -> bytes:
    text = json.dumps({"at": at, **data}, ensure_ascii=False)
    return f"id: {at}\nevent: {kind}\ndata: {text}\n\n".encode()


def read(daemon: Daemon, count: int, after: str | None = None) -> list[StreamEvent]:
    with Client("http://d", "t", retry_s=5, transport=httpx.MockTransport(daemon)) as client:
        stream = client.job("j").stream(after)
        return [next(stream) for _ in range(count)]


def read_async(daemon: Daemon, count: int, after: str | None = None) -> list[StreamEvent]:
    async def run() -> list[StreamEvent]:
        transport = httpx.MockTransport(daemon)
        async with AsyncClient("http://d", "t", retry_s=5, transport=transport) as client:
            stream = client.job("j").stream(after)
            return [await anext(stream) for _ in range(count)]

    return asyncio.run(run())


WAYS = pytest.mark.parametrize("reading", [read, read_async])


@WAYS
def test_a_message_that_breaks_off_comes_again_and_none_comes_twice(
    reading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stream, "PAUSE_S", 0.001)
    whole = message("7", text="a\u2028b") + message("9.0")
    lost = httpx.ReadError("closed")
    for cut in range(len(whole) + 1):
        rest = whole if cut < len(message("7", text="a\u2028b")) else message("9.0")
        if cut == len(whole):
            rest = b""
        daemon = Daemon([whole[:cut], lost], [rest + message("9")])
        events = reading(daemon, 3)
        assert [event.id for event in events] == ["7", "9.0", "9"], cut
        assert events[0] == StreamEvent("7", "chunk", {"at": "7", "text": "a\u2028b"})
        expected = [None, "7"] if len(rest) == len(message("9.0")) else [None, None]
        assert daemon.offsets == ([None, "9.0"] if cut == len(whole) else expected), cut


@WAYS
def test_a_comment_moves_the_offset_only_once_it_is_whole(reading: Any) -> None:
    silence = b": keep-alive\nid: 12\n\n"
    daemon = Daemon([message("7"), silence], [b"id: 13\n: keep"], [b":\n\n", message("14")])
    assert [event.id for event in reading(daemon, 2)] == ["7", "14"]
    assert daemon.offsets == [None, "12", "12"]


@WAYS
def test_what_another_connection_changes_is_tried_again(reading: Any) -> None:
    full = {"code": "streams_full", "message": "full"}
    refused = httpx.ConnectError("refused")
    daemon = Daemon(refused, (429, full), (503, full), [message("7")])
    assert [event.id for event in reading(daemon, 1, "3.1")] == ["7"]
    assert daemon.offsets == ["3.1"] * 4


@WAYS
def test_what_is_gone_is_told(reading: Any) -> None:
    gone = {"code": "stream_gone", "message": "connect without an offset"}
    with pytest.raises(TreadleError, match="without an offset") as refused:
        reading(Daemon((410, gone)), 1, "3")
    assert (refused.value.status, refused.value.code) == (410, "stream_gone")
    step = message("7", "gone", what="step", program="p")
    job = message("8", "gone", what="job", message="the job was forgotten")
    daemon = Daemon([step, job])
    with pytest.raises(TreadleError, match="forgotten"):
        reading(daemon, 2)


def test_an_end_without_a_message_is_no_progress() -> None:
    daemon = Daemon(*[[] for _ in range(1_000)])
    with (
        Client("http://d", "t", retry_s=0.3, transport=httpx.MockTransport(daemon)) as client,
        pytest.raises(TreadleError, match="the stream ended"),
    ):
        next(client.job("j").stream())
    assert 2 < len(daemon.offsets) < 10
