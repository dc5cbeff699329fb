"""How whole files come into a log: never seen in part, never over another one, or in its place."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from maint_assets.storage.write import forget_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from maint_assets.storage.location import Location


def put_file_if_absent(
    location: Location, path: str, source: Path, *, check: Callable[[Path], None]
) -> bool:
    """Whether a copy of a local file was put there; False when that name was taken.

    ``check`` is given the copy before it has its name, and stops everything by an error.
    """
    target = location.file(path)
    with _beside(target) as copy:
        shutil.copyfile(source, copy)
        _synced(copy)
        check(copy)
        if not target.exists():
            forget_sum(target)
        return _linked(copy, target)


def replace(location: Location, path: str, body: bytes) -> None:
    """Puts a small file in the place of another one, or of none."""
    target = location.file(path)
    with _beside(target) as copy:
        copy.write_bytes(body)
        _synced(copy)
        forget_sum(target)
        copy.replace(target)


def _linked(copy: Path, target: Path) -> bool:
    """Whether a name is that of the copy now; False when it is that of another file.

    A network file system that lost its first answer finds our own link, so that is looked for.
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
            raise FileNotFoundError(f"{target} is said to be there, but is not there") from error
        return False
    return True


def _file_id(path: Path) -> tuple[int, int] | None:
    """By what a file is known under all its names; None without one."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _beside(target: Path) -> Generator[Path, None, None]:
    """A new name in the same directory, made if need be; nothing has it afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _synced(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
