"""What the clients do, as steps that they drive: requests, and how answers read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ._http import Call, Link, Steps, TreadleError, to_json
from .payload import Payload
from .records import (
    Batch,
    Group,
    JobView,
    Member,
    Report,
    Settings,
    batch_of,
    ending,
    finite,
    member_of,
    view_of,
)

GROUPS_MAX = 1_000
"""Groups in one request."""
GROUP_BYTES_MAX = 7 << 20
"""Bytes of groups in one request, as JSON; a single larger group is sent by itself."""


class JobCalls:
    """Requests about one training job."""

    def __init__(self, link: Link, job: str) -> None:
        self.link, self.job = link, job
        self.lineage: int | None = None
        self.path = f"/api/v1/jobs/{quote(job, safe='')}"

    def _do(self, method: str, path: str, body: Any = None) -> Steps[Any]:
        data = None if body is None else to_json(body)
        reply = yield from self.link.send(Call(method, self.path + path, body=data))
        return reply.json() if reply.body else None

    def declare(self, settings: Settings) -> Steps[JobView]:
        return view_of((yield from self._do("PUT", "", settings.body())) or {})

    def view(self) -> Steps[JobView]:
        return view_of((yield from self._do("GET", "")))

    def submit(self, groups: Iterable[Group]) -> Steps[None]:
        chunk: list[bytes] = []
        size = 0
        for group in itertools.chain(groups, [None]):
            body = b"" if group is None else to_json(group.body())
            full = len(chunk) == GROUPS_MAX or size + len(body) > GROUP_BYTES_MAX
            if chunk and (group is None or full):
                data = b'{"groups":[' + b",".join(chunk) + b"]}"
                yield from self.link.send(Call("POST", f"{self.path}/groups", body=data))
                chunk, size = [], 0
            if group is not None:
                chunk.append(body)
                size += len(body)

    def begin(self, program: str, group: str | None, wait_s: float | None) -> Steps[Member]:
        named = {"program": program} | ({} if group is None else {"group": group})

        def ask(wait: int) -> Call:
            body = to_json({**named, "wait_s": wait})
            return Call("POST", f"{self.path}/members", body=body, wait_s=wait)

        reply = yield from self.link.poll(f"a member of job `{self.job}`", ask, wait_s)
        return member_of(reply.json())

    def end(self, program: str, end: str, report: Report) -> Steps[None]:
        body = ending(end, report)
        yield from self._do("PUT", f"/members/{quote(program, safe='')}", body)

    def reward(self, program: str, reward: Any, failed: str | None) -> Steps[None]:
        if (reward is None) == (failed is None):
            raise ValueError("give either a reward or, with `failed`, why it could not be computed")
        body = {"reward": finite(reward)} if failed is None else {"failed": failed}
        yield from self._do("PUT", f"/members/{quote(program, safe='')}/reward", body)

    def delete(self, program: str) -> Steps[list[int]]:
        deleted = yield from self._do("DELETE", f"/members/{quote(program, safe='')}")
        return list(deleted["batches"])

    def batch(self, k: int, wait_s: float | None, part: Mapping[str, int]) -> Steps[Batch]:
        def ask(wait: int) -> Call:
            query = {"wait_s": wait, **part}
            return Call("GET", f"{self.path}/batches/{k}", query=query, wait_s=wait)

        reply = yield from self.link.poll(f"batch {k} of job `{self.job}`", ask, wait_s)
        batch = batch_of(reply.body)
        if self.lineage is None:
            self.lineage = batch.lineage
        return batch

    def payload(self, k: int, part: Mapping[str, int]) -> Steps[Payload]:
        call = Call("GET", f"{self.path}/batches/{k}/payload", query=part)
        return Payload((yield from self.link.send(call)).body)

    def trained(self, k: int) -> Steps[None]:
        yield from self._do("POST", f"/batches/{k}/trained", self._fenced({}))

    def version(self, n: int, digest: str | None, lineage: int | None) -> Steps[None]:
        body: dict[str, Any] = {"version": n, "digest": digest, "lineage": lineage}
        body = {name: value for name, value in body.items() if value is not None}
        yield from self._do("POST", "/versions", self._fenced(body))

    def checkpoint(self, k: int) -> Steps[None]:
        yield from self._do("POST", "/checkpoints", self._fenced({"batch": k}))

    def resume(self, k: int) -> Steps[int]:
        # With the lineage that ends, a request that arrives twice changes nothing.
        lineage = (yield from self.view()).lineage
        answer = yield from self._do("POST", "/resume", {"batch": k, "lineage": lineage})
        self.lineage = int(answer["lineage"])
        return self.lineage

    def _fenced(self, body: dict[str, Any]) -> dict[str, Any]:
        """A report that is refused once another trainer resumed."""
        return body if self.lineage is None else {"lineage": self.lineage, **body}

    def forget(self) -> Steps[None]:
        call = Call("DELETE", self.path, query={"forget": "true"})
        yield from _gone(self.link.send(call))


def part_of(rank: int | None, of: int | None) -> dict[str, int]:
    """The query for one slice of a batch."""
    if rank is None or of is None:
        if rank is not of:
            raise ValueError("`rank` and `of` are given together")
        return {}
    return {"rank": rank, "of": of}


class DaemonCalls:
    """Requests about programs, actions and sandboxes."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def release(self, program: str, reward: Any) -> Steps[bool]:
        query = {} if reward is None else {"reward": finite(reward)}
        call = Call("DELETE", f"/api/v1/programs/{quote(program, safe='')}", query=query)
        return bool((yield from self.link.send(call)).json()["released"])

    def reward(self, program: str, reward: Any) -> Steps[None]:
        body = to_json({"reward": finite(reward)})
        path = f"/api/v1/programs/{quote(program, safe='')}/reward"
        yield from self.link.send(Call("PUT", path, body=body))

    def start_action(self, kind: str, run: Mapping[str, Any], fields: Any) -> Steps[int]:
        key = {"idempotency_key": f"treadle-rl-{uuid.uuid4().hex}"}
        body = to_json({**key, "kind": kind, "run": run, **fields})
        reply = yield from self.link.send(Call("POST", "/api/v1/actions", body=body))
        return int(reply.json()["action"])

    def wait_action(self, action: int, wait_s: float | None) -> Steps[dict[str, Any]]:
        def ask(wait: int) -> Call:
            query = {"wait_s": wait}
            return Call("GET", f"/api/v1/actions/{action}", query=query, wait_s=wait)

        reply = yield from self.link.poll(f"action {action}", ask, wait_s, _has_ended)
        return dict(reply.json())

    def cancel_action(self, action: int) -> Steps[None]:
        yield from _gone(self.link.send(Call("DELETE", f"/api/v1/actions/{action}")))

    def create_sandbox(self, fields: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        # Two requests would make two sandboxes: only one that surely did not arrive is repeated.
        call = Call("POST", "/api/v1/sandboxes", body=to_json(fields), repeatable=False)
        return dict((yield from self.link.send(call)).json())

    def sandbox(self, sandbox: str) -> Steps[dict[str, Any]]:
        call = Call("GET", f"/api/v1/sandboxes/{quote(sandbox, safe='')}")
        return dict((yield from self.link.send(call)).json())

    def remove_sandbox(self, sandbox: str) -> Steps[None]:
        call = Call("DELETE", f"/api/v1/sandboxes/{quote(sandbox, safe='')}")
        yield from _gone(self.link.send(call))


def _has_ended(reply: Any) -> bool:
    return bool(reply.json()["status"] == "ended")


def in_sandbox(sandbox: str, command: list[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """What an action runs if it is a command in a sandbox."""
    return {"sandbox": {"id": sandbox, "command": command, **fields}}


def _gone(steps: Steps[Any]) -> Steps[None]:
    """What was removed already is removed."""
    try:
        yield from steps
    except TreadleError as error:
        if error.status != 404:
            raise
