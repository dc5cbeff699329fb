"""Objects opened as files: small ones in memory, larger ones as a copy on the local disk.

Arrow reads the columns of a row group in turn, a few pages of each: over the network that would be
many small requests, and a cache for it would have to hold whole row groups.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa

from maint_assets.storage import objects
from maint_assets.storage.entries import OpenFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore import Bytes, GetOptions
    from obstore.store import S3Store

    from maint_assets.storage.location import Location

MEMORY_BYTES = 16 * 1024 * 1024
"""Objects up to this size are held in memory, and read by one request."""

FOOTER_BYTES = 64 * 1024
"""Bytes read for the footer of a Parquet file; a longer footer takes a second request."""

_RANGE_BYTES, _RANGES_AT_ONCE = 16 * 1024 * 1024, 4
_NEAR_BYTES = 1024 * 1024
"""Ranges this near to each other share a request."""

_END_BYTES, _MAGICS = 8, {b"PAR1", b"PARE"}
"""A Parquet file ends with the length of its footer in four bytes, and a magic number."""


def opened(location: Location, path: str, *, size: int) -> OpenFile:
    """Open an object; ``size`` is the one expected. Raises FileNotFoundError, OSError."""
    store = objects.store_of(location)
    with objects.as_os_error():
        if size <= MEMORY_BYTES:
            found = obstore.get(store, path)
            if found.meta["size"] <= MEMORY_BYTES:
                body = pa.py_buffer(found.bytes())
                return OpenFile(pa.BufferReader(body), body.size)
        return _on_disk(store, path)


def footer(location: Location, path: str) -> OpenFile:
    """The end of a Parquet object that holds its footer, with the size of the whole object.

    Raises FileNotFoundError, OSError.
    """
    store = objects.store_of(location)
    with objects.as_os_error():
        found = obstore.get(store, path, options={"range": {"suffix": FOOTER_BYTES}})
        size, body = found.meta["size"], found.bytes()
        needed = min(_footer_bytes(body), size)
        if len(body) < needed:
            body = obstore.get(store, path, options={"range": (size - needed, size)}).bytes()
        return OpenFile(pa.BufferReader(pa.py_buffer(body)), size)


def ranges(location: Location, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """Byte ranges of an object, each by start and length; neighbours share a request.

    Ranges that reach beyond the end are cut there. Raises FileNotFoundError, OSError.
    """
    store = objects.store_of(location)
    first, end = min(start for start, _ in spans), max(start + length for start, length in spans)
    # Not get_ranges, which panics where a range begins behind the end of the object.
    with objects.as_os_error():
        if end - first <= _NEAR_BYTES:
            body = _range(store, path, (first, end))
            return [body[start - first :][:length] for start, length in spans]
        return [_range(store, path, (start, start + length)) for start, length in spans]


def _range(store: S3Store, path: str, span: tuple[int, int]) -> bytes:
    """The bytes from a start to an end."""
    if span[0] == span[1]:
        return b""
    return bytes(obstore.get(store, path, options={"range": span}).bytes())


def local_directory() -> str | None:
    """The directory for temporary files of a Spark task; None for the system's."""
    found = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return found if os.path.isdir(found) else None  # noqa: PTH112 - False where denied


def _footer_bytes(body: Bytes) -> int:
    """The bytes that the footer takes, by the end of the file; 0 for what is no Parquet file."""
    end = bytes(memoryview(body)[-_END_BYTES:])
    return int.from_bytes(end[:4], "little") + _END_BYTES if end[4:] in _MAGICS else 0


def copy(location: Location, path: str, target: str) -> int:
    """Copy an object to a local file, by parallel requests; returns its size in bytes.

    Raises FileNotFoundError, OSError.
    """
    with objects.as_os_error():
        return _copied(objects.store_of(location), path, target)


def _copied(store: S3Store, path: str, target: str) -> int:
    first = obstore.get(store, path, options={"range": (0, _RANGE_BYTES)})
    size, tag = first.meta["size"], first.meta["e_tag"]
    with open(target, "wb") as file:  # noqa: PTH123 - a name, not a Path
        file.write(first.bytes())

    def part(start: int) -> None:
        wanted: GetOptions = {"range": (start, min(start + _RANGE_BYTES, size))}
        if tag is not None:  # another object of that name would be mixed with this one
            wanted["if_match"] = tag
        body = obstore.get(store, path, options=wanted).bytes()
        with open(target, "r+b") as file:  # noqa: PTH123 - a name, not a Path
            file.seek(start)
            file.write(body)

    with ThreadPoolExecutor(_RANGES_AT_ONCE) as threads:
        list(threads.map(part, range(_RANGE_BYTES, size, _RANGE_BYTES)))
    return size


def _on_disk(store: S3Store, path: str) -> OpenFile:
    """An object as an unnamed temporary file: the open file outlives its name."""
    with tempfile.NamedTemporaryFile(prefix="maint_assets_", dir=local_directory()) as whole:
        size = _copied(store, path, whole.name)
        return OpenFile(pa.OSFile(whole.name), size)
