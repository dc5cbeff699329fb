"""The commits of a log as files: their lines, and by what one is told from another of its version.

A commit without any action is what a power loss leaves of one. Read as an empty commit, all that
it added would look like files that nobody needs.
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
    """The path of a published commit below the table root."""
    return f"{LOG}/{commit_name(version)}"


def commit_lines(location: Location, path: str) -> Iterator[bytes]:
    """The non-blank lines of a commit. Raises OSError, and CorruptLogError where none is an action.

    Delta takes such a commit for an empty one.
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
    """A digest of the commit of a version: a log that was put back may use its number again.

    What is no file is not opened: a pipe has no end. Raises LogGapError and CorruptLogError.
    """
    name = commit_name(version)
    _refuse_no_file(location, commit_path(version))
    try:
        return read.digest(location, commit_path(version))
    except FileNotFoundError as error:
        raise LogGapError(location.uri, f"{name} vanished", "run again") from error
    except OSError as error:
        found = f"{name} cannot be read ({one_line(error)})"
        raise CorruptLogError(location.uri, found, "allow reading it") from error


def is_commit(location: Location, version: int, mark: str) -> bool | None:
    """Whether the commit of a version is the one of that mark; None where it is gone."""
    try:
        return commit_mark(location, version) == mark
    except (LogGapError, CorruptLogError):
        return None


def refuse_other_commit(location: Location, version: int, mark: str) -> None:
    """StalePlanError where the commit that a plan was made from is gone, or another one now.

    A backup of the log may have been put back, and other commits have been written since.
    """
    if not is_commit(location, version, mark):
        raise StalePlanError(
            location.uri,
            f"{commit_name(version)} is not the commit that was planned on, or is gone",
            "plan again",
        )


def _refuse_no_file(location: Location, path: str) -> None:
    if not read.is_file(location, path) and read.exists(location, path):
        name = path.rpartition("/")[2]
        raise CorruptLogError(location.uri, f"{name} is no file", "restore it from a backup")
