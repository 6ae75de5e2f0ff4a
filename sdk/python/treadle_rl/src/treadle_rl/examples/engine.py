"""A tiny engine whose weights really change: a stand-in of SGLang, with the paths that treadle asks.

    python -m treadle_rl.examples.engine [--port 0] [--token-ms 2] [--load-ms 0]

Its model is a table of logits, at first that of `answers.py`; it loads folders with safetensors. A
load replaces one tensor after the other, so an engine that is killed in the middle has a mixture.
Answers that run while it is paused wait, and go on under the new weights; each names the versions of
its tokens. Its log-probabilities are 32-bit numbers, so that nobody who keeps them rounds them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle_rl._checkpoint import Checkpoint, CheckpointError
from treadle_rl._names import write_atomically

from ._loop import CONTEXTS, Floats
from .answers import TOKENS_MAX, initial, is_over, next_token

MODEL = "bandit"
UNNAMED = "default"
"""What SGLang calls weights that nobody has named."""
CAPACITY = 16_384
Table = dict[str, NDArray[np.float32]]


def table_of(logits: Floats) -> Table:
    """Weights as engines have them."""
    return {f"context.{context}": row for context, row in enumerate(logits.astype("<f4"))}


def write_table(folder: Path, logits: Floats) -> None:
    """Writes whole weights; those that are there already have to be the same."""
    header: dict[str, Any] = {}
    data = b""
    for name, row in table_of(logits).items():
        offsets = [len(data), len(data) + row.nbytes]
        header[name] = {"dtype": "F32", "shape": [len(row)], "data_offsets": offsets}
        data += row.tobytes()
    head = json.dumps(header).encode()
    raw = len(head).to_bytes(8, "little") + head + data
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.safetensors"
    if path.exists() and path.read_bytes() != raw:
        raise ValueError(f"{path} has other weights; training on the same batches gave these")
    write_atomically(path, raw)


def read_table(folder: Path) -> Table:
    """Reads whole weights."""
    table = {}
    for tensor in Checkpoint.open(folder).tensors:
        with open(tensor.file, "rb") as file:
            file.seek(tensor.start)
            table[tensor.name] = np.frombuffer(file.read(tensor.bytes), "<f4")
    return table


def row_of(table: Table, context: int) -> Floats:
    return table[f"context.{context}"].astype(np.float64)


class Engine:
    """The weights, and what samples with them."""

    def __init__(self, token_s: float, load_s: float) -> None:
        self.table, self.name = table_of(initial()), UNNAMED
        self.token_s, self.load_s = token_s, load_s
        self.paused = False
        self.changed = threading.Condition()
        self.rng = np.random.default_rng()

    def generate(self, context: int) -> tuple[list[int], list[float], list[str]]:
        """Tokens, their log-probabilities, and the version that sampled each."""
        tokens: list[int] = []
        logprobs: list[float] = []
        versions: list[str] = []
        while not is_over(tokens):
            time.sleep(self.token_s)
            with self.changed:
                self.changed.wait_for(lambda: not self.paused)
                token, logprob = next_token(self.rng, row_of(self.table, context))
                tokens.append(token)
                logprobs.append(logprob)
                versions.append(self.name)
        return tokens, logprobs, versions

    def pause(self, paused: bool) -> None:
        with self.changed:
            self.paused = paused
            self.changed.notify_all()

    def load(self, folder: Path, name: str) -> None:
        """Loads whole weights, one tensor after the other."""
        found = read_table(folder)
        if found.keys() != self.table.keys():
            raise ValueError(f"{folder} has the weights of another model")
        for tensor, row in found.items():
            time.sleep(self.load_s / len(found))
            self.table[tensor] = row
        self.name = name

    def checksums(self) -> dict[str, str]:
        rows = self.table.items()
        return {tensor: hashlib.sha256(row.tobytes()).hexdigest() for tensor, row in rows}


def spans_of(versions: list[str]) -> list[dict[str, Any]]:
    """Ranges of tokens that the same version sampled."""
    spans, start = [], 0
    for version, of in itertools.groupby(versions):
        end = start + len(list(of))
        spans.append({"version": version, "start": start, "end": end})
        start = end
    return spans


class Refused(Exception):
    """What a request gets instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Paths:
    """The paths of SGLang that treadle asks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        engine = self.engine
        match method, path:
            case "GET", "/health":
                return {}
            case "GET", "/v1/models":
                return {"object": "list", "data": [{"id": MODEL, "max_model_len": 64}]}
            case "GET", "/server_info":
                sizes = {"max_total_num_tokens": CAPACITY, "context_length": 64}
                return {**sizes, "version": "stand-in"}
            case "GET", "/model_info":
                return {"model_path": MODEL, "weight_version": engine.name}
            case "POST", "/pause_generation":
                engine.pause(True)
            case "POST", "/continue_generation":
                engine.pause(False)
            case "POST", "/flush_cache":
                pass  # It has no cache.
            case "POST", "/update_weights_from_disk":
                return self._load(body)
            case "POST", "/weights_checker":
                return {"ranks": [{"checksums": engine.checksums()}]}
            case "POST", "/generate":
                return self._generate(body)
            case _:
                raise Refused(404, f"{method} {path} is not served")
        return {"success": True}

    def _load(self, body: Mapping[str, Any]) -> Any:
        if not self.engine.paused:
            raise Refused(400, "the engine generates: pause it first")
        try:
            self.engine.load(Path(body["model_path"]), body["weight_version"])
        except (CheckpointError, OSError, ValueError) as error:
            raise Refused(400, f"nothing was loaded: {error}") from error
        return {"success": True, "message": "Succeeded to update model weights."}

    def _generate(self, body: Mapping[str, Any]) -> Any:
        prompt = body.get("input_ids")
        if not isinstance(prompt, list) or len(prompt) != 1 or prompt[0] not in range(CONTEXTS):
            raise Refused(400, f"`input_ids` is one number below {CONTEXTS}")
        tokens, logprobs, versions = self.engine.generate(prompt[0])
        is_cut = len(tokens) == TOKENS_MAX
        meta = {
            "id": "0",
            "finish_reason": {"type": "length" if is_cut else "stop"},
            "prompt_tokens": 1,
            "completion_tokens": len(tokens),
            "cached_tokens": 0,
            "weight_version": versions[-1],
            "weight_versions": spans_of(versions),
        }
        if body.get("return_logprob"):
            scored = zip(logprobs, tokens, strict=True)
            meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in scored]
        return {"text": " ".join(map(str, tokens)), "output_ids": tokens, "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    """HTTP for one connection."""

    protocol_version = "HTTP/1.1"
    paths: Paths

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        status = 200
        try:
            body = json.loads(raw) if raw else {}
            answer = self.paths.answer(self.command, self.path.split("?")[0], body)
        except (Refused, ValueError, KeyError) as error:
            status = error.status if isinstance(error, Refused) else 400
            answer = {"success": False, "message": str(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _serve

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, engine: Engine) -> None:
        handler = type("Handler", (Handler,), {"paths": Paths(engine)})
        super().__init__(("127.0.0.1", port), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="A tiny engine, a stand-in of SGLang.")
    parser.add_argument("--port", type=int, default=0, help="0 is any free one")
    parser.add_argument("--token-ms", type=float, default=2.0, help="time for a token")
    parser.add_argument("--load-ms", type=float, default=0.0, help="time to load all weights")
    arguments = parser.parse_args()
    engine = Engine(arguments.token_ms / 1000, arguments.load_ms / 1000)
    server = Server(arguments.port, engine)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
