"""Commit files: their lines, and a digest that distinguishes commits of the same version.

A power loss may leave a commit file without any action. If it were read as an empty commit, the
files it added would look like orphans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.delta.actions import holds_action
from maint_assets.delta.names import commit_name
from maint_assets.errors import CorruptLogError, LogGapError, StalePlanError, one_line
from maint_assets.snapshot.log import LOG
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.storage.location import Location


def commit_path(version: int) -> str:
    """Path of a published commit below the table root."""
    return f"{LOG}/{commit_name(version)}"


def commit_lines(location: Location, path: str) -> Iterator[bytes]:
    """Non-blank lines of a commit. Raises OSError, and CorruptLogError if it has no action.

    delta-spark reads such a file as an empty commit.
    """
    is_sound = False
    for line in read.lines(location, path):
        if not is_sound:
            is_sound = holds_action(line)
        yield line
    if not is_sound:
        raise CorruptLogError(
            location.uri,
            f"{path.rpartition('/')[2]} is a commit without any action",
            "restore it from a backup or a replica; nothing is changed on a broken log",
        )


def commit_mark(location: Location, version: int) -> str:
    """Digest of the commit file of a version; a restored log may reuse the version number.

    Only regular files are opened, since reading a pipe would block. Raises LogGapError and
    CorruptLogError.
    """
    name = commit_name(version)
    if location.is_local:  # a store has objects only
        _refuse_no_file(location, commit_path(version))
    try:
        return read.digest(location, commit_path(version))
    except FileNotFoundError as error:
        raise LogGapError(
            location.uri, f"{name} vanished while it was read", "run again"
        ) from error
    except OSError as error:
        found = f"{name} cannot be read ({one_line(error)})"
        raise CorruptLogError(location.uri, found, "allow reading it") from error


def has_commit(location: Location, version: int, mark: str) -> bool | None:
    """Whether the commit still has that digest; None if it is gone."""
    try:
        return commit_mark(location, version) == mark
    except (LogGapError, CorruptLogError):
        return None


def refuse_other_commit(location: Location, version: int, mark: str) -> None:
    """Raise StalePlanError if the commit that a plan is based on is gone or has other content.

    That happens when a backup of the log is restored and other commits follow.
    """
    if not has_commit(location, version, mark):
        raise StalePlanError(
            location.uri,
            f"{commit_name(version)} is missing, or is not the commit that the plan is based on",
            "plan again",
        )


def _refuse_no_file(location: Location, path: str) -> None:
    if not read.is_file(location, path) and read.exists(location, path):
        name = path.rpartition("/")[2]
        raise CorruptLogError(location.uri, f"{name} is not a file", "restore it from a backup")
