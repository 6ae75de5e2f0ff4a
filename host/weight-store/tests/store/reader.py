"""Reads versions of weights, written from the description of the format and without treadle's code:
python3 reader.py STORE VERSION prints the name, bytes and CRC-32 of each tensor."""

import ctypes
import ctypes.util
import json
import pathlib
import struct
import sys
import zlib

zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
zstd.ZSTD_decompress.restype = ctypes.c_size_t
zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def decompress(packed):
    size = zstd.ZSTD_getFrameContentSize(packed, ctypes.c_size_t(len(packed)))
    assert size < 1 << 40, "the frame does not say its size"
    buffer = ctypes.create_string_buffer(max(size, 1))
    assert zstd.ZSTD_decompress(buffer, size, packed, len(packed)) == size
    return buffer.raw[:size]


def tensors(folder):
    """Every tensor and every note in a folder's safetensors files."""
    found, notes = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        blob = path.read_bytes()
        (length,) = struct.unpack("<Q", blob[:8])
        header = json.loads(blob[8 : 8 + length])
        notes.update(header.pop("__metadata__", {}))
        for name, info in header.items():
            begin, end = info["data_offsets"]
            found[name] = blob[8 + length + begin : 8 + length + end]
    return found, notes


def at_version(store, version):
    folder = store / f"weight_v{version:06d}"
    index = folder / "model.safetensors.index.json"
    index = json.loads(index.read_text()) if index.exists() else {}
    meta = index.get("metadata", {})
    found, notes = tensors(folder)
    if "delta_encoding" not in meta:
        return found
    assert int(meta["version"]) == version and meta["compression_format"] == "zstd"
    assert set(index["weight_map"]) == set(found)
    assert meta["checksum_format"] == "adler32"
    whole = at_version(store, int(meta["base_version"]))
    for name, packed in found.items():
        change, old = decompress(packed), bytearray(whole[name])
        if meta["delta_encoding"] == "xor":
            assert len(change) == len(old)
            old = bytearray(a ^ b for a, b in zip(old, change))
        else:
            (count,) = struct.unpack("<I", change[:4])
            places = struct.unpack(f"<{count}I", change[4 : 4 + 4 * count])
            for place, value in zip(places, change[4 + 4 * count :], strict=True):
                old[place] = value
        assert f"{zlib.adler32(old):08x}" == notes[name], name
        whole[name] = bytes(old)
    return whole


for name, value in sorted(at_version(pathlib.Path(sys.argv[1]), int(sys.argv[2])).items()):
    print(name, len(value), zlib.crc32(value))
