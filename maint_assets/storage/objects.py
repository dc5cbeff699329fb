"""Reading object stores: what the doors of ``storage.read`` do below the prefix of a bucket.

There are no directories and no links. Times are those of the store, in whole seconds on most.
"""

from __future__ import annotations

import stat
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import S3Store

from maint_assets.errors import StorageError, one_line
from maint_assets.storage.entries import Entries, FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from obstore import ObjectMeta

_CHUNK_BYTES = 8 * 1024 * 1024
_FILE, _PREFIX = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755
_NEVER_OLD = 2**62
"""The time of a prefix, which is no directory that could be deleted."""


@lru_cache(maxsize=64)
def store_of(root: str) -> S3Store:
    """The store below ``s3://bucket/prefix``, by the AWS settings of the environment."""
    return S3Store.from_url(root)


def files(root: str, directory: str, *, first: str | None = None) -> list[FileEntry]:
    """The objects directly below a prefix, sorted by name; empty if there are none."""
    with _readable(root, directory):
        listed = obstore.list_with_delimiter(store_of(root), f"{directory}/")["objects"]
    found = (FileEntry(_name(each), each["size"], _ms(each)) for each in listed)
    wanted = (each for each in found if first is None or each.name >= first)
    return sorted(wanted, key=lambda entry: entry.name)


def content(root: str, path: str) -> bytes:
    """The bytes of a small object. Raises FileNotFoundError."""
    with as_os_error():
        return bytes(obstore.get(store_of(root), path).bytes())


def chunks(root: str, path: str) -> Iterator[bytes]:
    """Iterate over an object's bytes in chunks. Raises FileNotFoundError."""
    with as_os_error():
        for chunk in obstore.get(store_of(root), path).stream(min_chunk_size=_CHUNK_BYTES):
            yield bytes(chunk)


def parquet(root: str, path: str) -> pq.ParquetFile:
    """Open a Parquet object, read by one request. Raises FileNotFoundError."""
    return pq.ParquetFile(pa.BufferReader(content(root, path)))


def exists(root: str, path: str) -> bool:
    """Whether there is an object of that name, or one below it."""
    if is_file(root, path):
        return True
    with as_os_error():
        return any(obstore.list(store_of(root), f"{path}/", chunk_size=1))


def is_file(root: str, path: str) -> bool:
    """Whether there is an object of that name."""
    return _head(root, path) is not None


def directory(
    root: str, path: str, *, wanted: Callable[[str], bool] | None = None
) -> Iterator[Entries]:
    """The objects and prefixes directly below a prefix, filtered by name. Raises StorageError."""
    with _readable(root, path):
        listed = obstore.list_with_delimiter(store_of(root), f"{path.rstrip('/')}/" if path else "")
    found = Entries([], [], [], [])
    for each in listed["common_prefixes"]:
        _append(found, (each.rstrip("/").rpartition("/")[2], _PREFIX, 0, _NEVER_OLD), wanted)
    for each in listed["objects"]:
        _append(found, (_name(each), _FILE, each["size"], _ms(each)), wanted)
    yield found


def state(root: str, path: str) -> tuple[int, ...] | None:
    """An object's change marker, None if it is gone: differs after any rewrite."""
    found = _head(root, path)
    return None if found is None else (found["size"], _ms(found), hash(found["e_tag"]))


def size_and_mtime(root: str, path: str) -> tuple[int, int] | None:
    """Size in bytes and last modification in ms of an object; None if it does not exist."""
    found = _head(root, path)
    return None if found is None else (found["size"], _ms(found))


@contextmanager
def as_os_error() -> Generator[None, None, None]:
    """Raise errors of obstore as OSError."""
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(one_line(error)) from error
    except BaseError as error:
        raise OSError(one_line(error)) from error


def _head(root: str, path: str) -> ObjectMeta | None:
    try:
        with as_os_error():
            return obstore.head(store_of(root), path)
    except FileNotFoundError:
        return None


@contextmanager
def _readable(root: str, prefix: str) -> Generator[None, None, None]:
    try:
        yield
    except BaseError as error:
        found = f"{prefix or 'it'} cannot be listed ({one_line(error)})"
        raise StorageError(root, found, "allow listing it, or check endpoint and region") from error


def _name(found: ObjectMeta) -> str:
    return found["path"].rpartition("/")[2]


def _ms(found: ObjectMeta) -> int:
    return int(found["last_modified"].timestamp() * 1000)


def _append(
    found: Entries, row: tuple[str, int, int, int], wanted: Callable[[str], bool] | None
) -> None:
    if wanted is None or wanted(row[0]):
        for column, value in zip(found, row, strict=True):
            column.append(value)  # pyright: ignore[reportArgumentType]
