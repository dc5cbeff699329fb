"""S3 implementation of ``storage.read``, below the prefix of a bucket.

There are no directories and no links. Times are those of the store, in whole seconds on most.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, InvalidPathError
from obstore.store import S3Store

from maint_assets.errors import StorageError
from maint_assets.storage.ahead import Ahead
from maint_assets.storage.entries import Entries, FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config

    from maint_assets.storage.location import Location

THREADS = 32
"""Requests for small things at once, in one task."""

PAGE_KEYS = 1_000
FEW_PATHS = 32
"""A page that holds fewer of the wanted paths costs more than a look at each."""

_EXPECTED: dict[tuple[Location, str], Ahead[str, bytes]] = {}
"""The objects that somebody in this process reads next."""

_CHUNK_BYTES = 8 * 1024 * 1024
_FILE, _PREFIX = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755
NEVER_OLD = 2**62
"""The time of a prefix, which is no directory that could be deleted."""


@lru_cache(maxsize=64)
def store_of(location: Location) -> S3Store:
    """The store below ``s3://bucket/prefix``, by its options and the environment.

    Raises StorageError if an environment variable that its options name is not set.
    """
    options = location.options
    config: S3Config = {**_credentials(location)}
    if options.endpoint is not None:
        config["endpoint"] = options.endpoint
    if options.region is not None:
        config["region"] = options.region
    if options.path_style is not None:
        config["virtual_hosted_style_request"] = not options.path_style
    if options.requester_pays:
        config["request_payer"] = True
    if options.encryption is not None:
        config["server_side_encryption"] = options.encryption
    if options.kms_key_id is not None:
        config["sse_kms_key_id"] = options.kms_key_id
    is_plain = options.endpoint is not None and options.endpoint.startswith("http:")
    client: ClientConfig | None = {"allow_http": True} if is_plain else None
    # Not from_url, which decodes escapes and cuts at a # or ?: a Delta URI is taken literally.
    bucket, _, prefix = location.uri.removeprefix("s3://").partition("/")
    return S3Store(bucket, prefix=prefix, config=config, client_options=client)


def _credentials(location: Location) -> S3Config:
    """The access key from the named environment variables; empty for that of the environment.

    A session token is always set with a key: obstore would add one of the environment to it.
    """
    options = location.options
    if options.anonymous:
        return {"skip_signature": True}
    if options.access_key_id is None or options.secret_access_key is None:
        return {}
    names = (options.access_key_id, options.secret_access_key, options.session_token)
    key, secret, token = ("" if name is None else _variable(location, name) for name in names)
    return {"access_key_id": key, "secret_access_key": secret, "session_token": token}


def _variable(location: Location, name: str) -> str:
    if name not in os.environ:
        found = f"the environment variable {name}, which storage.credentials names, is not set"
        raise StorageError(location.uri, found, "set it on the driver and on each executor")
    return os.environ[name]


def files(location: Location, directory: str, *, first: str | None = None) -> list[FileEntry]:
    """The objects directly below a prefix, sorted by name; empty if there are none."""
    with _readable(location, directory):
        listed = obstore.list_with_delimiter(store_of(location), f"{directory}/")["objects"]
    found = (FileEntry(_name(each), each["size"], _ms(each)) for each in listed)
    wanted = (each for each in found if first is None or each.name >= first)
    return sorted(wanted, key=lambda entry: entry.name)


def content(location: Location, path: str) -> bytes:
    """The bytes of a small object. Raises FileNotFoundError."""
    with as_os_error():
        return bytes(obstore.get(store_of(location), path).bytes())


@contextmanager
def reading(location: Location, files: Iterable[tuple[str, int]]) -> Generator[None, None, None]:
    """Context in which ``chunks`` of small objects come ahead; ``files`` are paths and sizes."""
    small = [(path, size) for path, size in files if size <= _CHUNK_BYTES]
    ahead = Ahead[str, bytes](partial(content, location), files=THREADS)
    ahead.expect(small)
    expected = dict.fromkeys(((location, path) for path, _ in small), ahead)
    _EXPECTED.update(expected)
    try:
        yield
    finally:
        for key in expected:
            if _EXPECTED.get(key) is ahead:
                del _EXPECTED[key]


def chunks(location: Location, path: str) -> Iterator[bytes]:
    """Iterate over an object's bytes in chunks. Raises FileNotFoundError."""
    ahead = _EXPECTED.pop((location, path), None)
    if ahead is not None:
        yield ahead.take(path)
        return
    with as_os_error():
        for chunk in obstore.get(store_of(location), path).stream(min_chunk_size=_CHUNK_BYTES):
            yield bytes(chunk)


def exists(location: Location, path: str) -> bool:
    """Whether there is an object of that name, or one below it."""
    return is_file(location, path) or has_prefix(location, path)


def has_prefix(location: Location, path: str) -> bool:
    """Whether there are objects below a prefix."""
    with as_os_error():
        return any(obstore.list(store_of(location), f"{path}/", chunk_size=1))


def is_file(location: Location, path: str) -> bool:
    """Whether there is an object of that name."""
    return _head(location, path) is not None


def directory(
    location: Location, path: str, *, wanted: Callable[[str], bool] | None = None
) -> Iterator[Entries]:
    """The objects and prefixes directly below a prefix, filtered by name. Raises StorageError."""
    with _readable(location, path):
        listed = obstore.list_with_delimiter(
            store_of(location), f"{path.rstrip('/')}/" if path else ""
        )
    found = Entries([], [], [], [])
    for each in listed["common_prefixes"]:
        _append(found, (each.rstrip("/").rpartition("/")[2], _PREFIX, 0, NEVER_OLD), wanted)
    for each in _without_markers(location, path, listed["objects"]):
        _append(found, (_name(each), _FILE, each["size"], _ms(each)), wanted)
    yield found


def _without_markers(
    location: Location, prefix: str, listed: Sequence[ObjectMeta]
) -> list[ObjectMeta]:
    """The objects without markers of directories, which Hadoop's clients leave behind.

    A marker is an empty object whose key ends with a slash. obstore lists it without the slash,
    and finds no object of that name.
    """
    itself = prefix.rstrip("/")
    real = [each for each in listed if each["path"] != itself]
    empty = [each["path"] for each in real if not each["size"]]
    there = dict(zip(empty, looked_at(location, empty), strict=True))
    return [each for each in real if there.get(each["path"], (0, 0)) is not None]


def state(location: Location, path: str) -> tuple[int, ...] | None:
    """An object's change marker, None if it is gone: differs after any rewrite."""
    found = _head(location, path)
    return None if found is None else (found["size"], _ms(found), hash(found["e_tag"]))


def size_and_mtime(location: Location, path: str) -> tuple[int, int] | None:
    """Size in bytes and last modification in ms of an object; None if it does not exist."""
    found = _head(location, path)
    return None if found is None else (found["size"], _ms(found))


def sizes_and_mtimes(location: Location, paths: Sequence[str]) -> list[tuple[int, int] | None]:
    """Size in bytes and last modification in ms of many objects; None for those that do not exist.

    List while pages contain many of the paths; send a HEAD request for each other one. Raises
    OSError.
    """
    wanted = sorted(set(paths), key=str.encode)
    with as_os_error():
        found = _listed_among(store_of(location), wanted)
    rest = [path for path in wanted if path not in found]
    found |= zip(rest, looked_at(location, rest), strict=True)
    return [found[path] for path in paths]


def looked_at(location: Location, paths: Sequence[str]) -> list[tuple[int, int] | None]:
    """``size_and_mtime`` by one request for each path, many at once."""
    if not paths:
        return []
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(partial(size_and_mtime, location), paths))


def _listed_among(store: S3Store, wanted: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Size and mtime of sorted paths from listing pages, up to the first page with few of them.

    A page must be in order: some stores list in none.
    """
    found: dict[str, tuple[int, int] | None] = {}
    if len(wanted) < FEW_PATHS:
        return found
    seen, at = wanted[0].encode(), 1
    pages = obstore.list(store, offset=wanted[0], chunk_size=PAGE_KEYS)
    try:
        for page in pages:
            keys = [each["path"].encode() for each in page]
            if any(left >= right for left, right in zip([seen, *keys], keys, strict=False)):
                break
            there = {each["path"]: (each["size"], _ms(each)) for each in page}
            upto, seen = bisect_right(wanted, keys[-1], key=str.encode), keys[-1]
            found |= {path: there.get(path) for path in wanted[at:upto]}
            if upto == len(wanted) or upto - at < FEW_PATHS:
                break
            at = upto
        else:
            found |= dict.fromkeys(wanted[at:])
    except InvalidPathError:  # a key beside them that obstore cannot hold
        return found
    return found


@contextmanager
def as_os_error() -> Generator[None, None, None]:
    """Raise errors of obstore as OSError."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(reason(error)) from error
    except (BaseError, ValueError) as error:  # ValueError: a key that obstore cannot name
        raise OSError(reason(error)) from error


def reason(error: BaseException) -> str:
    """The text of an error of obstore in one line, without the structures that it dumps."""
    return " ".join(str(error).partition("\n\nDebug source:")[0].split())


def _head(location: Location, path: str) -> ObjectMeta | None:
    try:
        with as_os_error():
            return obstore.head(store_of(location), path)
    except FileNotFoundError:
        return None


@contextmanager
def _readable(location: Location, prefix: str) -> Generator[None, None, None]:
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        found = f"{prefix or 'it'} cannot be listed ({reason(error)})"
        raise StorageError(
            location.uri, found, "allow listing it, or check endpoint and region"
        ) from error


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
