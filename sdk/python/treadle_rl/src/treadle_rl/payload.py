"""The tokens of a batch: reads its safetensors file, with or without numpy."""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

_numpy: ModuleType | None
try:
    import numpy as _numpy
except ImportError:
    _numpy = None

Array: TypeAlias = Any
"""A numpy array; without numpy an `array.array`, flat in row-major order."""

_TYPES = {"I32": ("i", "<i4"), "I64": ("q", "<i8"), "F32": ("f", "<f4"), "F64": ("d", "<f8")}
_HEADER_BYTES_MAX = 1 << 20


class PayloadError(ValueError):
    """The bytes are not a payload."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Tokens of one sequence; all arrays have the shape `[tokens]`.

    `mask` is 1 where a token was sampled and is to be trained. Elsewhere `logprobs` is 0 and
    `versions`, the version of the weights that sampled the token, is -1. `reward` is the member's,
    or NaN. `group_index` and `member_index` count within the payload, `number` within the member.
    """

    ids: Array
    mask: Array
    logprobs: Array
    versions: Array
    reward: float
    group: str
    member: str
    group_index: int
    member_index: int
    number: int
    ranges: tuple[tuple[int, int], ...] = field(repr=False)
    spans: tuple[tuple[int, int, int], ...] = field(repr=False)


class Payload:
    """A batch's tokens; iterating gives its sequences. `raw` is the file, byte for byte."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        tensors = _tensors(raw)
        self.meta: dict[str, Any] = json.loads(bytes(tensors["meta"][1]))
        self.ids = _array(*tensors["ids"])
        """`[tokens]`: token ids of all sequences."""
        self.logprobs = _array(*tensors["logprobs"])
        """`[sampled tokens]`: log-probabilities of the tokens of all ranges."""
        self.rewards = _array(*tensors["reward"])
        """`[members]`: NaN where a member has none."""
        self._starts = _integers(*tensors["sequence_start"])
        self._owner = _rows(_integers(*tensors["owner"]), 3)
        self._ranges = _by_sequence(_integers(*tensors["sampled"]), 3)
        self._spans = _by_sequence(_integers(*tensors["versions"]), 4)
        self.versions = [_version(entry) for entry in self.meta["versions"]]
        """Versions of the weights that sampled the tokens."""

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self._owner)

    def __iter__(self) -> Iterator[Sequence]:
        offset = 0
        for number in range(len(self)):
            sequence = self._sequence(number, offset)
            offset += sum(end - start for start, end in sequence.ranges)
            yield sequence

    def _sequence(self, number: int, offset: int) -> Sequence:
        ids = self.ids[self._starts[number] : self._starts[number + 1]]
        mask = _filled("b", len(ids), 0)
        logprobs, versions = _filled("f", len(ids), 0), _filled("q", len(ids), -1)
        ranges = tuple((start, end) for start, end in self._ranges.get(number, ()))
        for start, end in ranges:
            mask[start:end] = _filled("b", end - start, 1)
            logprobs[start:end] = self.logprobs[offset : offset + end - start]
            offset += end - start
        spans = tuple((s, e, self.versions[v]) for s, e, v in self._spans.get(number, ()))
        for start, end, version in spans:
            versions[start:end] = _filled("q", end - start, version)
        group, member, nth = self._owner[number]
        return Sequence(
            ids=ids,
            mask=mask,
            logprobs=logprobs,
            versions=versions,
            reward=float(self.rewards[member]),
            group=_name(self.meta["groups"][group], "group"),
            member=_name(self.meta["members"][member], "program"),
            group_index=group,
            member_index=member,
            number=nth,
            ranges=ranges,
            spans=spans,
        )

    def check(self) -> list[str]:
        """Programs whose tokens do not have the digest that `meta` records."""
        members: dict[int, list[Sequence]] = {i: [] for i in range(len(self.meta["members"]))}
        for sequence in self:
            members[sequence.member_index].append(sequence)
        said = enumerate(self.meta["members"])
        recorded = {index: entry["sample"] for index, entry in said if entry.get("sample")}
        wrong = [i for i, sample in recorded.items() if digest(members[i]) != sample]
        return [_name(self.meta["members"][index], "program") for index in wrong]


def digest(sequences: Iterable[Sequence]) -> str:
    """The digest of a member's sequences, in order; `docs/training.md` defines it."""
    sha = hashlib.sha256()
    for sequence in sequences:
        _hash(sha, "q", [len(sequence.ids)])
        _hash(sha, "i", sequence.ids)
        _hash(sha, "q", [len(sequence.ranges), *(x for pair in sequence.ranges for x in pair)])
        for start, end in sequence.ranges:
            _hash(sha, "f", sequence.logprobs[start:end])
        _hash(sha, "q", [len(sequence.spans), *(x for span in sequence.spans for x in span)])
    return f"sha256:{sha.hexdigest()}"


def _hash(sha: Any, code: str, values: Any) -> None:
    words = array(code, values.tolist() if hasattr(values, "tolist") else values)
    if sys.byteorder == "big":
        words.byteswap()
    sha.update(words.tobytes())


def _tensors(raw: bytes) -> dict[str, tuple[str, memoryview, list[int]]]:
    """Type, bytes and shape of each tensor of a safetensors file."""
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(len(raw) - 8, _HEADER_BYTES_MAX):
        raise PayloadError(f"{len(raw)} bytes are not a safetensors file")
    try:
        header = json.loads(raw[8 : 8 + length])
        data = memoryview(raw)[8 + length :]
        tensors = {}
        for name, tensor in header.items():
            if name != "__metadata__":
                start, end = tensor["data_offsets"]
                if not 0 <= start <= end <= len(data):
                    raise PayloadError(f"tensor `{name}` leaves the file")
                tensors[name] = (tensor["dtype"], data[start:end], tensor["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise PayloadError(f"the header of the safetensors file can't be read: {error}") from error
    names = ("ids", "sequence_start", "sampled", "logprobs", "versions", "owner", "reward", "meta")
    if missing := [name for name in names if name not in tensors]:
        raise PayloadError(f"the payload has no tensor `{missing[0]}`")
    return tensors


def _array(dtype: str, data: memoryview, shape: list[int]) -> Array:
    code, name = _TYPES[dtype]
    if _numpy is not None:
        return _numpy.frombuffer(data, dtype=name).reshape(shape)
    values = array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _integers(dtype: str, data: memoryview, shape: list[int]) -> list[int]:
    return [int(x) for x in _array(dtype, data, [len(data) // 8]).tolist()]


def _rows(flat: list[int], width: int) -> list[list[int]]:
    return [flat[at : at + width] for at in range(0, len(flat), width)]


def _by_sequence(flat: list[int], width: int) -> dict[int, list[list[int]]]:
    """Rows by their first column, the sequence, and without it."""
    found: dict[int, list[list[int]]] = {}
    for sequence, *rest in _rows(flat, width):
        found.setdefault(sequence, []).append(rest)
    return found


def _filled(code: str, length: int, value: int) -> Array:
    if _numpy is None:
        return array(code, [value]) * length
    return _numpy.full(length, value, dtype={"b": bool, "f": "float32", "q": "int64"}[code])


def _version(entry: Any) -> int:
    return int(entry["version"] if isinstance(entry, dict) else entry)


def _name(entry: Any, key: str) -> str:
    return str(entry[key] if isinstance(entry, dict) else entry)
