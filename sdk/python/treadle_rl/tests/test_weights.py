"""Weights of a job, against answers that a daemon gave, and folders of a store."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from checkpoints import random_tensors, write, write_delta, write_file

from treadle_rl import AsyncClient, Client, NotReady, NotServing, TreadleError, Version
from treadle_rl._checkpoint import INDEX, Checkpoint, CheckpointError, buckets_of


def version(number: int) -> dict[str, Any]:
    return {"version": number, "lineage": 0, "name": f"0.{number}", "folder": f"/w/{number}"}


def holding(worker: int, number: int, **more: Any) -> dict[str, Any]:
    plain = {"worker": worker, "state": "held", "held": version(number), "fenced": False}
    return {**plain, "cause": None, "call": None, **more}


class Daemon:
    """Two engines; the second can't load. An update is over once it was asked about `looks` times."""

    def __init__(self, store: Path, looks: int = 2) -> None:
        self.store, self.looks = store, looks
        self.requests: list[tuple[str, str, Any]] = []
        self.published: int | None = None
        self.status = 200

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().removeprefix("/api/v1/jobs/math")
        body: Any = json.loads(request.content) if request.content else None
        self.requests.append((request.method, path.split("?wait_s")[0], body))
        if "/engine/" in path:
            return httpx.Response(self.status, json={"path": path})
        match request.method, path.split("?")[0]:
            case "GET", "/weights/store":
                return httpx.Response(200, json=self._stored())
            case "POST", "/weights":
                self.published = body["version"]
            case "GET", "/weights":
                self.looks -= 1
            case _:
                return httpx.Response(200, json={"released": True})
        return httpx.Response(200, json=self._view())

    def _stored(self) -> dict[str, Any]:
        needed = [{"lineage": 0, "version": 2}]
        places = {"store": str(self.store / "math"), "folder": "/local/math"}
        return {"job": "math", "lineage": 1, **places, "checkpoint": 2, "needed": needed}

    def _view(self) -> dict[str, Any]:
        number = self.published or 0
        behind = [{"worker": 1, "cause": "its disk is full"}]
        view: dict[str, Any] = {"job": "math", "serving": None, "update": None, "last": None}
        workers = [holding(0, number), holding(1, 0, fenced=True, cause="its disk is full")]
        if self.published is None:
            return {**view, "workers": []}
        if self.looks > 0:
            workers = [holding(0, 0, call="apply"), holding(1, 0, state="torn")]
            plan = {"stage": "loading", "rolling": False, "workers": 2, "behind": behind}
            return {**view, "workers": workers, "update": {"weights": version(number), **plan}}
        ended = {"weights": version(number), "held": 1, "took_s": 2.5, "exposed_s": 1.5}
        view |= {"serving": version(number), "last": {**ended, "behind": behind}}
        return {**view, "workers": workers}


def client_of(daemon: Daemon) -> Client:
    return Client("http://daemon", "tr_test", retry_s=1, transport=daemon.transport())


def test_a_version_is_published_and_waited_for(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    with client_of(daemon) as client:
        weights = client.job("math").weights
        with pytest.raises(ValueError, match="not absolute"):
            weights.publish(1, "w/1")
        assert daemon.requests == []
        begun = weights.publish(1, Path("/w/1"), workers=[0, 1], ready_s=9, rolling=True)
        plan = {"workers": [0, 1], "quorum": 0, "rolling": True, "ready_s": 9}
        assert daemon.requests == [("POST", "/weights", {"version": 1, **plan, "folder": "/w/1"})]
        assert begun.update is not None
        assert (begun.update.stage, begun.workers[0].call) == ("loading", "apply")
        fleet = weights.wait(1)
        assert fleet.serving == Version(1, 0, "0.1", "/w/1") and fleet.update is None
        assert [(h.worker, h.cause) for h in fleet.fenced] == [(1, "its disk is full")]
        assert fleet.last is not None
        assert (fleet.last.held, fleet.last.exposed_s, fleet.last.behind[0].worker) == (1, 1.5, 1)
        weights.release()
        assert daemon.requests[-1][:2] == ("DELETE", "/weights")


def test_a_wait_says_what_it_waited_for(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, looks=1_000)
    with client_of(daemon) as client:
        weights = client.job("math").weights
        weights.publish(3)
        with pytest.raises(NotReady, match="version 3 is loading"):
            weights.wait(3, wait_s=0.2)
        daemon.looks = 0
        with pytest.raises(NotServing, match="version 2 .* but version 3: worker 1: its disk is"):
            weights.wait(2)
        daemon.published = None
        with pytest.raises(NotServing, match="but no version: no reason given"):
            weights.wait(2)


def test_calls_to_engines_are_made_once(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    with client_of(daemon) as client:
        weights = client.job("math").weights
        answer = weights.call("/pause?mode=keep", worker=1)
        assert answer == {"path": "/workers/1/engine/pause?mode=keep"}
        daemon.status = 503
        with pytest.raises(TreadleError):
            weights.call("/update_weights", {"names": []})
        assert [path for _, path, _ in daemon.requests] == [
            "/workers/1/engine/pause?mode=keep",
            "/engine/update_weights",
        ]


def test_history_reads_the_store(tmp_path: Path) -> None:
    with client_of(Daemon(tmp_path / "store")) as client:
        weights = client.job("math").weights
        assert weights.store().needed == ((0, 2),)
        with pytest.raises(FileNotFoundError, match="not on this machine"):
            weights.history()
        lineage = tmp_path / "store/math/1"
        write(lineage / "weight_v000001", random_tensors(1))
        write_delta(lineage / "weight_v000002", 2, 1)
        write_delta(lineage / "weight_v000004", 4, 3)
        write_delta(lineage / "weight_v000005", 5, 4)
        (lineage / ".locks").mkdir()
        found = weights.history()
        assert [(v.version, v.base, v.tensors) for v in found[:2]] == [(1, None, 102), (2, 1, 1)]
        assert "version 3, which it builds on" in str(found[2].problem)
        assert "version 4, which it builds on" in str(found[3].problem)
        assert all(v.bytes > 0 and v.published_s > 0 for v in found)
        assert weights.history(lineage=0) == []
        # What others left in the store does not hide the other versions.
        (lineage / "weight_v000006").write_text("no folder")
        (lineage / "weight_v000007").mkdir()
        index = {"metadata": {"delta_encoding": "xor", "base_version": "two"}, "weight_map": {}}
        (lineage / "weight_v000007" / INDEX).write_text(json.dumps(index))
        (lineage / "weight_v000008").mkdir()
        os.mkfifo(lineage / "weight_v000008" / INDEX)
        problems = [str(v.problem) for v in weights.history()[4:]]
        assert "Not a directory" in problems[0]
        assert "no number as `base_version`" in problems[1]
        assert "not a regular file" in problems[2]


def test_the_asynchronous_client_does_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        daemon = Daemon(tmp_path)
        async with AsyncClient("http://d", "t", transport=daemon.transport()) as client:
            weights = client.job("math").weights
            await weights.publish(1)
            assert (await weights.wait(1)).serving == Version(1, 0, "0.1", "/w/1")
            assert await weights.history() == []
            assert await weights.call("/resume") == {"path": "/engine/resume"}

    asyncio.run(run())


def test_checkpoints_are_read_by_their_headers(tmp_path: Path) -> None:
    tensors = random_tensors(2)
    found = Checkpoint.open(write(tmp_path / "a", tensors))
    assert found.base is None and {t.name for t in found.tensors} == set(tensors)
    for tensor in found.tensors:
        dtype, shape, data = tensors[tensor.name]
        assert (tensor.dtype, list(tensor.shape)) == (dtype, shape)
        assert tensor.file.read_bytes()[tensor.start :][: tensor.bytes] == data


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    good = {"a": ("F32", [2], b"12345678")}
    for number, (content, why) in enumerate(
        [
            (b"\xff" * 8, "header is too long"),
            (b"\x02" + b"\0" * 7 + b"[]", "can't be read"),
            (b"\x02" + b"\0" * 7 + b"{}x", "its header says"),
            (None, "not its shape's"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(CheckpointError, match="no .safetensors file"):
            Checkpoint.open(folder)
        if content is None:
            write_file(folder / "m.safetensors", {"a": ("F32", [3], b"12345678")})
        else:
            (folder / "m.safetensors").write_bytes(content)
        with pytest.raises(CheckpointError, match=why):
            Checkpoint.open(folder)
        write_file(folder / "m.safetensors", good)
        write_file(folder / "n.safetensors", good)
        with pytest.raises(CheckpointError, match="in two files"):
            Checkpoint.open(folder)
    for name in ("../m.safetensors", "gone.safetensors"):
        (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(CheckpointError, match="no file there|can't be read"):
            Checkpoint.open(folder)
    wrongs: tuple[object, ...] = ([], {"weight_map": []}, {"metadata": 1}, {"weight_map": {"a": ["m"]}})
    for wrong in wrongs:
        (folder / INDEX).write_text(json.dumps(wrong))
        with pytest.raises(CheckpointError, match="no index|no text"):
            Checkpoint.open(folder)


def test_tensors_are_packed_in_order(tmp_path: Path) -> None:
    tensors = Checkpoint.open(write(tmp_path / "a", random_tensors(3))).tensors
    size = max(tensor.bytes for tensor in tensors)
    buckets = buckets_of(tensors, size)
    assert [tensor for bucket in buckets for tensor, _ in bucket] == list(tensors)
    assert len(buckets) > 3
    for bucket in buckets:
        end = 0
        for tensor, start in bucket:
            assert start >= end and start % 256 == 0
            end = start + tensor.bytes
        assert end <= size
    with pytest.raises(CheckpointError, match=f"bucket {size - 1}; .*set `bucket_bytes` to {size}"):
        buckets_of(tensors, size - 1)
