"""Whether a checkpoint may be the anchor: opened, and compared with what the commits make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.errors import CorruptLogError, LogGapError
from maint_assets.log_cleanup.anchor import opened
from maint_assets.log_cleanup.content import Content, LiveFiles
from maint_assets.log_cleanup.replayed import replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import Checkpoint

_EXPIRES = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True)
class Soundness:
    """Why a checkpoint cannot be the anchor; else, why its content was not compared, if so."""

    fault: str | None = None
    note: str | None = None


def soundness(log: LogDirectory, checkpoint: Checkpoint) -> Soundness:
    """Whether a complete checkpoint of a log can be the first thing of it.

    It is opened, and its content compared with that of the next older sound checkpoint, or of
    none, after the commits since: where one of these is missing nobody knows.
    """
    try:
        found = opened(log.location, checkpoint)
    except (CorruptLogError, LogGapError) as error:
        return Soundness(fault=error.found)
    version, why = checkpoint.version, "commits before it are gone"
    for older in _older(log, version):
        first = 0 if older is None else older.version + 1
        try:
            commits = replayed(log.location, log.commits_between(first, version))
        except (CorruptLogError, LogGapError) as error:
            why = error.found
            break
        try:
            base = _EMPTY if older is None else opened(log.location, older, commits.keys)
        except (CorruptLogError, LogGapError):
            continue
        wrong = _difference(found, commits.after(base))
        since = "the commits" if older is None else f"checkpoint {older.version} and the commits"
        told = wrong and f"checkpoint {version} is not what {since} up to it make: {wrong}"
        return Soundness(fault=told)
    what = f"the content of checkpoint {version} was not compared with that of commits"
    return Soundness(note=f"{what} ({why}): it was read and counted")


_EMPTY = Content(LiveFiles(), {})


def _older(log: LogDirectory, version: int) -> Iterator[Checkpoint | None]:
    """The checkpoints from which all commits up to a version are there, newest first.

    None at the end stands for the beginning of the table.
    """
    for checkpoint in log.checkpoints:
        if checkpoint.version < version:
            if not log.has_commits(checkpoint.version + 1, version):
                return
            yield checkpoint
    if log.has_commits(0, version):
        yield None


def _difference(found: Content, made: Content) -> str | None:
    """What is other in a checkpoint; None where it is what the commits make of an older one."""
    if found.files.count != made.files.count:
        return f"{found.files.count} live files, not {made.files.count}"
    if found.files != made.files:
        return "other live files"
    for kind, name in sorted(found.others.keys() | made.others.keys()):
        both = found.others.get((kind, name)), made.others.get((kind, name))
        # Writers leave out what has expired by the time at which they write.
        if both[0] != both[1] and not (None in both and kind == "txn" and _expire(found)):
            return f"another {kind} {name}".rstrip()
    return None


def _expire(found: Content) -> bool:
    """Whether a version lets applications expire."""
    metadata = found.others["metaData", ""]
    return isinstance(metadata, tuple) and _EXPIRES in metadata[-1]
