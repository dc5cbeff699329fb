"""Deletion vectors written by hand: their bytes, the three storage types, their descriptors."""

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

MAGIC = 1681511377
_NO_RUNS = 12346
_FORMAT_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def write(
    root: Path, rows: Iterable[int], *, storage: str, uuid: str, prefix: str = ""
) -> tuple[dict[str, Any], Path | None]:
    """The descriptor of a vector for these rows, and its file unless it is inline."""
    deleted = sorted(set(rows))
    bitmap = bitmap_of(deleted)
    vector: dict[str, Any] = {
        "storageType": storage,
        "sizeInBytes": len(bitmap),
        "cardinality": len(deleted),
    }
    if storage == "i":
        return vector | {"pathOrInlineDv": z85(bitmap + b"\0" * (-len(bitmap) % 4))}, None
    file = root / prefix / f"deletion_vector_{uuid}.bin"
    file.parent.mkdir(parents=True, exist_ok=True)
    checksum = struct.pack(">I", zlib.crc32(bitmap))
    file.write_bytes(_FORMAT_VERSION + struct.pack(">I", len(bitmap)) + bitmap + checksum)
    named = prefix + z85(UUID(uuid).bytes) if storage == "u" else file.as_uri()
    return vector | {"pathOrInlineDv": named, "offset": 1}, file


def unique_id(vector: dict[str, Any]) -> str:
    """The id that identifies a logical file together with its path."""
    offset = vector.get("offset")
    named = vector["storageType"] + vector["pathOrInlineDv"]
    return named if offset is None else f"{named}@{offset}"


def z85(raw: bytes) -> str:
    """ZeroMQ's Base85 of bytes whose number is a multiple of four."""
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    return "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def bitmap_of(rows: Iterable[int]) -> bytes:
    """Delta's 64-bit Roaring bitmap, with array containers only."""
    by_high: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        by_high[row >> 32].append(row & 0xFFFFFFFF)
    parts = [struct.pack("<I", high) + _roaring(low) for high, low in sorted(by_high.items())]
    return struct.pack("<IQ", MAGIC, len(parts)) + b"".join(parts)


def _roaring(values: list[int]) -> bytes:
    by_key: dict[int, list[int]] = defaultdict(list)
    for value in values:
        by_key[value >> 16].append(value & 0xFFFF)
    containers = [struct.pack(f"<{len(low)}H", *low) for low in by_key.values()]
    header = struct.pack("<II", _NO_RUNS, len(by_key))
    header += b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in by_key.items())
    at = len(header) + 4 * len(containers)
    offsets = b""
    for container in containers:
        offsets += struct.pack("<I", at)
        at += len(container)
    return header + offsets + b"".join(containers)
