"""Sends weights to engines by the protocol of checkpoint-engine, through host memory.

Needs torch and pyzmq (`pip install "treadle-rl[checkpoint-engine]"`), on the engines' machine.
`docs/weights.md` says how engines are started for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import mmap
import os
import pickle
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import torch
import zmq
from zmq.utils.monitor import recv_monitor_message

from ._checkpoint import Checkpoint, CheckpointError, buckets_of, read_into
from ._http import TreadleError

if TYPE_CHECKING:
    from typing_extensions import Self

    from .weights import Weights

BUCKET_BYTES = 256 << 20
"""Bytes of a bucket, unless a tensor is larger."""
TIMEOUT_S = 300.0
"""Seconds for one answer of a receiver."""
LOOK_MS = 100
"""How often a receiver that is waited for is looked at, in milliseconds."""
LINGER_MS = 1_000
"""How long a closed socket goes on sending, in milliseconds."""
GRACE_MS = 5_000
"""How long a receiver may still connect to be told that nothing is sent, and then hang up, in
milliseconds. One that is told nothing waits for ever."""
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
"""Names of torch for those of safetensors."""


class SendError(Exception):
    """Receivers that did not load all weights. `failures` has the reason of each by its name, and
    after its first line the receiver's own words."""

    def __init__(self, failures: dict[str, str]) -> None:
        reasons = [f"{name} {why.splitlines()[0]}" for name, why in failures.items()]
        super().__init__("; ".join(reasons) or "the sender was stopped")
        self.failures = failures


class _Failed(Exception):
    """A receiver failed."""


class _Stopped(Exception):
    """Another one failed, or the sender was closed."""


class _Memory:
    """Host memory without a name: the kernel frees it when the last process has left it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._descriptor = os.memfd_create("treadle-weights", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self._descriptor, 0, size)  # Not later, by a signal.
            self._map = mmap.mmap(self._descriptor, size)
        except OSError:
            os.close(self._descriptor)
            raise
        self.view = memoryview(self._map)

    def __reduce__(self) -> tuple[Any, ...]:
        """A receiver reads it as a tensor."""
        of = functools.partial(
            torch.from_file, shared=True, size=self.size, dtype=torch.uint8, device="cpu"
        )
        return of, (f"/proc/{os.getpid()}/fd/{self._descriptor}",)

    def handle(self) -> bytes:
        """What receivers rebuild the bucket from: a function and its arguments.

        They put the number of their GPU in place of the seventh argument, which is for memory of
        GPUs. The function takes the tensor out of its arguments, so that no code of treadle is
        needed where the engine runs.
        """
        rebuild = functools.partial(max, key=torch.is_tensor)
        return pickle.dumps((rebuild, (self, *[None] * 6)))

    def close(self) -> None:
        self.view.release()
        self._map.close()
        os.close(self._descriptor)


class _Receiver(threading.Thread):
    """Sends all buckets to one receiver, through memory that only it shares."""

    def __init__(self, sender: Sender, name: str) -> None:
        super().__init__(name=f"weights to {name}", daemon=True)
        self.receiver, self._sender = name, sender
        self.failure: str | None = None
        self.has_all = False
        self._is_gone = False
        self.address = f"ipc://@treadle-weights-{secrets.token_hex(8)}.sock"
        # Unlike a REQ socket it can say that there is an end before the receiver has answered.
        self._socket = sender._context.socket(zmq.DEALER)
        self._socket.linger = LINGER_MS
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.bind(self.address)

    def run(self) -> None:
        try:
            self._serve()
            self.has_all = True
        except _Stopped:
            self._end("another worker failed, or the sender was closed")
        except (_Failed, CheckpointError, OSError, zmq.ZMQError) as error:
            self.failure = str(error)
            self._sender._stop.set()
            self._end(self.failure.splitlines()[0])
        finally:
            self.close()

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()

    def _serve(self) -> None:
        size, buckets = self._sender.bucket_bytes, self._sender._buckets
        memory = _Memory(2 * size)
        try:
            self._send("connect", memory.handle())
            waits_for = "its first answer"
            for number, bucket in enumerate(buckets):
                # The receiver loads the other half meanwhile.
                start = number % 2 * size
                for tensor, offset in bucket:
                    self._check()
                    at = start + offset
                    with memory.view[at : at + tensor.bytes] as view:
                        read_into(view, self._sender._files[tensor.file], tensor)
                self._answer(waits_for)
                waits_for = f"bucket {number + 1} of {len(buckets)}"
                told = [_told(tensor, start + offset) for tensor, offset in bucket]
                self._send(waits_for, pickle.dumps(told))
            self._answer(waits_for)
            for waits_for in ("the release of the bucket", "its work after loading"):
                self._send(waits_for, pickle.dumps(None))
                self._answer(waits_for)
        finally:
            memory.close()

    def _send(self, what: str, message: bytes) -> None:
        self._await(what, zmq.POLLOUT)
        self._socket.send_multipart([b"", message])

    def _answer(self, what: str) -> None:
        self._await(what, zmq.POLLIN)
        answer = self._socket.recv_multipart()[-1]
        if answer:
            text = answer.decode(errors="replace").strip()
            raise _Failed(f"answered with an error at {what}: {text.splitlines()[-1]}\n{text}")

    def _await(self, what: str, flag: int) -> None:
        deadline = time.monotonic() + self._sender.timeout_s
        while not self._socket.poll(LOOK_MS, flag):
            self._check()
            if self._monitor.poll(0):
                recv_monitor_message(self._monitor)
                self._is_gone = True
                # Its last answer may have come before.
                if not self._socket.poll(0, flag):
                    raise _Failed(f"closed the connection at {what}; its engine's log says why")
                return
            if time.monotonic() > deadline:
                where = "did not connect" if flag == zmq.POLLOUT else f"did not answer at {what}"
                raise _Failed(f"{where} within {self._sender.timeout_s:g} s")

    def _check(self) -> None:
        if self._sender._stop.is_set():
            raise _Stopped

    def _end(self, why: str) -> None:
        """Ends the receiver's wait for the next message, if there still is one."""
        if self._is_gone or not self._socket.poll(GRACE_MS, zmq.POLLOUT):
            return
        end = pickle.dumps(RuntimeError(f"treadle sends no more weights: {why}"))
        # One that has no bucket yet answers the first message, and waits for another.
        for _ in range(2):
            self._socket.send_multipart([b"", end])
        self._monitor.poll(GRACE_MS)


def _told(tensor: Any, offset: int) -> dict[str, Any]:
    dtype = getattr(torch, DTYPES[tensor.dtype])
    return {"name": tensor.name, "shape": tensor.shape, "dtype": dtype, "offset": offset}


class Sender:
    """Sends a checkpoint to the workers of one engine.

    `folder` has whole weights, such as a version that was pulled from the store. `receivers` are
    the workers' names for their GPUs, which `handles` maps to the addresses that the engine is
    given. Each receiver shares two buckets of `bucket_bytes` with the sender.

        with Sender(folder, ["GPU-..."]) as sender:
            ...  # has the engine load from sender.handles
            sender.wait()

    Leaving the block ends what has not ended: receivers get an error, and all memory is freed.
    """

    def __init__(
        self,
        folder: Path | str,
        receivers: Iterable[str],
        *,
        bucket_bytes: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.timeout_s = timeout_s
        names = list(receivers)
        if not names or len(set(names)) < len(names):
            raise ValueError("`receivers` has to name each worker of the engine once")
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            opened.enter_context(_kept(Path(folder), timeout_s))
            checkpoint = _whole(Path(folder))
            largest = max((tensor.bytes for tensor in checkpoint.tensors), default=0)
            self.bucket_bytes = bucket_bytes or max(largest, BUCKET_BYTES)
            # Its second half begins where any tensor may.
            self.bucket_bytes += -self.bucket_bytes % mmap.PAGESIZE
            self._buckets = buckets_of(checkpoint.tensors, self.bucket_bytes)
            files = {tensor.file for tensor in checkpoint.tensors}
            self._files = {
                file: opened.enter_context(open(file, "rb")).fileno() for file in sorted(files)
            }
            self._stop = threading.Event()
            self._context = zmq.Context()
            self._receivers = [_Receiver(self, name) for name in names]
            self._open = opened.pop_all()
        self.handles = {receiver.receiver: receiver.address for receiver in self._receivers}

    def __enter__(self) -> Self:
        for receiver in self._receivers:
            receiver.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()
        for receiver in self._receivers:
            receiver.join()
        self._context.term()
        self._open.close()

    def stop(self) -> None:
        """Ends what has not ended: receivers get an error."""
        self._stop.set()

    def wait(self) -> None:
        """Waits until all receivers have loaded all weights. `SendError` names those that failed;
        if one fails, the others are stopped."""
        for receiver in self._receivers:
            receiver.join()
        if not all(receiver.has_all for receiver in self._receivers):
            failed = (r for r in self._receivers if r.failure is not None)
            raise SendError({r.receiver: r.failure or "" for r in failed})


def _whole(folder: Path) -> Checkpoint:
    checkpoint = Checkpoint.open(folder)
    if checkpoint.base is not None:
        raise CheckpointError(
            f"{folder} has only what changed since version {checkpoint.base}; bring the version to "
            "this machine with `treadle weights pull`, and send that folder"
        )
    for tensor in checkpoint.tensors:
        if not hasattr(torch, DTYPES.get(tensor.dtype, "")):
            raise CheckpointError(
                f"tensor `{tensor.name}` has the type {tensor.dtype}, which torch lacks"
            )
    return checkpoint


@contextlib.contextmanager
def _kept(folder: Path, timeout_s: float) -> Iterator[None]:
    """Keeps treadle from replacing or deleting a version, if it is one of the store or a host's."""
    places: list[Path] = []
    if re.fullmatch(r"weight_v[0-9]{6,}", folder.name):
        places = [folder.parent / ".locks" / folder.name, folder.parent / ".lock"]
    with contextlib.ExitStack() as opened:
        for place in places:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                file = opened.enter_context(open(place, "rb"))
                _lock(file.fileno(), place, timeout_s)
        yield


def _lock(descriptor: int, place: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"{place} was locked for {timeout_s:g} s: a pull goes on"
                ) from None
            time.sleep(LOOK_MS / 1000)


def update(
    weights: Weights,
    worker: int,
    engine: Literal["sglang", "vllm"],
    sender: Sender,
    name: str,
) -> None:
    """Has one engine load a sender's weights as the version `name`.

    An engine that fails stays paused, and gets no steps until an update of it has ended well.
    """
    call = functools.partial(weights.call, worker=worker)
    pause, load, resume = _calls(engine, sender, name)
    call(*pause)
    refusals: list[TreadleError] = []

    def begin() -> None:
        try:
            call(*load, wait_s=sender.timeout_s * (len(sender._buckets) + 4))
        except TreadleError as error:
            refusals.append(error)
            sender.stop()

    calling = threading.Thread(target=begin, name=f"update of worker {worker}", daemon=True)
    with sender:
        calling.start()
        try:
            sender.wait()
        except SendError as error:
            calling.join(sender.timeout_s)
            if error.failures or not refusals:
                raise
        # Its workers have loaded all: what is left is its own.
        calling.join(sender.timeout_s)
    if refusals:
        raise refusals[0]
    if calling.is_alive():
        raise TreadleError(0, "unreachable", f"worker {worker} did not end its update")
    if engine == "vllm":
        call("/update_weight_version", {"new_version": name})
    call(*resume)


def _calls(engine: str, sender: Sender, name: str) -> tuple[tuple[str, Any], ...]:
    """What pauses an engine, has it load, and resumes it."""
    if engine == "sglang":
        load = {"zmq_handles": sender.handles, "weight_version": name, "flush_cache": False}
        return (
            ("/pause_generation", {"mode": "retract"}),
            ("/update_weights_from_ipc", load),
            ("/continue_generation", {}),
        )
    rpc = {"method": "update_weights_from_ipc", "args": [sender.handles]}
    return ("/pause?mode=keep", None), ("/collective_rpc", rpc), ("/resume", None)
