"""The asynchronous client: `treadle_rl.job` with `await`. Its objects belong to one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeVar

import httpx

from ._calls import DaemonCalls, JobCalls, in_sandbox, part_of
from ._http import (
    DROPPED,
    RETRY_S,
    Call,
    Link,
    NotReady,
    Pause,
    Reply,
    Steps,
    TreadleError,
    reply_of,
    request_of,
)
from ._names import Names
from ._stream import Follow, StreamEvent, ended_of
from .payload import Payload
from .policies import Binding, Policy, PolicyCalls, Role, World
from .records import Batch, End, Group, JobView, Member, Report, Settings, fields_of
from .weights import AsyncWeights

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")
BEGIN_S = 5.0
"""Seconds after which `members` looks whether it is to stop."""


class AsyncClient:
    """A daemon. `url` defaults to `TREADLE_URL`, else `http://127.0.0.1:8300`.

    `token` defaults to `TREADLE_TOKEN`, else the file `.treadle/admin-token` of this folder or a
    parent, which goes only to the daemon that wrote it. Requests are repeated for `retry_s` seconds
    while the daemon is down or busy.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        retry_s: float = RETRY_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._link = Link(url, token, retry_s)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(transport=transport, limits=limits)
        self._calls = DaemonCalls(self._link)
        self._policies = PolicyCalls(self._link)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(await self._answer(wanted))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _answer(self, wanted: Call | Pause) -> Reply:
        if isinstance(wanted, Pause):
            await asyncio.sleep(wanted.seconds)
            return Reply()
        try:
            return reply_of(await self._http.request(**request_of(self._link, wanted)))
        except httpx.TransportError as failure:
            return Reply(failure=failure)

    def job(self, name: str) -> AsyncJob:
        """A training job; nothing is sent."""
        return AsyncJob(self, name)

    async def release(self, program: str, reward: SupportsFloat | None = None) -> bool:
        """Ends a program. Returns whether it was live."""
        return await self._run(self._calls.release(program, reward))

    async def reward(self, program: str, reward: SupportsFloat) -> None:
        """Reports the reward of a program that is no member of a training job."""
        await self._run(self._calls.reward(program, reward))

    async def start_action(self, kind: str, run: Mapping[str, Any], **fields: Any) -> int:
        """Submits an action (`docs/actions.md`), and returns its number."""
        return await self._run(self._calls.start_action(kind, run, fields))

    async def wait_action(self, action: int, wait_s: float | None = None) -> dict[str, Any]:
        """Waits for an action's end; `NotReady` after `wait_s` seconds."""
        return await self._run(self._calls.wait_action(action, wait_s))

    async def run_action(self, kind: str, run: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        """Runs an action to its end. Only the outcome `exited` is a result."""
        return await self.wait_action(await self.start_action(kind, run, **fields))

    async def cancel_action(self, action: int) -> None:
        await self._run(self._calls.cancel_action(action))

    async def create_sandbox(self, **fields: Any) -> dict[str, Any]:
        """Creates a sandbox (`docs/sandboxes.md`); its name is `["id"]`."""
        return await self._run(self._calls.create_sandbox(fields))

    async def sandbox(self, sandbox: str) -> dict[str, Any]:
        return await self._run(self._calls.sandbox(sandbox))

    async def run_in_sandbox(
        self, sandbox: str, command: list[str], *, kind: str = "command", **fields: Any
    ) -> dict[str, Any]:
        """Runs a command in a sandbox to its end, with the fields of an action."""
        return await self.run_action(kind, in_sandbox(sandbox, command, {}), **fields)

    async def remove_sandbox(self, sandbox: str) -> None:
        await self._run(self._calls.remove_sandbox(sandbox))

    async def push_policy(self, component: bytes | Path) -> Policy:
        """Uploads a policy, a WebAssembly component or the path of one."""
        return await self._run(self._policies.push(component))

    async def bind(
        self,
        policy: str,
        *,
        world: World | None = None,
        job: str | None = None,
        config: Mapping[str, Any] | None = None,
        role: Role | None = None,
        share: float | None = None,
    ) -> Binding:
        """Has a policy decide from the next question on; takes an operator's token.

        `policy` is a name, `name@version` or a digest, of an uploaded policy or of one that comes
        with treadle. Without `job` it decides for all jobs that have no binding of their own.
        `share` is that of the programs that a canary decides for.
        """
        fields = {"policy": policy, "world": world, "job": job, "config": config}
        return await self._run(self._policies.bind({**fields, "role": role, "share": share}))

    async def unbind(
        self, world: World, *, job: str | None = None, role: Role | None = None
    ) -> Binding:
        """Takes a policy out of its role."""
        return await self._run(self._policies.unbind({"world": world, "job": job, "role": role}))


class AsyncJob:
    """A training job of a daemon (`docs/training.md`). Every method may be repeated."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client, self.name = client, name
        self._calls = JobCalls(client._link, name)
        self._run = client._run
        self._stopped = asyncio.Event()
        self.weights = AsyncWeights(client, name)

    async def declare(self, settings: Settings) -> JobView:
        """Declares the job, or gives it new settings."""
        return await self._run(self._calls.declare(settings))

    async def view(self) -> JobView:
        return await self._run(self._calls.view())

    async def submit(self, groups: Iterable[Group]) -> None:
        """Submits any number of groups. Keys that the job knows change nothing."""
        await self._run(self._calls.submit(groups))

    async def begin(
        self, program: str, group: str | None = None, wait_s: float | None = 30
    ) -> AsyncMember:
        """Begins a member of a group, or of the next one that needs it.

        `NotReady` after `wait_s` seconds; `None` waits without end.
        """
        member = await self._run(self._calls.begin(program, group, wait_s))
        return AsyncMember(job=self, **fields_of(member))

    async def members(
        self,
        worker: str | None = None,
        *,
        until: Callable[[], bool] = lambda: False,
        state: Path | None = None,
    ) -> AsyncIterator[AsyncMember]:
        """Begins members one after the other, until `stop()` or `until()`.

        Programs are called `WORKER-0`, `WORKER-1` and so on; two workers never share a prefix. With
        a `state` file, a restarted worker gets the member again that it was at.
        """
        names = Names(worker, state)
        while not (self._stopped.is_set() or until()):
            try:
                yield await self.begin(names.current, wait_s=BEGIN_S)
            except NotReady:
                continue
            except TreadleError as error:
                if error.code != "member_dropped":
                    raise
            names.advance()

    def stop(self) -> None:
        """Ends all iterations over `members` of this object, each before its next member."""
        self._stopped.set()

    async def end(self, program: str, end: End = "completed", **report: Unpack[Report]) -> None:
        """Reports how a member ended; everything is on record when this returns."""
        await self._run(self._calls.end(program, end, report))

    async def reward(
        self, program: str, reward: SupportsFloat | None = None, *, failed: str | None = None
    ) -> None:
        """Gives a member its reward later, or says why none could be computed."""
        await self._run(self._calls.reward(program, reward, failed))

    async def delete(self, program: str) -> list[int]:
        """Deletes what is stored of a member. Returns the batches that had its sample."""
        return await self._run(self._calls.delete(program))

    async def batch(
        self,
        k: int,
        wait_s: float | None = None,
        *,
        rank: int | None = None,
        of: int | None = None,
    ) -> AsyncBatch:
        """Batch `k`, or one slice of it. `NotReady` after `wait_s` seconds, if it is given."""
        batch = await self._run(self._calls.batch(k, wait_s, part_of(rank, of)))
        return AsyncBatch(source=self, **fields_of(batch))

    async def payload(self, k: int, *, rank: int | None = None, of: int | None = None) -> Payload:
        """The tokens of batch `k`, or of one slice of it."""
        return await self._run(self._calls.payload(k, part_of(rank, of)))

    async def batches(
        self, start: int = 1, *, rank: int | None = None, of: int | None = None
    ) -> AsyncIterator[AsyncBatch]:
        """Batches from number `start` on, without end. Call `batch.trained()` after training."""
        while True:
            yield await self.batch(start, rank=rank, of=of)
            start += 1

    async def stream(self, after: str | None = None) -> AsyncIterator[StreamEvent]:
        """Captured tokens of members while they run, and what becomes of them; without end.

        It begins after the message with the id `after`, or with the members whose tokens are
        stored. It connects again by itself: each message comes once, in order. What can't go on,
        because the job was forgotten or the journal lost what was not read, raises `stream_gone`.
        """
        follow = Follow(self._calls.link, self._calls.path, after)
        while True:
            await self._run(follow.connect())
            try:
                async with self.client._http.stream(**follow.request()) as response:
                    if response.status_code == 200:
                        async for data in response.aiter_bytes():
                            for event in follow.feed(data):
                                yield event
                    else:
                        await response.aread()
                    follow.ended(ended_of(response))
            except httpx.TransportError as failure:
                follow.ended(Reply(failure=failure))

    async def trained(self, k: int) -> None:
        """The trainer has trained on batch `k`."""
        await self._run(self._calls.trained(k))

    async def version(
        self, n: int, digest: str | None = None, *, lineage: int | None = None
    ) -> None:
        """Engines have the weights that training on batch `n` made, from now on.

        With `lineage`, as `resume` returned it, a trainer that another one replaced is refused.
        """
        await self._run(self._calls.version(n, digest, lineage))

    async def checkpoint(self, k: int) -> None:
        """The trainer saved its state after batch `k`: batches up to it are released."""
        await self._run(self._calls.checkpoint(k))

    async def resume(self, k: int) -> int:
        """The trainer went back to its checkpoint after batch `k`. Then report version `k`.

        Returns the new lineage.
        """
        return await self._run(self._calls.resume(k))

    async def forget(self) -> None:
        """Removes the job with everything that it stored."""
        await self._run(self._calls.forget())


@dataclass(frozen=True, slots=True)
class AsyncMember(Member):
    """A member that has begun: sample it, then call `end`."""

    job: AsyncJob = field(repr=False, compare=False)

    async def end(self, end: End = "completed", **report: Unpack[Report]) -> bool:
        """Reports how it ended. `False` if it was cut or replaced before: begin another one."""
        try:
            await self.job.end(self.program, end, **report)
        except TreadleError as error:
            if error.code not in DROPPED:
                raise
            return False
        return True


@dataclass(frozen=True, slots=True)
class AsyncBatch(Batch):
    """A batch that a trainer got."""

    source: AsyncJob = field(repr=False, compare=False)

    async def payload(self, *, rank: int | None = None, of: int | None = None) -> Payload:
        """Its tokens, or those of one slice."""
        return await self.source.payload(self.batch, rank=rank, of=of)

    async def trained(self) -> None:
        """The trainer has trained on it."""
        await self.source.trained(self.batch)
