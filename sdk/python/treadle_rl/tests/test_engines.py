"""The sender and treadle with real servers of vLLM and SGLang, on this machine's processor.

`VLLM_PYTHON` and `SGLANG_PYTHON` name Pythons that have the engine (what `scripts/setup.sh vllm` and
`scripts/setup.sh sglang` install) and checkpoint-engine, and `TREADLE` the program. Each takes
minutes. `cpu_engine/sitecustomize.py` says what of the engines is replaced.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from checkpoints import write_file

pytest.importorskip("torch", reason="torch is missing")
pytest.importorskip("zmq", reason="zmq is missing")

from treadle_rl import Client, TreadleError
from treadle_rl._checkpoint import Checkpoint
from treadle_rl.checkpoint_engine import Sender, update

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
START_S = 600
PROMPT = [10, 20, 30, 40] * 10


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    with open(log, "w") as errors:
        process = subprocess.Popen(
            command, stderr=errors, text=True, start_new_session=True, cwd=log.parent, **more
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def engine_of(kind: str, python: str, model: Path, folder: Path) -> Iterator[str]:
    """A server of a model, once it answers."""
    sys.path.insert(0, str(ROOT / "tests/engines"))
    launcher: Any = importlib.import_module(f"{kind}_server")
    port = free_port()
    if kind == "vllm":
        extension = ["--worker-extension-cls", "cpu_worker.Extension"]
        command = launcher.command(str(model), port, ["--max-model-len", "4096", *extension])
        environment = launcher.environment(free_port())
    else:
        command = launcher.command(str(model), port)
        environment = launcher.environment(str(folder))
    environment["PYTHONPATH"] += f":{HERE / 'cpu_engine'}"
    url, log = f"http://127.0.0.1:{port}", folder / "engine.log"
    with (
        running([python, *command[1:]], log, env=environment, stdout=subprocess.DEVNULL) as process,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4_000:]
            try:
                if client.get("/health").is_success:
                    break
            except httpx.TransportError:
                pass
            time.sleep(1)
        yield url


@contextmanager
def daemon_of(engine: str, folder: Path) -> Iterator[Client]:
    program = os.environ.get("TREADLE", str(ROOT / "target/debug/treadle"))
    command = [program, "serve", "--engine", engine, "--listen", "127.0.0.1:0", "--json"]
    log = folder / "daemon.log"
    with running(command, log, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        token = re.search(r"tr_[0-9a-f]+", log.read_text())
        assert token is not None
        with Client(url, token[0]) as client:
            deadline = time.monotonic() + 120
            headers = {"authorization": f"Bearer {token[0]}"}
            while True:
                found = httpx.get(f"{url}/api/v1/workers", headers=headers).json()["workers"]
                if found and found[0]["state"] == "active":
                    break
                assert time.monotonic() < deadline, found
                time.sleep(0.2)
            yield client


def another(model: Path, folder: Path) -> Path:
    """A version with other matrices."""
    folder.mkdir()
    source = random.Random(5)
    tensors = {}
    for tensor in Checkpoint.open(model).tensors:
        data = tensor.file.read_bytes()[tensor.start :][: tensor.bytes]
        if "norm" not in tensor.name:
            count = tensor.bytes // 4
            numbers = struct.unpack(f"<{count}f", data)
            data = struct.pack(f"<{count}f", *(n * source.choice((0.5, 1.5)) for n in numbers))
        tensors[tensor.name] = (tensor.dtype, list(tensor.shape), data)
    write_file(folder / "model.safetensors", tensors, {"format": "pt"})
    for file in model.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


class Engine:
    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url

    def post(self, path: str, body: Any) -> Any:
        return httpx.post(self.url + path, json=body, timeout=120).raise_for_status().json()

    def says(self) -> Any:
        body = {"model": "model", "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
        choice = self.post("/v1/completions", {**body, "logprobs": 1})["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    def checksums(self) -> Any:
        path = "/weight_checker" if self.kind == "vllm" else "/weights_checker"
        return self.post(path, {"action": "checksum"})

    def loads_from_disk(self, folder: Path) -> None:
        if self.kind == "sglang":
            self.post("/update_weights_from_disk", {"model_path": str(folder)})
            return
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        self.post("/collective_rpc", body)
        httpx.post(self.url + "/reset_prefix_cache").raise_for_status()


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_an_engine_has_what_was_sent(kind: Literal["sglang", "vllm"], tmp_path: Path) -> None:
    name = f"{kind.upper()}_PYTHON"
    python = os.environ.get(name)
    if python is None:
        pytest.skip(f"{name} is not set")
    old = tmp_path / "old"
    subprocess.run([python, str(ROOT / "tests/engines/hf_model.py"), str(old)], check=True)
    new = another(old, tmp_path / "new")
    with engine_of(kind, python, old, tmp_path) as url, daemon_of(url, tmp_path) as client:
        engine, weights = Engine(kind, url), client.job("math").weights
        before, first = engine.says(), engine.checksums()

        def send(folder: Path, device: str, version: str) -> None:
            sender = Sender(folder, [device], bucket_bytes=300_000, timeout_s=60)
            assert len(sender._buckets) > 3
            update(weights, 0, kind, sender, version)
            fleet = weights.fleet()
            assert fleet.serving is not None and fleet.serving.name == version
            assert fleet.fenced == ()

        send(new, "CPU-0", "7")
        sent, sums = engine.says(), engine.checksums()
        assert sent != before and sums != first
        with pytest.raises(TreadleError, match="status [45]00"):
            send(new, "CPU-9", "8")
        assert [holding.worker for holding in weights.fleet().fenced] == [0]
        send(old, "CPU-0", "9")
        assert (engine.says(), engine.checksums()) == (before, first)
        engine.loads_from_disk(new)
        assert (engine.says(), engine.checksums()) == (sent, sums)
