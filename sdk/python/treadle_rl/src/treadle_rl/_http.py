"""Requests to a daemon: what is sent, when it is sent again, and how refusals read.

What a client does is written once, as a generator that yields requests and pauses. The synchronous
and the asynchronous client only drive it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import math
import os
import random
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

URL_DEFAULT = "http://127.0.0.1:8300"
RETRY_S = 300.0
"""Seconds for which a request is repeated after its first failure."""
RETRIED = frozenset({429, 502, 503})
"""Statuses after which a request is sent again."""
FULL = frozenset({"tenant_busy", "training_full"})
"""Codes of limits that only a batch taken or a checkpoint raises: they are told at once."""
DROPPED = frozenset({"member_dropped", "member_unknown"})
"""Codes for members that were cut or replaced: another one has to begin."""
PAUSE_S_MAX = 5.0
POLL_S = 30
"""Seconds that one request waits at the daemon."""
TOKEN_FILE = Path(".treadle") / "admin-token"

T = TypeVar("T")


class TreadleError(Exception):
    """A refusal of the daemon, or no answer from it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.status = status
        """HTTP status; 0 if the daemon did not answer."""
        self.code = code
        """What `docs/errors.md` lists; `unreachable` if the daemon did not answer."""
        self.message = message


class NotReady(TreadleError):
    """The time to wait is over. `waits` says who waits for whom."""

    def __init__(self, what: str, waits: Any) -> None:
        reasons = waits if isinstance(waits, list) else [waits]
        texts = [str(r.get("message", r)) if isinstance(r, dict) else str(r) for r in reasons if r]
        message = f"{what} is not ready: {'; '.join(texts) or 'no reason was given'}"
        super().__init__(202, "not_ready", message)
        self.waits = waits


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `wait_s` is the time that the daemon may take on purpose, in seconds.

    One that is not `repeatable` is sent again only if it can't have arrived, and whatever answers
    one that is sent `once` is its answer.
    """

    method: str
    path: str
    query: Mapping[str, str | int | float] = field(default_factory=dict)
    body: bytes | None = None
    wait_s: float = 0.0
    repeatable: bool = True
    once: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait before the next request."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; or a `failure` instead. `peer` is the address of the daemon."""

    status: int = 0
    body: bytes = b""
    retry_after: str = ""
    peer: tuple[str, int] | None = None
    failure: httpx.TransportError | None = None

    def json(self) -> Any:
        return json.loads(self.body)


Steps = Generator[Call | Pause, Reply, T]


def to_json(value: Any) -> bytes:
    """JSON of plain values and numpy's. NaN and infinity are refused."""

    def plain(item: Any) -> Any:
        if hasattr(item, "tolist"):
            return item.tolist()
        raise TypeError(f"{type(item).__name__} can't be written as JSON")

    return json.dumps(value, allow_nan=False, default=plain, separators=(",", ":")).encode()


def error_of(reply: Reply) -> TreadleError:
    """The refusal that an answer carries."""
    if reply.failure is not None:
        cause = str(reply.failure) or type(reply.failure).__name__
        return TreadleError(0, "unreachable", f"treadle did not answer: {cause}")
    try:
        error = json.loads(reply.body)["error"]
        return TreadleError(reply.status, str(error["code"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        text = reply.body[:200].decode(errors="replace")
        return TreadleError(reply.status, "unknown", f"status {reply.status}: {text}")


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_from_file(folder: Path | None = None) -> str | None:
    """The token that a daemon wrote in this folder or in a parent; the nearest."""
    here = (folder or Path.cwd()).resolve()
    for place in (here, *here.parents):
        try:
            if token := (place / TOKEN_FILE).read_text().strip():
                return token
        except (OSError, UnicodeDecodeError):
            continue
    return None


class Link:
    """Address and token of a daemon. A token from a file goes only to the daemon that wrote it."""

    def __init__(self, url: str | None, token: str | None, retry_s: float) -> None:
        self.url = (url or os.environ.get("TREADLE_URL") or URL_DEFAULT).rstrip("/")
        self.token = token or os.environ.get("TREADLE_TOKEN")
        self.retry_s = retry_s
        self.file_token = None
        if self.token is None and is_loopback(self.url):
            self.file_token = token_from_file()
        self._proved: bool | None = None

    def headers(self, call: Call) -> dict[str, str]:
        token = self.token or (self.file_token if self._proved else None)
        headers = {"accept": "*/*", "content-type": "application/json", **call.headers}
        return headers | ({"authorization": f"Bearer {token}"} if token else {})

    def send(self, call: Call) -> Steps[Reply]:
        """Sends a request until it is answered, for at most `retry_s` after its first failure."""
        deadline, pause = None, 0.1
        while True:
            yield from self.prove()
            reply = yield call
            if reply.failure is None:
                if reply.status < 400:
                    return reply
                error = error_of(reply)
                if call.once or reply.status not in RETRIED or error.code in FULL:
                    raise error
            if reply.failure is not None:
                self.disconnected()
                unsent = isinstance(reply.failure, (httpx.ConnectError, httpx.ConnectTimeout))
                if not unsent and (call.once or not call.repeatable):
                    raise error_of(reply)
            now = time.monotonic()
            deadline = now + self.retry_s if deadline is None else deadline
            seconds = max(pause * random.uniform(0.5, 1.0), seconds_of(reply.retry_after))
            if now + seconds > deadline:
                raise error_of(reply)
            yield Pause(seconds)
            pause = min(2 * pause, PAUSE_S_MAX)

    def poll(
        self,
        what: str,
        ask: Callable[[int], Call],
        wait_s: float | None,
        is_ready: Callable[[Reply], bool] = lambda reply: reply.status != 202,
    ) -> Steps[Reply]:
        """Asks until `is_ready`, for `wait_s` seconds at most, or without end if it is `None`.

        `ask` makes the request from the seconds that the daemon may wait.
        """
        start = time.monotonic()
        while True:
            began = time.monotonic()
            left = POLL_S if wait_s is None else min(POLL_S, max(0.0, start + wait_s - began))
            reply = yield from self.send(ask(math.ceil(left)))
            if is_ready(reply):
                return reply
            now = time.monotonic()
            if wait_s is not None and now >= start + wait_s:
                raise NotReady(what, reply.json().get("waits"))
            if now - began < min(left, 1.0):  # It did not wait: don't ask in a tight loop.
                yield Pause(0.1)

    def prove(self) -> Steps[None]:
        """Has the daemon prove that it wrote the token from a file, before that is sent."""
        if self.file_token and self._proved is None:
            self._proved = yield from self._prove(self.file_token)

    def disconnected(self) -> None:
        """A connection broke: at the next one another process may listen."""
        self._proved = None

    def _prove(self, token: str) -> Steps[bool | None]:
        """Whether the daemon proves that it knows a token (`docs/security.md`), if it answers."""
        key, challenge = hashlib.sha256(token.encode()).digest(), secrets.token_hex(16)
        name = hmac.digest(key, b"treadle token name", "sha256")[:8].hex()
        query = {"token": name, "challenge": challenge}
        reply = yield Call("GET", "/api/v1/identity", query=query)
        if reply.failure is not None or reply.status in RETRIED:
            return None
        if reply.status != 200 or reply.peer is None:
            return False
        proof = reply.json().get("proof")
        if proof is None:
            return False
        text = f"treadle identity\n{reply.peer[0]}\n{reply.peer[1]}\n{challenge}"
        if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), str(proof)):
            message = f"{self.url} claims a token that it does not know; give the right `token`"
            raise TreadleError(401, "token_invalid", message)
        return True


def seconds_of(retry_after: str) -> float:
    """Seconds that a `Retry-After` names; 0 without one."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return 0.0


def request_of(link: Link, call: Call) -> dict[str, Any]:
    """Arguments of httpx's `request`."""
    return {
        "method": call.method,
        "url": link.url + call.path,
        "params": dict(call.query) or None,
        "content": call.body,
        "headers": link.headers(call),
        "timeout": httpx.Timeout(60.0, connect=10.0, read=60.0 + call.wait_s),
    }


def reply_of(response: httpx.Response) -> Reply:
    """What is used of an answer."""
    stream = response.extensions.get("network_stream")
    try:
        peer = stream.get_extra_info("server_addr") if stream is not None else None
    except OSError:  # The connection is closed already.
        peer = None
    return Reply(
        status=response.status_code,
        body=response.content,
        retry_after=response.headers.get("retry-after", ""),
        peer=(str(peer[0]), int(peer[1])) if peer else None,
    )
