"""The sender against the receiver of the real package checkpoint-engine, in processes of their own.

The receiver is `checkpoint_engine.worker.update_weights_from_ipc` as it is. Only its device manager,
which refuses machines without a GPU, is replaced by one that does nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from checkpoints import random_tensors, write, write_delta

WHY = "pip install torch pyzmq checkpoint-engine"
torch = pytest.importorskip("torch", reason=f"torch is missing; {WHY}")
zmq = pytest.importorskip("zmq", reason=f"zmq is missing; {WHY}")
pytest.importorskip("checkpoint_engine", reason=f"checkpoint-engine is missing; {WHY}")

from treadle_rl import Client, TreadleError
from treadle_rl import checkpoint_engine as sending
from treadle_rl._checkpoint import CheckpointError
from treadle_rl.checkpoint_engine import Sender, SendError, update

TENSORS = random_tensors(7)
LARGEST = max(len(data) for _, _, data in TENSORS.values())
NAME = "memfd:treadle-weights"

Run = Callable[[list[tuple[str, Any]]], None]


def digest(tensors: dict[str, tuple[str, list[int], bytes]]) -> dict[str, Any]:
    return {
        name: (shape, hashlib.sha256(data).hexdigest())
        for name, (_, shape, data) in tensors.items()
    }


class Model:
    """Loads weights as a model does, which may also change what it is given."""

    def __init__(self, fault: str) -> None:
        self.fault, self.loads = fault, 0
        self.got: dict[str, Any] = {}

    def load(self, weights: list[tuple[str, Any]]) -> None:
        self.loads += 1
        if self.loads == 3:
            if self.fault == "raise":
                raise ValueError("no such parameter")
            if self.fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "hang":
                time.sleep(3_600)
        for name, tensor in weights:
            data = tensor.clone().reshape(-1).view(torch.uint8).numpy().tobytes()
            self.got[name] = (list(tensor.shape), hashlib.sha256(data).hexdigest())
            tensor.zero_()

    def finish(self) -> None:
        if self.fault == "finish":
            raise RuntimeError("out of memory")


def receive(pipe: Connection, device: int | None, fault: str) -> None:
    """A worker: `pipe` gives the address, and takes what came of it."""
    from checkpoint_engine import worker

    nothing = dict.fromkeys(("synchronize", "ipc_collect", "empty_cache"), lambda: None)
    worker.DeviceManager = lambda: SimpleNamespace(device_module=SimpleNamespace(**nothing))
    model = Model(fault)
    address = pipe.recv()
    try:
        worker.update_weights_from_ipc(
            zmq.Context(), address, device, run=model.load, post_hook=model.finish
        )
        pipe.send(model.got)
    except Exception as error:  # noqa: BLE001
        pipe.send(f"{type(error).__name__}: {error}")


class Worker:
    def __init__(self, device: int | None = 3, fault: str = "") -> None:
        fork = multiprocessing.get_context("fork")
        self.pipe, other = fork.Pipe()
        self.process = fork.Process(target=receive, args=(other, device, fault), daemon=True)
        self.process.start()
        other.close()

    def outcome(self) -> Any:
        """All tensors, or its error."""
        assert self.pipe.poll(20), "the worker hangs"
        return self.pipe.recv()


@pytest.fixture
def workers() -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(*args: Any) -> Worker:
        made.append(Worker(*args))
        return made[-1]

    yield make
    for worker in made:
        worker.process.kill()
        worker.process.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "0" / "weight_v000001", TENSORS)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers that have not come when a send ends do not come later."""
    monkeypatch.setattr(sending, "GRACE_MS", 100)


def shared(*processes: int | None) -> list[str]:
    """Memory of senders that processes have mapped or opened."""
    found = []
    for process in processes:
        maps = Path(f"/proc/{process}/maps").read_text()
        found += [line for line in maps.splitlines() if NAME in line]
        for entry in Path(f"/proc/{process}/fd").iterdir():
            try:
                found += [target for target in [os.readlink(entry)] if NAME in target]
            except OSError:
                continue
    return found


def test_all_tensors_arrive_bit_for_bit(folder: Path, workers: Any) -> None:
    # One has the number of a GPU put into its arguments, the other does not.
    receivers = {"GPU-a": workers(3), "GPU-b": workers(None)}
    with Sender(folder, receivers, bucket_bytes=LARGEST, timeout_s=20) as sender:
        assert len(sender._buckets) > 5
        for name, worker in receivers.items():
            worker.pipe.send(sender.handles[name])
        sender.wait()
        sender.wait()
    for worker in receivers.values():
        assert worker.outcome() == digest(TENSORS)
    assert shared(os.getpid()) == []


def test_a_bucket_holds_the_largest_tensor(
    folder: Path, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match="set `bucket_bytes` to"):
        Sender(folder, ["GPU-a"], bucket_bytes=LARGEST // 4)
    monkeypatch.setattr(sending, "BUCKET_BYTES", 1)
    worker = workers()
    with Sender(folder, ["GPU-a"], timeout_s=20) as sender:
        assert LARGEST <= sender.bucket_bytes < LARGEST + 4096
        worker.pipe.send(sender.handles["GPU-a"])
        sender.wait()
    assert worker.outcome() == digest(TENSORS)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("raise", "answered with an error at bucket 3 of .*: ValueError: no such parameter"),
        ("die", "closed the connection at bucket 3 of"),
        ("finish", "closed the connection at its work after loading"),
    ],
)
def test_a_receiver_that_fails_is_named(folder: Path, workers: Any, fault: str, why: str) -> None:
    good, bad = workers(), workers(0, fault)
    began = time.monotonic()
    with (
        pytest.raises(SendError, match=f"^GPU-bad {why}") as failed,
        Sender(folder, ["GPU-bad", "GPU-good"], bucket_bytes=LARGEST) as sender,
    ):
        bad.pipe.send(sender.handles["GPU-bad"])
        sender._receivers[0].join()
        good.pipe.send(sender.handles["GPU-good"])
        sender.wait()
    assert time.monotonic() - began < 20
    assert list(failed.value.failures) == ["GPU-bad"]
    assert isinstance(good.outcome(), str), "it came too late"
    if fault == "raise":
        assert "Traceback" in failed.value.failures["GPU-bad"]
        assert "treadle sends no more weights: answered with an error" in bad.outcome()
    good.process.join()
    assert shared(os.getpid()) == []


@pytest.mark.usefixtures("hasty")
def test_what_is_silent_is_not_waited_for_without_end(folder: Path, workers: Any) -> None:
    silent = workers(0, "hang")
    with (
        pytest.raises(SendError) as failed,
        Sender(folder, ["GPU-a", "GPU-b"], bucket_bytes=LARGEST, timeout_s=0.5) as sender,
    ):
        silent.pipe.send(sender.handles["GPU-a"])
        for receiver in sender._receivers:
            receiver.join()
        sender.wait()
    reasons = str(failed.value)
    assert "GPU-b did not connect within 0.5 s" in reasons or "GPU-a did not answer" in reasons
    with (
        pytest.raises(SendError, match="GPU-c did not answer at bucket 3 of .* within 1 s"),
        Sender(folder, ["GPU-c"], bucket_bytes=LARGEST, timeout_s=1) as sender,
    ):
        workers(0, "hang").pipe.send(sender.handles["GPU-c"])
        sender.wait()
    assert shared(os.getpid()) == []


@pytest.mark.usefixtures("hasty")
def test_a_send_that_is_given_up_leaves_no_memory(folder: Path, workers: Any) -> None:
    before, worker = set(os.listdir("/dev/shm")), workers()
    with (
        pytest.raises(KeyboardInterrupt),
        Sender(folder, ["GPU-a", "GPU-b"], bucket_bytes=LARGEST) as sender,
    ):
        worker.pipe.send(sender.handles["GPU-a"])
        deadline = time.monotonic() + 20
        while not shared(worker.process.pid):
            assert time.monotonic() < deadline
        # GPU-b never comes.
        raise KeyboardInterrupt
    outcome = worker.outcome()
    assert outcome == digest(TENSORS) or "the sender was closed" in outcome
    worker.process.join()
    assert shared(os.getpid()) == [] and set(os.listdir("/dev/shm")) == before


def send_and_stay(folder: Path, pipe: Connection) -> None:
    with Sender(folder, ["GPU-a"], bucket_bytes=LARGEST) as sender:
        pipe.send(sender.handles["GPU-a"])
        sender.wait()


def test_a_sender_that_is_killed_leaves_no_memory(folder: Path, workers: Any) -> None:
    before, worker = set(os.listdir("/dev/shm")), workers(0, "hang")
    fork = multiprocessing.get_context("fork")
    pipe, other = fork.Pipe()
    sender = fork.Process(target=send_and_stay, args=(folder, other), daemon=True)
    sender.start()
    worker.pipe.send(pipe.recv())
    deadline = time.monotonic() + 20
    while not shared(worker.process.pid):
        assert time.monotonic() < deadline
    sender.kill()
    sender.join()
    # Only the worker has it, and no name leads to it.
    assert all("deleted" in line for line in shared(worker.process.pid))
    assert set(os.listdir("/dev/shm")) == before


def test_what_is_not_whole_is_refused(folder: Path, tmp_path: Path, workers: Any) -> None:
    delta = write_delta(tmp_path / "weight_v000002", 2, 1)
    with pytest.raises(CheckpointError, match="since version 1; .*treadle weights pull"):
        Sender(delta, ["GPU-a"])
    with pytest.raises(CheckpointError, match="no folder on this machine"):
        Sender(tmp_path / "nothing", ["GPU-a"])
    odd = write(tmp_path / "odd", {"a": ("F4", [4], b"ab")}, files=1)
    with pytest.raises(CheckpointError, match="`a` has the type F4"):
        Sender(odd, ["GPU-a"])
    with pytest.raises(ValueError, match="each worker of the engine once"):
        Sender(folder, ["GPU-a", "GPU-a"])
    worker = workers()
    with (
        pytest.raises(SendError, match="GPU-a .*ended within tensor"),
        Sender(folder, ["GPU-a"], bucket_bytes=LARGEST) as sender,
    ):
        for file in sender._files:
            os.truncate(file, 10_000)
        worker.pipe.send(sender.handles["GPU-a"])
        sender.wait()
    assert "ended within tensor" in worker.outcome()


@pytest.mark.usefixtures("hasty")
def test_a_version_is_not_replaced_while_it_is_sent(folder: Path) -> None:
    place = folder.parent / ".lock"
    with open(place, "w") as lock:
        with Sender(folder, ["GPU-a"], timeout_s=20), pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(CheckpointError, match="locked for 0.3 s"):
            Sender(folder, ["GPU-a"], timeout_s=0.3)


class Relay:
    """treadle's relay of one engine, whose workers are processes."""

    def __init__(self, workers: dict[str, Worker]) -> None:
        self.workers, self.paths = workers, list[str]()
        self.refuses = ""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("/workers/4/engine")[2]
        self.paths.append(path)
        if path == self.refuses:
            return httpx.Response(400, json={"success": False})
        body = json.loads(request.content) if request.content else {}
        handles = body.get("zmq_handles") or (body.get("args") or [{}])[0]
        for name, handle in handles.items():
            self.workers[name].pipe.send(handle)
        outcomes = [self.workers[name].outcome() for name in handles]
        failed = any(isinstance(outcome, str) for outcome in outcomes)
        return httpx.Response(400 if failed else 200, json={"success": not failed})


SGLANG = ["/pause_generation", "/update_weights_from_ipc", "/continue_generation"]
VLLM = ["/pause?mode=keep", "/collective_rpc", "/update_weight_version", "/resume"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("engine", "paths"), [("sglang", SGLANG), ("vllm", VLLM)])
def test_an_engine_is_updated_through_treadle(
    folder: Path, workers: Any, engine: Any, paths: list[str]
) -> None:
    relay = Relay({"GPU-a": workers(), "GPU-b": workers()})
    with Client("http://d", "t", transport=httpx.MockTransport(relay)) as client:
        weights = client.job("math").weights
        sender = Sender(folder, relay.workers, bucket_bytes=LARGEST, timeout_s=20)
        update(weights, 4, engine, sender, "0.1")
        assert relay.paths == paths
        relay = Relay({"GPU-a": workers(), "GPU-b": workers(0, "raise")})
        client._http._transport = httpx.MockTransport(relay)
        sender = Sender(folder, relay.workers, bucket_bytes=LARGEST, timeout_s=20)
        with pytest.raises(SendError, match="GPU-b .*no such parameter"):
            update(weights, 4, engine, sender, "0.2")
        assert relay.paths == paths[:2]
        relay.refuses = paths[1]
        sender = Sender(folder, relay.workers, bucket_bytes=LARGEST, timeout_s=20)
        with pytest.raises(TreadleError, match="status 400"):
            update(weights, 4, engine, sender, "0.3")
