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
        try:
            os.link(copy, target)
        except FileExistsError:
            return False
    return True


def replace(location: Location, path: str, body: bytes) -> None:
    """Puts a small file in the place of another one, or of none."""
    target = location.file(path)
    with _beside(target) as copy:
        copy.write_bytes(body)
        _synced(copy)
        forget_sum(target)
        copy.replace(target)


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
