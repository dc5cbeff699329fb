"""S3 implementation of ``storage.write``: bulk deletion, uploads, and the clock of the store."""

from __future__ import annotations

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError

from maint_assets.storage import objects
from maint_assets.storage.deletions import CHANGED, DELETED, MISSING, Deletion

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Sequence

    from maint_assets.storage.deletions import PlannedFile
    from maint_assets.storage.location import Location

REQUEST_KEYS = 1_000
"""Keys that one request of S3 deletes, at most."""

NAMED_FAILURES = 10
"""Failed keys after which the rest of a request is deleted one by one."""

SLOW_SECONDS = 300.0
"""How long a request is retried while the store throttles or is unreachable."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_SLOW = re.compile(r"status code: (?:429|503)|SlowDown|TooManyRequests")
_BUSY = re.compile(rf"{_SLOW.pattern}|status code: 5\d\d|InternalError|error sending request")
_DENIED = re.compile(r"AccessDenied|status code: 40[13]")


def clock_ms(location: Location, path: str) -> int:
    """The clock of the store in ms, in whole seconds on most: the mtime of a probe object.

    Raises OSError.
    """
    store = objects.store_of(location)
    with objects.as_os_error():
        obstore.put(store, path, b"clock")
        try:
            found = obstore.head(store, path)
        finally:
            obstore.delete(store, path)
    return int(found["last_modified"].timestamp() * 1000)


def put_file(location: Location, path: str, source: pathlib.Path) -> None:
    """Upload a local file under a new name; on an error the object is removed again.

    Large files are uploaded in parts. Raises OSError.
    """
    store, size = objects.store_of(location), source.stat().st_size
    try:
        with objects.as_os_error():
            obstore.put(store, path, source)
            _refuse_other_size(path, size, found=obstore.head(store, path)["size"])
    except BaseException:
        with contextlib.suppress(BaseError, FileNotFoundError):
            obstore.delete(store, path)
        raise


def delete_objects(
    location: Location, files: Sequence[PlannedFile], *, stop: Callable[[], bool]
) -> list[Deletion]:
    """Delete objects if size and mtime are as planned; outcomes in the order of ``files``.

    ``missing``: absent before the request. ``deleted``: present before it, absent after it.
    ``stop`` ends waiting for a busy store. Raises OSError if a look fails before the deletion.
    """
    paths = [each.path for each in files]
    there = objects.sizes_and_mtimes(location, paths)
    outcomes: dict[str, Deletion] = {}
    for each, found in zip(files, there, strict=True):
        if found is None:
            outcomes[each.path] = MISSING
        elif not _is_same(each, found):
            outcomes[each.path] = CHANGED
    wanted = [path for path in paths if path not in outcomes]
    failed: dict[str, str] = {}
    for first in range(0, len(wanted), REQUEST_KEYS):
        failed |= _deleted(location, wanted[first : first + REQUEST_KEYS], stop=stop)
    outcomes |= _verified(location, wanted, failed)
    return [outcomes[path] for path in paths]


def _refuse_other_size(path: str, sent: int, *, found: int) -> None:
    if found != sent:
        raise OSError(f"{path} has {found} bytes in the store, but {sent} were sent")


def _is_same(planned: PlannedFile, found: tuple[int, int]) -> bool:
    """Whether an object is the planned one; lists give ms, looks at one object whole seconds."""
    return (planned.size, planned.modified_ms // 1000) == (found[0], found[1] // 1000)


def _verified(
    location: Location, paths: Sequence[str], failed: dict[str, str]
) -> dict[str, Deletion]:
    """Outcomes by a check after the deletion; by the store's responses if that check fails."""
    try:
        there = objects.sizes_and_mtimes(location, paths)
    except OSError as error:
        unknown = f"whether it is gone cannot be seen ({error})"
        return {path: Deletion("failed", failed.get(path, unknown)) for path in paths}
    kept = "still there although the store confirmed its deletion"
    return {
        path: DELETED if found is None else Deletion("failed", failed.get(path, kept))
        for path, found in zip(paths, there, strict=True)
    }


def _deleted(
    location: Location, paths: Sequence[str], *, stop: Callable[[], bool]
) -> dict[str, str]:
    """Delete objects in bulk requests; returns the reason of each failure by path."""
    store, rest = objects.store_of(location), list(paths)
    failed: dict[str, str] = {}
    pause_s, until = _FIRST_PAUSE_S, time.monotonic() + SLOW_SECONDS
    while rest:
        try:
            obstore.delete(store, rest)
        except FileNotFoundError:  # a store without requests for many keys: one was gone
            break
        except BaseError as error:
            why = objects.reason(error)
            named = _named(location, why, rest)
            if named is not None and len(failed) < NAMED_FAILURES:
                failed[named] = _words(why)
                rest.remove(named)
            elif named is not None or not _is_busy(why):
                break
            elif stop() or time.monotonic() + pause_s > until:
                return failed | dict.fromkeys(rest, _words(why))
            else:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            return failed
    return failed | _deleted_singly(location, rest)


def _deleted_singly(location: Location, paths: Sequence[str]) -> dict[str, str]:
    store = objects.store_of(location)

    def delete(path: str) -> str | None:
        try:
            obstore.delete(store, path)
        except FileNotFoundError:
            return None
        except (BaseError, ValueError) as error:
            return _words(objects.reason(error))
        return None

    with ThreadPoolExecutor(objects.THREADS) as threads:
        found = zip(paths, threads.map(delete, paths), strict=True)
        return {path: why for path, why in found if why is not None}


def _named(location: Location, why: str, paths: Sequence[str]) -> str | None:
    """The key that an error names: of a request for many keys it is the first that failed."""
    prefix = location.uri.split("/", 3)[3]
    for key in (lambda path: f"{prefix}/{path}", lambda path: path):
        if (found := next((p for p in paths if f" key {key(p)}: " in why), None)) is not None:
            return found
    return None


def _is_busy(why: str) -> bool:
    return _BUSY.search(why) is not None


def _words(why: str) -> str:
    """The store's error message, prefixed with an explanation where it has a known cause."""
    if _DENIED.search(why):
        return f"protected by a lock of the store, or not allowed: {why}"
    if _SLOW.search(why):
        return f"the store asks to slow down: {why}"
    return why
