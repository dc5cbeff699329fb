"""Everything that changes storage: atomic put-if-absent, deletion with outcomes, probe files.

An import contract (setup.cfg) lets only the commit path and executing modules import this one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import shutil
import tempfile
import time
import uuid
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore

from maint_assets.errors import GuardError, StorageError, one_line
from maint_assets.storage import object_files, object_writes, objects, read
from maint_assets.storage.deletions import (
    CHANGED,
    DELETED,
    MADE_AGAIN,
    MISSING,
    NOT_OF_LOG,
    OF_LOG,
    UNNAMED,
    Deletion,
    PlannedFile,
)
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from obstore.store import S3Store

MAX_CLOCK_SKEW_MS = 5 * 60_000

CONFLICTS = 5
"""Attempts of a put that the store rejects as a conflict although no object exists."""

_KEPT_BECAUSE = {
    errno.ENOTEMPTY: "not empty",
    errno.ENOTDIR: "not a directory",
    errno.EBUSY: "a mount point",
}
_LOG = "_delta_log"
_LOG_NAME = re.compile(r"[0-9]{20}\.(json$|crc$|checkpoint\.|[0-9]{20}\.compacted\.)")
_COPIED_BYTES = 1024 * 1024
_PAUSE_S = 0.05


def put_if_absent(location: Location, path: str, body: bytes | memoryview) -> bool:
    """Atomic put-if-absent: True if the file now exists with this body, False if another one does.

    ``body`` must be unique. A store may report a conflict with our own write whose response was
    lost, or a conflict although nothing was stored, so after one the file is read back and
    compared. After an OSError the file may exist, or appear later.
    """
    if location.is_local:
        target = location.file(path)
        if not target.exists():
            remove_hadoop_checksum(target)
    for number in range(CONFLICTS):
        if _made(location, path, body):
            return True
        found = _stored(location, path)
        if found is not None:
            return found == body
        time.sleep(_PAUSE_S * 2**number)
    raise FileNotFoundError(f"{path} was reported to exist already, but is absent")


def replace_object(location: Location, path: str, body: bytes) -> None:
    """Put an object of a store in place of any object of that name. Raises OSError."""
    with objects.as_os_error():
        obstore.put(objects.store_of(location), path, body)


def refuse_ignored_conditions(location: Location, directory: str) -> None:
    """Raise GuardError if the store overwrites what a put-if-absent must not, as some do.

    It would lose other writers' commits. Puts two objects of one name and removes them.
    """
    path = f"{directory}/.maint_assets_probe.{uuid.uuid4()}.tmp"
    bodies = [uuid.uuid4().bytes, uuid.uuid4().bytes]
    try:
        won = [_made(location, path, body) for body in bodies]
        found = _stored(location, path)
        with objects.as_os_error():
            obstore.delete(_store(location), path)
    except OSError as error:
        with contextlib.suppress(BaseError, FileNotFoundError):
            obstore.delete(_store(location), path)
        why = f"a put-if-absent of it fails ({error})"
        raise GuardError(location.uri, why, "allow s3:PutObject and s3:DeleteObject") from error
    if won != [True, False] or found != bodies[0]:
        raise GuardError(
            location.uri,
            "its store ignores the condition of a put-if-absent, which overwrites other commits",
            "leave out storage.commit: then nothing is committed",
        )


def remove_hadoop_checksum(target: pathlib.Path) -> None:
    """Remove the ``.crc`` file that Hadoop's local file system keeps beside a file.

    It belongs to former content: Delta would report a new file of that name as corrupt.
    """
    target.with_name(f".{target.name}.crc").unlink(missing_ok=True)


def refuse_full(location: Location, size: int) -> None:
    """Raise StorageError if a directory (made if missing) has no room for ``size`` more bytes."""
    probe = location.file(f".maint_assets_room.{uuid.uuid4()}.tmp")
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        with probe.open("xb") as file:
            file.write(bytes(size))
    except OSError as error:
        raise StorageError(
            location.uri,
            f"cannot be written ({error.strerror or one_line(error)})",
            "make room, or allow writing",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def delete_file(location: Location, path: str, *, size: int, modified_ms: int) -> Deletion:
    """Delete one file if its size and mtime are as planned, and verify that it is gone.

    Skipped: files of a Delta log (only ``delete_log_file`` deletes those), anything that is not a
    regular file, and files whose size or mtime has changed.
    """
    if _is_of_log(path):
        return OF_LOG
    return _deleted(location, path, size=size, modified_ms=modified_ms)


def delete_objects(
    location: Location, files: Sequence[PlannedFile], *, stop: Callable[[], bool]
) -> list[Deletion]:
    """``delete_file`` for many objects of a store at once; outcomes in the order of ``files``.

    ``stop`` ends waiting for a store that asks to slow down.
    """
    kept = {each.path: OF_LOG for each in files if _is_of_log(each.path)}
    return _deleted_objects(location, files, kept=kept, stop=stop)


def delete_log_file(location: Location, path: str, *, size: int, modified_ms: int) -> Deletion:
    """``delete_file`` for files below ``_delta_log``, for log cleanup only; others are skipped."""
    if not path.startswith(f"{_LOG}/"):
        return NOT_OF_LOG
    return _deleted(location, path, size=size, modified_ms=modified_ms)


def delete_log_objects(
    location: Location, files: Sequence[PlannedFile], *, stop: Callable[[], bool]
) -> list[Deletion]:
    """``delete_log_file`` for many objects of a store; outcomes in the order of ``files``."""
    kept = {each.path: NOT_OF_LOG for each in files if not each.path.startswith(f"{_LOG}/")}
    return _deleted_objects(location, files, kept=kept, stop=stop)


def _deleted_objects(
    location: Location,
    files: Sequence[PlannedFile],
    *,
    kept: dict[str, Deletion],
    stop: Callable[[], bool],
) -> list[Deletion]:
    """Delete the objects that are not ``kept`` and that requests can name."""
    unnamed = {each.path: UNNAMED for each in files if not read.is_named(each.path)}
    outcomes = kept | unnamed
    wanted = [each for each in files if each.path not in outcomes]
    done = object_writes.delete_objects(location, wanted, stop=stop)
    outcomes |= zip((each.path for each in wanted), done, strict=True)
    return [outcomes[each.path] for each in files]


def _is_of_log(path: str) -> bool:
    """Whether a path is or lies below a ``_delta_log``, or is named like a file of one.

    Ignores case, as some file systems do.
    """
    folded = path.casefold()
    name = folded[folded.rfind("/") + 1 :]
    is_below = _LOG in folded and _LOG in folded.split("/")
    return is_below or _LOG_NAME.match(name) is not None


def _deleted(location: Location, path: str, *, size: int, modified_ms: int) -> Deletion:
    target = f"{location.path}/{path}"
    try:
        found = read.size_and_mtime(location, path)
        if found is not None and (found[0] < 0 or found != (size, modified_ms)):
            return CHANGED
        os.unlink(target)  # noqa: PTH108 - a Path a file costs more than the deletion
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        return Deletion("failed", f"{type(error).__name__}: {error.strerror}")
    if os.access(target, os.F_OK):
        return MADE_AGAIN
    return DELETED


def delete_directory(location: Location, path: str) -> Deletion:
    """Delete one empty directory.

    Skipped: directories that are not empty, Delta logs, and anything that is not a directory.
    """
    if _is_of_log(path):
        return OF_LOG
    target = f"{location.path}/{path}"
    try:
        pathlib.Path(target).rmdir()
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        if error.errno in _KEPT_BECAUSE:
            return Deletion("skipped", _KEPT_BECAUSE[error.errno])
        return Deletion("failed", f"{type(error).__name__}: {error.strerror}")
    return DELETED


def refuse_clock_skew(location: Location, directory: str, *, now_ms: int) -> None:
    """Raise GuardError if the storage's clock differs from ours: file ages would be meaningless."""
    try:
        skew_ms = storage_clock_ms(location, directory) - now_ms
    except OSError as error:
        found = f"its storage cannot be written ({error.strerror or one_line(error)})"
        raise GuardError(location.uri, found, "allow writing") from error
    if abs(skew_ms) > MAX_CLOCK_SKEW_MS:
        raise GuardError(
            location.uri,
            f"the storage's clock and this machine's differ by {abs(skew_ms) / 1000:.0f} s",
            "correct the clocks, or set allow_clock_skew",
        )


def storage_clock_ms(location: Location, directory: str) -> int:
    """The storage's clock in ms: the mtime of a probe file, which is removed at once."""
    path = f"{directory}/.maint_assets_clock.{uuid.uuid4()}.tmp"
    if not location.is_local:
        return object_writes.clock_ms(location, path)
    probe = location.file(path)
    with probe.open("xb"):
        found = probe.lstat().st_mtime_ns // 1_000_000
    probe.unlink()
    return found


@contextlib.contextmanager
def new_file(location: Location, path: str) -> Generator[pa.NativeFile, None, None]:
    """Create a new file for writing; it is removed if writing fails."""
    target = location.file(path)
    with parent_of(location, path):
        target.touch(exist_ok=False)
        try:
            # Arrow's own file: with Python's, Arrow copies every buffer while holding the GIL.
            with pa.OSFile(str(target), "wb") as file:
                yield file
        except BaseException:
            target.unlink()
            raise


@contextlib.contextmanager
def parent_of(location: Location, path: str) -> Generator[None, None, None]:
    """Context with the directory of a new file; if it is made here, and empty at the end, removed.

    Column mapping gives each new file a random directory.
    """
    parent = location.file(path).parent
    is_new = not parent.exists()
    parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                parent.rmdir()


@contextlib.contextmanager
def draft_directory(location: Location) -> Generator[Location, None, None]:
    """Context with the local directory in which new files of a table are written.

    The table's own, or for a store a temporary one, from which ``publish`` uploads.
    """
    if location.is_local:
        yield location
        return
    local = object_files.local_directory()
    with tempfile.TemporaryDirectory(prefix="maint_assets_", dir=local) as directory:
        yield Location(directory)


def publish(draft: Location, location: Location, path: str) -> None:
    """Put a file that is complete in its ``draft_directory`` into the table."""
    if draft != location:
        put_file(location, path, draft.file(path))


def put_file(location: Location, path: str, source: pathlib.Path) -> None:
    """Copy a file to a unique path atomically: it appears complete or not at all.

    The temporary name is not hidden, so VACUUM removes what a killed process leaves.
    """
    if not location.is_local:
        object_writes.put_file(location, path, source)
        return
    target = location.file(path)
    staged = target.with_name(f"{target.name}.part")
    with parent_of(location, path):
        try:
            with source.open("rb") as whole, staged.open("xb") as file:
                shutil.copyfileobj(whole, file, _COPIED_BYTES)
            staged.rename(target)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise


def remove_files(location: Location, paths: Sequence[str]) -> None:
    """Remove new files that nothing names: no commit of theirs succeeded. Raises OSError.

    Removes their directories, too, if they are empty then.
    """
    found = zip(paths, read.sizes_and_mtimes(location, paths), strict=True)
    there = [PlannedFile(path, *each) for path, each in found if each is not None]
    if not location.is_local:
        delete_objects(location, there, stop=lambda: False)
        return
    for path, size, modified_ms in there:
        delete_file(location, path, size=size, modified_ms=modified_ms)
    for directory in {path.rpartition("/")[0] for path in paths} - {""}:
        delete_directory(location, directory)


def _made(location: Location, path: str, body: bytes | memoryview) -> bool:
    """One attempt of ``put_if_absent``: False if the store reports that the name is taken."""
    try:
        with objects.as_os_error():
            try:
                obstore.put(_store(location), path, body, mode="create")
            except AlreadyExistsError:
                return False
    except OSError:
        with contextlib.suppress(OSError):
            if _stored(location, path) == body:
                return True
        raise
    return True


def _store(location: Location) -> LocalStore | S3Store:
    return LocalStore(location.path) if location.is_local else objects.store_of(location)


def _stored(location: Location, path: str) -> bytes | None:
    """The content of a file; None if it does not exist."""
    try:
        return read.content(location, path)
    except FileNotFoundError:
        return None
