"""Checkpoints of random tensors, written without any library."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle_rl._checkpoint import DTYPE_BYTES, INDEX

Tensors = Mapping[str, tuple[str, list[int], bytes]]


def random_tensors(seed: int) -> dict[str, tuple[str, list[int], bytes]]:
    """Each type in odd shapes, also of no and of one element."""
    source = random.Random(seed)
    shapes = [[], [0], [1], [3, 5, 7], [129, 11], [2, 1000]]
    tensors = {}
    for dtype, width in DTYPE_BYTES.items():
        for number, shape in enumerate(shapes):
            data = source.randbytes(math.prod(shape) * width)
            if dtype == "BOOL":
                data = bytes(byte & 1 for byte in data)
            tensors[f"{dtype.lower()}.{number}"] = (dtype, shape, data)
    return tensors


def write_file(path: Path, tensors: Tensors, notes: dict[str, str] | None = None) -> None:
    header: dict[str, Any] = {} if notes is None else {"__metadata__": notes}
    data = b""
    for name, (dtype, shape, tensor) in tensors.items():
        offsets = [len(data), len(data) + len(tensor)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += tensor
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def write(folder: Path, tensors: Tensors, files: int = 3) -> Path:
    """A checkpoint in several files with an index."""
    folder.mkdir(parents=True)
    names = list(tensors)
    where: dict[str, str] = {}
    for number in range(files):
        name = f"model-{number + 1:05}-of-{files:05}.safetensors"
        part = names[number::files]
        write_file(folder / name, {n: tensors[n] for n in part})
        where |= dict.fromkeys(part, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def write_delta(folder: Path, version: int, base: int) -> Path:
    """A version that says which one it builds on; what it changed does not matter here."""
    folder.mkdir(parents=True)
    write_file(folder / "model-00000-of-00001.safetensors", {"a": ("U8", [3], b"abc")}, {"a": "0"})
    metadata = {
        "version": f"{version:06}",
        "base_version": f"{base:06}",
        "delta_encoding": "xor",
        "compression_format": "zstd",
        "checksum_format": "xxh3-128",
    }
    where = {"a": "model-00000-of-00001.safetensors"}
    (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": where}))
    return folder
