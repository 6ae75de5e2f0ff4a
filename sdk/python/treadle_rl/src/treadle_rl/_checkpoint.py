"""Folders with weights as Hugging Face writes them, by the headers of their safetensors files."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

INDEX = "model.safetensors.index.json"
INDEX_BYTES_MAX = 256 << 20
"""Largest index."""
HEADER_BYTES_MAX = 100_000_000
"""Largest header, which is the bound of the library safetensors."""
ALIGNMENT = 256
"""Where a tensor begins in a bucket is a multiple of this, in bytes."""

DTYPE_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
"""Bytes of an element, by the names of safetensors."""


class CheckpointError(Exception):
    """A folder is not what it should be."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a file. `start` is where its bytes begin there."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder of safetensors files. `base` is the version that it is a delta to."""

    folder: Path
    base: int | None
    tensors: tuple[Tensor, ...] = field(repr=False)

    @staticmethod
    def open(folder: Path) -> Checkpoint:
        """Reads all headers, and checks that they fit the files."""
        if not folder.is_dir():
            raise CheckpointError(f"{folder} is no folder on this machine")
        index = _index(folder)
        notes, named = index.get("metadata") or {}, index.get("weight_map")
        if named is None:
            files = sorted(folder.glob("*.safetensors"))
        else:
            files = [folder / _plain(folder, name) for name in sorted(set(named.values()))]
        if not files and named is None:
            raise CheckpointError(f"{folder} has no .safetensors file")
        tensors = [tensor for file in files for tensor in _tensors(file)]
        names = {tensor.name for tensor in tensors}
        if len(names) < len(tensors):
            raise CheckpointError(f"{folder} has a tensor in two files")
        if lost := sorted(set(named or ()) - names):
            raise CheckpointError(f"{folder} lacks tensor `{lost[0]}`, which its index names")
        base = _base(folder, notes) if "delta_encoding" in notes else None
        return Checkpoint(folder, base, tuple(tensors))


def _index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        with _opened(path) as file:
            text = file.read(INDEX_BYTES_MAX + 1)
        index = json.loads(text)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    if len(text) > INDEX_BYTES_MAX:
        raise CheckpointError(f"{path} has more than {INDEX_BYTES_MAX} bytes")
    names = index.get("weight_map", {}) if isinstance(index, dict) else None
    notes = index.get("metadata") or {} if isinstance(index, dict) else None
    if not isinstance(notes, dict) or not isinstance(names, dict):
        raise CheckpointError(f"{path} is no index of safetensors files")
    if not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{path} names a file that is no text")
    found: dict[str, Any] = index
    return found


def _base(folder: Path, notes: dict[str, Any]) -> int:
    try:
        return int(notes["base_version"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the index in {folder} has no number as `base_version`") from error


def _opened(path: Path) -> BinaryIO:
    """Opens a file; a pipe would have its reader wait for the other end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _plain(folder: Path, name: str) -> str:
    if Path(name).name != name or name.startswith(".") or not name.endswith(".safetensors"):
        raise CheckpointError(f"the index in {folder} names {name!r}, which is no file there")
    return name


def _tensors(path: Path) -> list[Tensor]:
    """The tensors of a file, in the order of their bytes."""
    try:
        with _opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_BYTES_MAX or 8 + length > size:
                raise CheckpointError(f"{path}: its header is too long")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        found = [_tensor(path, 8 + length, *item) for item in header.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: it can't be read: {error!r}") from error
    found.sort(key=lambda tensor: (tensor.start, tensor.bytes))
    at = 8 + length
    for tensor in found:
        if tensor.start != at:
            raise CheckpointError(f"{path}: tensor `{tensor.name}` does not follow the one before")
        at += tensor.bytes
    if at != size:
        raise CheckpointError(f"{path}: it has {size} bytes, but its header says {at}")
    return found


def _tensor(path: Path, begin: int, name: str, entry: dict[str, Any]) -> Tensor:
    dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
    start, end = entry["data_offsets"]
    width = DTYPE_BYTES.get(dtype)
    if width is not None and math.prod(shape) * width != end - start:
        raise CheckpointError(f"{path}: tensor `{name}` has {end - start} bytes, not its shape's")
    return Tensor(name, dtype, shape, path, begin + start, end - start)


def buckets_of(tensors: Iterable[Tensor], size: int) -> list[list[tuple[Tensor, int]]]:
    """Packs tensors in their order into buckets of `size` bytes, each at an offset."""
    buckets: list[list[tuple[Tensor, int]]] = []
    end = size
    for tensor in tensors:
        if tensor.bytes > size:
            raise CheckpointError(
                f"tensor `{tensor.name}` has {tensor.bytes} bytes and a bucket {size}; a tensor "
                f"is sent in one piece: set `bucket_bytes` to {tensor.bytes} or more"
            )
        start = -(-end // ALIGNMENT) * ALIGNMENT
        if not buckets or start + tensor.bytes > size:
            buckets.append([])
            start = 0
        buckets[-1].append((tensor, start))
        end = start + tensor.bytes
    return buckets


def read_into(view: memoryview, descriptor: int, tensor: Tensor) -> None:
    """Reads a tensor's bytes."""
    done = 0
    while done < tensor.bytes:
        read = os.preadv(descriptor, [view[done : tensor.bytes]], tensor.start + done)
        if read == 0:
            raise CheckpointError(f"{tensor.file} ended within tensor `{tensor.name}`")
        done += read
