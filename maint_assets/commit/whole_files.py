"""Put whole files into a log: no reader ever sees a partial one.

On a disk a file is written and synced under a temporary name, then linked (put-if-absent) or
renamed (replace) to its own. A store shows an object when its upload is complete.
"""

from __future__ import annotations

import mmap
import os
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from maint_assets.storage.write import put_if_absent, remove_hadoop_checksum, replace_object

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from maint_assets.storage.location import Location


def put_file_if_absent(
    location: Location, path: str, source: Path, *, check: Callable[[Path], None]
) -> bool:
    """Copy a local file to ``path`` below the table; False if that name was taken.

    ``check`` gets the synced copy before it has its name, or the file itself before its upload; an
    error it raises leaves no file. ``source`` must be unlike any other file.
    """
    if not location.is_local:
        check(source)
        return put_if_absent(location, path, _mapped(source))
    target = location.file(path)
    with _temporary_file(target) as copy:
        shutil.copyfile(source, copy)
        _synced(copy)
        check(copy)
        if not target.exists():
            remove_hadoop_checksum(target)
        return _link(copy, target)


def replace_file(location: Location, path: str, body: bytes) -> None:
    """Write a small file atomically, in place of any file of that name."""
    if not location.is_local:
        replace_object(location, path, body)
        return
    target = location.file(path)
    with _temporary_file(target) as copy:
        copy.write_bytes(body)
        _synced(copy)
        remove_hadoop_checksum(target)
        copy.replace(target)


def _mapped(source: Path) -> memoryview:
    """The bytes of a local file that is not empty, without reading them into memory."""
    with source.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _link(copy: Path, target: Path) -> bool:
    """Link the copy to its name; False if another file has it.

    NFS repeats a request whose answer was lost, and then reports that the name exists although
    the link is ours. So the inode decides, not the error.
    """
    try:
        os.link(copy, target)
    except OSError as error:
        found = _file_id(target)
        if found == _file_id(copy):
            return True
        if not isinstance(error, FileExistsError):
            raise
        if found is None:
            raise FileNotFoundError(f"{target} was reported to exist, but is absent") from error
        return False
    return True


def _file_id(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, which all its hard links share; None if it is absent."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _temporary_file(target: Path) -> Generator[Path, None, None]:
    """A temporary name in the target's directory; removed on exit."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _synced(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
