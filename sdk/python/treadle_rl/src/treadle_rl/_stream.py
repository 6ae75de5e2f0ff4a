"""Following a stream: what was seen of it, and when its client connects again."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from ._http import (
    FULL,
    PAUSE_S_MAX,
    RETRIED,
    Call,
    Link,
    Pause,
    Reply,
    Steps,
    TreadleError,
    error_of,
    reply_of,
    request_of,
    seconds_of,
)

PAUSE_S = 0.1
"""Pause before the second connection; later ones are longer until a message comes."""
SILENCE_S = 60.0
"""A stream without a byte for this long is broken: the daemon sends a comment every 15 s."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """A message of a job's stream. `id` is the offset to go on from once it is done with.

    `docs/training.md` lists the kinds, and what `data` has.
    """

    id: str
    kind: str
    data: dict[str, Any]


def ended_of(response: httpx.Response) -> Reply:
    """How a connection ended. The body of a refusal was read."""
    if response.status_code == 200:
        return Reply(status=200)
    return reply_of(response)


class Follow:
    """Reads a stream over any number of connections; each message comes once."""

    def __init__(self, link: Link, path: str, after: str | None) -> None:
        self.link, self.path, self.after = link, path, after
        self._failure: Reply | None = None
        self._deadline: float | None = None
        self._pause = PAUSE_S
        self._rest = b""
        self._id = after
        self._kind, self._data = "", ""

    def connect(self) -> Steps[None]:
        """What comes before each connection: a pause if one failed, and the proof of a token."""
        if self._failure is not None:
            now = time.monotonic()
            if self._deadline is None:
                self._deadline = now + self.link.retry_s
            pause = self._pause * random.uniform(0.5, 1.0)
            seconds = max(pause, seconds_of(self._failure.retry_after))
            if now + seconds > self._deadline:
                raise error_of(self._failure)
            yield Pause(seconds)
            self._pause = min(2 * self._pause, PAUSE_S_MAX)
        yield from self.link.prove()

    def request(self) -> dict[str, Any]:
        """Arguments of httpx's `stream`."""
        seen = {} if self.after is None else {"last-event-id": self.after}
        call = Call("GET", f"{self.path}/stream", headers={"accept": "text/event-stream", **seen})
        timeout = httpx.Timeout(SILENCE_S, connect=10.0)
        return {**request_of(self.link, call), "timeout": timeout}

    def ended(self, reply: Reply) -> None:
        """A connection ended, or did not come about; raises what another one does not change."""
        self._rest, self._id, self._kind, self._data = b"", self.after, "", ""
        self._failure = reply
        if reply.failure is not None:
            self.link.disconnected()
        elif reply.status == 200:
            self._failure = Reply(failure=httpx.ReadError("the stream ended"))
        else:
            error = error_of(reply)
            if reply.status not in RETRIED or error.code in FULL:
                raise error

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """The messages that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").decode().partition(":")
            value = value.removeprefix(" ")
            if field == "id":
                self._id = value
            elif field == "event":
                self._kind = value
            elif field == "data":
                self._data += value
            elif not line.strip() and (event := self._complete()) is not None:
                yield event

    def _complete(self) -> StreamEvent | None:
        """A message ended. One without data says how far the stream has come."""
        kind, data, self._kind, self._data = self._kind, self._data, "", ""
        if self._id is None:
            return None
        self._deadline, self._pause = None, PAUSE_S
        read: dict[str, Any] = json.loads(data) if data else {}
        if kind == "gone" and read.get("what") in ("journal", "job"):
            raise TreadleError(410, "stream_gone", str(read.get("message")))
        self.after = self._id
        return StreamEvent(self._id, kind, read) if data else None
