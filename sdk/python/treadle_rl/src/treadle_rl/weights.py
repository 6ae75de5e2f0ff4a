"""Versions of a job's weights: publishing them, and what engines hold (`docs/weights.md`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ._checkpoint import Checkpoint, CheckpointError
from ._http import Call, Link, NotReady, Steps, TreadleError, to_json

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .job import Client

CALL_S = 600.0
"""Seconds that an engine may take for one call."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version. `name` is its name in the engines' answers."""

    version: int
    lineage: int
    name: str
    folder: str


@dataclass(frozen=True, slots=True)
class Behind:
    """An engine that an update left behind, and why."""

    worker: int
    cause: str


@dataclass(frozen=True, slots=True)
class Update:
    """An update under way. `stage` is `driven` if a trainer drives it; `workers` take part."""

    weights: Version
    stage: str
    rolling: bool
    workers: int
    behind: tuple[Behind, ...]


@dataclass(frozen=True, slots=True)
class EndedUpdate:
    """An update that ended. `held` engines served it then; no step began for `exposed_s` seconds."""

    weights: Version
    held: int
    took_s: float
    exposed_s: float
    behind: tuple[Behind, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """What an engine holds. `held` is the version that it proved last, `None` what it came with.

    A `fenced` engine gets no steps, for the reason `cause`; `call` is under way there.
    """

    worker: int
    state: str
    held: Version | None
    fenced: bool
    cause: str | None
    call: str | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The weights of a job's engines; `raw` has everything."""

    job: str
    serving: Version | None
    update: Update | None
    last: EndedUpdate | None
    workers: tuple[Holding, ...]
    raw: dict[str, Any] = field(repr=False)

    @property
    def fenced(self) -> tuple[Holding, ...]:
        """Engines that get no steps because of their weights."""
        return tuple(holding for holding in self.workers if holding.fenced)


@dataclass(frozen=True, slots=True)
class Store:
    """Where a job's versions are: in the `store`, and in a `folder` of each host.

    Versions of `lineage` from `checkpoint` on are needed, and those in `needed`, by lineage and
    number.
    """

    lineage: int
    store: Path
    folder: Path
    checkpoint: int
    needed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version in the store. `base` is what it is a delta to; `problem` is why it can't be read.

    `tensors` counts all, or those that changed; `published_s` is in seconds since 1970.
    """

    version: int
    base: int | None
    tensors: int
    bytes: int
    published_s: int
    problem: str | None


class NotServing(TreadleError):
    """A version is not in service, and no update is under way. `fleet` has each engine's reason."""

    def __init__(self, version: int, fleet: Fleet) -> None:
        serving = "no version" if fleet.serving is None else f"version {fleet.serving.version}"
        reasons = {h.worker: h.cause for h in fleet.fenced if h.cause}
        if fleet.last is not None and fleet.last.weights.version == version:
            reasons |= {behind.worker: behind.cause for behind in fleet.last.behind}
        why = "; ".join(f"worker {worker}: {cause}" for worker, cause in sorted(reasons.items()))
        message = f"version {version} is not in service, but {serving}: {why or 'no reason given'}"
        super().__init__(200, "not_serving", message)
        self.fleet = fleet


def _version_of(answer: Any) -> Version | None:
    if answer is None:
        return None
    return Version(answer["version"], answer["lineage"], answer["name"], answer["folder"])


def _behind_of(answer: Any) -> tuple[Behind, ...]:
    return tuple(Behind(item["worker"], item["cause"]) for item in answer["behind"])


def _update_of(answer: Any) -> Update | None:
    weights = _version_of(answer and answer["weights"])
    if weights is None:
        return None
    fields = (answer["stage"], answer["rolling"], answer["workers"])
    return Update(weights, *fields, _behind_of(answer))


def _ended_of(answer: Any) -> EndedUpdate | None:
    weights = _version_of(answer and answer["weights"])
    if weights is None:
        return None
    fields = (answer["held"], answer["took_s"], answer["exposed_s"])
    return EndedUpdate(weights, *fields, _behind_of(answer))


def _holding_of(answer: Any) -> Holding:
    held = _version_of(answer["held"])
    return Holding(
        answer["worker"],
        answer["state"],
        held,
        answer["fenced"],
        answer.get("cause"),
        answer.get("call"),
    )


def fleet_of(answer: dict[str, Any]) -> Fleet:
    """A job's engines from the daemon's answer."""
    return Fleet(
        job=answer["job"],
        serving=_version_of(answer.get("serving")),
        update=_update_of(answer.get("update")),
        last=_ended_of(answer.get("last")),
        workers=tuple(_holding_of(worker) for worker in answer["workers"]),
        raw=answer,
    )


def history_of(store: Store, lineage: int | None) -> list[StoredVersion]:
    """The versions of a lineage in the store, which has to be on this machine."""
    if not store.store.parent.is_dir():
        raise FileNotFoundError(f"the store {store.store.parent} is not on this machine")
    folder = store.store / str(store.lineage if lineage is None else lineage)
    found = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        if name := re.fullmatch(r"weight_v([0-9]{6,})", entry.name):
            found[int(name[1])] = entry
    bases: dict[int, int | None] = {}
    return [_stored(version, found[version], bases) for version in sorted(found)]


def _stored(version: int, folder: Path, bases: dict[int, int | None]) -> StoredVersion:
    """A version; `bases` has the older ones that can be read."""
    size, published = 0, 0
    try:
        stats = [path.lstat() for path in folder.iterdir()]
        size, published = (
            sum(s.st_size for s in stats),
            max((int(s.st_mtime) for s in stats), default=0),
        )
        found = Checkpoint.open(folder)
        if found.base is not None and found.base not in bases:
            raise CheckpointError(f"version {found.base}, which it builds on, can't be read")
    except (CheckpointError, OSError) as error:
        return StoredVersion(version, None, 0, size, published, str(error))
    bases[version] = found.base
    return StoredVersion(version, found.base, len(found.tensors), size, published, None)


class WeightsCalls:
    """Requests about the weights of one job."""

    def __init__(self, link: Link, job: str) -> None:
        self.link, self.job = link, job
        self.path = f"/api/v1/jobs/{quote(job, safe='')}"

    def publish(self, version: int, folder: Path | str | None, fields: Any) -> Steps[Fleet]:
        body = {name: value for name, value in fields.items() if value is not None}
        if folder is not None:
            if not Path(folder).is_absolute():
                raise ValueError(f"{folder} is not absolute: engines open it by the same path")
            body["folder"] = str(folder)
        data = to_json({"version": version, **body})
        reply = yield from self.link.send(Call("POST", f"{self.path}/weights", body=data))
        return fleet_of(reply.json())

    def fleet(self) -> Steps[Fleet]:
        return fleet_of((yield from self.link.send(Call("GET", f"{self.path}/weights"))).json())

    def wait(self, version: int | None, wait_s: float | None) -> Steps[Fleet]:
        last: list[Fleet] = []

        def ask(wait: int) -> Call:
            return Call("GET", f"{self.path}/weights", query={"wait_s": wait}, wait_s=wait)

        def is_ready(reply: Any) -> bool:
            last[:] = [fleet_of(reply.json())]
            return last[0].update is None

        what = f"an update of job `{self.job}`"
        try:
            yield from self.link.poll(what, ask, wait_s, is_ready)
        except NotReady:
            if not last or last[0].update is None:
                raise
            under_way = last[0].update
            waits = [f"version {under_way.weights.version} is {under_way.stage}"]
            raise NotReady(what, waits) from None
        fleet = last[0]
        if version is not None and (fleet.serving is None or fleet.serving.version != version):
            raise NotServing(version, fleet)
        return fleet

    def release(self) -> Steps[None]:
        yield from self.link.send(Call("DELETE", f"{self.path}/weights"))

    def store(self) -> Steps[Store]:
        answer = (yield from self.link.send(Call("GET", f"{self.path}/weights/store"))).json()
        return Store(
            lineage=answer["lineage"],
            store=Path(answer["store"]),
            folder=Path(answer["folder"]),
            checkpoint=answer["checkpoint"],
            needed=tuple((item["lineage"], item["version"]) for item in answer["needed"]),
        )

    def call(self, path: str, body: Any, worker: int | None, method: str, s: float) -> Steps[Any]:
        engine = "engine" if worker is None else f"workers/{worker}/engine"
        data = None if body is None else to_json(body)
        # What an engine does with weights is done once; also 503 may be the engine's own answer.
        call = Call(method, f"{self.path}/{engine}{path}", body=data, wait_s=s, once=True)
        reply = yield from self.link.send(call)
        try:
            return reply.json()
        except ValueError:
            return reply.body.decode(errors="replace")


def plan_of(
    lineage: int | None,
    name: str | None,
    workers: Sequence[int],
    quorum: int,
    ready_s: int | None,
    rolling: bool,
) -> dict[str, Any]:
    """What a publication says beside its version; absent fields have the daemon's defaults."""
    plan = {"workers": list(workers), "quorum": quorum, "rolling": rolling}
    return {**plan, "lineage": lineage, "name": name, "ready_s": ready_s}


class Weights:
    """The weights of a job's engines: `Job.weights`. Calls take an operator's token."""

    def __init__(self, client: Client, job: str) -> None:
        self.client, self.job = client, job
        self._calls = WeightsCalls(client._link, job)
        self._run = client._run

    def publish(
        self,
        version: int,
        folder: Path | str | None = None,
        *,
        lineage: int | None = None,
        name: str | None = None,
        workers: Sequence[int] = (),
        quorum: int = 0,
        ready_s: int | None = None,
        rolling: bool = False,
    ) -> Fleet:
        """Has engines load a version; `wait` for it to serve. The same call again changes nothing.

        `folder` has whole weights, by an absolute path that each engine can read; without it, the
        version is in the store (`treadle weights publish DIR --store` puts it there).
        """
        plan = plan_of(lineage, name, workers, quorum, ready_s, rolling)
        return self._run(self._calls.publish(version, folder, plan))

    def fleet(self) -> Fleet:
        """The version in service, the update that is under way, and what each engine holds."""
        return self._run(self._calls.fleet())

    def wait(self, version: int | None = None, wait_s: float | None = None) -> Fleet:
        """Waits until no update is under way; `NotReady` after `wait_s` seconds, if it is given.

        `NotServing` if `version` is given and is not the one in service then.
        """
        return self._run(self._calls.wait(version, wait_s))

    def release(self) -> None:
        """Ends that treadle loads the job's weights: its engines serve what they have."""
        self._run(self._calls.release())

    def store(self) -> Store:
        """Where versions are stored, and which are needed."""
        return self._run(self._calls.store())

    def history(self, lineage: int | None = None) -> list[StoredVersion]:
        """The versions in the store, which has to be on this machine; by default of the lineage
        that the job is in."""
        return history_of(self.store(), lineage)

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        worker: int | None = None,
        method: str = "POST",
        wait_s: float = CALL_S,
    ) -> Any:
        """A call to one engine in its own protocol, or to all, for a trainer that updates engines
        by itself. It is made once; `wait_s` is the time for its answer."""
        return self._run(self._calls.call(path, body, worker, method, wait_s))


class AsyncWeights:
    """The weights of a job's engines: `AsyncJob.weights`. Calls take an operator's token."""

    def __init__(self, client: AsyncClient, job: str) -> None:
        self.client, self.job = client, job
        self._calls = WeightsCalls(client._link, job)
        self._run = client._run

    async def publish(
        self,
        version: int,
        folder: Path | str | None = None,
        *,
        lineage: int | None = None,
        name: str | None = None,
        workers: Sequence[int] = (),
        quorum: int = 0,
        ready_s: int | None = None,
        rolling: bool = False,
    ) -> Fleet:
        """Has engines load a version; `wait` for it to serve. The same call again changes nothing.

        `folder` has whole weights, by an absolute path that each engine can read; without it, the
        version is in the store (`treadle weights publish DIR --store` puts it there).
        """
        plan = plan_of(lineage, name, workers, quorum, ready_s, rolling)
        return await self._run(self._calls.publish(version, folder, plan))

    async def fleet(self) -> Fleet:
        """The version in service, the update that is under way, and what each engine holds."""
        return await self._run(self._calls.fleet())

    async def wait(self, version: int | None = None, wait_s: float | None = None) -> Fleet:
        """Waits until no update is under way; `NotReady` after `wait_s` seconds, if it is given.

        `NotServing` if `version` is given and is not the one in service then.
        """
        return await self._run(self._calls.wait(version, wait_s))

    async def release(self) -> None:
        """Ends that treadle loads the job's weights: its engines serve what they have."""
        await self._run(self._calls.release())

    async def store(self) -> Store:
        """Where versions are stored, and which are needed."""
        return await self._run(self._calls.store())

    async def history(self, lineage: int | None = None) -> list[StoredVersion]:
        """The versions in the store, which has to be on this machine; by default of the lineage
        that the job is in."""
        return await asyncio.to_thread(history_of, await self.store(), lineage)

    async def call(
        self,
        path: str,
        body: Any = None,
        *,
        worker: int | None = None,
        method: str = "POST",
        wait_s: float = CALL_S,
    ) -> Any:
        """A call to one engine in its own protocol, or to all, for a trainer that updates engines
        by itself. It is made once; `wait_s` is the time for its answer."""
        return await self._run(self._calls.call(path, body, worker, method, wait_s))
