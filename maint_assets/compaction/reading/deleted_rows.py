"""Read deletion vectors (PROTOCOL, "Deletion Vector Format")."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap, BitMap64

from maint_assets.compaction.reading.locations import StoredFile, stored_file
from maint_assets.delta.deletion_vectors import inline_bitmap
from maint_assets.delta.paths import TableRoot
from maint_assets.errors import CorruptLogError, StorageError, one_line
from maint_assets.snapshot.resolved_paths import vector_path
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from maint_assets.delta.actions import DeletionVector
    from maint_assets.storage.location import Location

_VERSION = b"\x01"
_PORTABLE, _NATIVE = 1681511377, 1681511376
_REMEDY = "restore the vector from a backup or a replica; no row is changed without it"


def deleted_rows(location: Location, vector: DeletionVector) -> NDArray[np.uint64]:
    """The physical indexes of the deleted rows, ascending.

    Raises StorageError for a file that cannot be read, CorruptLogError for a vector that differs
    from its descriptor in size, checksum, format or cardinality.
    """
    root = TableRoot.of(location.uri)
    named = vector_path(vector.storage_type, vector.path_or_inline_dv, root)
    try:
        if named is None:
            bitmap = inline_bitmap(vector.path_or_inline_dv, vector.size_in_bytes)
        else:
            bitmap = _stored(stored_file(location, named), vector)
        return _rows(bitmap, vector.cardinality)
    except OSError as error:
        found = f"deletion vector {named} cannot be read ({one_line(error)})"
        raise StorageError(location.uri, found, _REMEDY) from error
    except (ValueError, struct.error) as error:
        found = f"deletion vector {named or vector.unique_id} is damaged: {one_line(error)}"
        raise CorruptLogError(location.uri, found, _REMEDY) from error


def _stored(file: StoredFile, vector: DeletionVector) -> bytes:
    """The bitmap at the descriptor's offset in a file; without an offset, the first one."""
    spans = [(0, 1), (vector.offset or 1, vector.size_in_bytes + 8)]
    version, framed = read.ranges(file.location, file.path, spans)
    if version != _VERSION:
        raise ValueError(f"its file has the format version {version.hex()}, not 01")
    if len(framed) != vector.size_in_bytes + 8:
        raise ValueError(f"its file ends before its {vector.size_in_bytes} bytes")
    (size,), bitmap = struct.unpack(">I", framed[:4]), framed[4:-4]
    if size != vector.size_in_bytes:
        raise ValueError(f"has {size} bytes, not {vector.size_in_bytes}")
    if struct.unpack(">I", framed[-4:])[0] != zlib.crc32(bitmap):
        raise ValueError("its checksum does not match")
    return bitmap


def _rows(bitmap: bytes, cardinality: int) -> NDArray[np.uint64]:
    rows = _numbers(bitmap)
    if len(rows) != cardinality:
        raise ValueError(f"has {len(rows)} rows, not {cardinality}")
    return rows


def _numbers(bitmap: bytes) -> NDArray[np.uint64]:
    """The numbers in a 64-bit Roaring bitmap that follows its magic number. Raises ValueError.

    Delta writes the portable format and reads the native one too; that of PROTOCOL's own example
    is big-endian.
    """
    (little,), (big,) = struct.unpack("<i", bitmap[:4]), struct.unpack(">i", bitmap[:4])
    if little == _PORTABLE:
        return np.array(BitMap64.deserialize(bitmap[4:]).to_array(), np.uint64)
    if _NATIVE not in {little, big}:
        raise ValueError(f"its format number is {little}")
    every = list(_native(bitmap, "<" if little == _NATIVE else ">"))
    return np.concatenate(every) if every else np.array([], np.uint64)


def _native(bitmap: bytes, order: str) -> Iterator[NDArray[np.uint64]]:
    (count,) = struct.unpack_from(f"{order}I", bitmap, 4)
    at = 8
    for high in range(count):
        (size,) = struct.unpack_from(f"{order}I", bitmap, at)
        low = BitMap.deserialize(bitmap[at + 4 : at + 4 + size]).to_array()
        yield np.array(low, np.uint64) + np.uint64(high << 32)
        at += 4 + size
