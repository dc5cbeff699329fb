"""The versions of a table that can be reconstructed from the files of a log."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from maint_assets.errors import CorruptLogError, LogGapError
from maint_assets.log_cleanup.checkpoints.sidecars import sidecar_paths

if TYPE_CHECKING:
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location

    Runs = list[tuple[int, int]]


def readable_versions(log: LogDirectory) -> Runs:
    """The readable versions as (first, last) of each run, ascending.

    Within consecutive commits, versions are readable from 0 or from the oldest version whose
    checkpoints can all be opened (readers take different ones), up to the next missing commit.
    """
    versions = np.union1d(log.commit_versions, np.array(log.linked_commits, np.int64))
    found: Runs = []
    for run in np.split(versions, np.flatnonzero(np.diff(versions) != 1) + 1):
        first = _first_readable(log, int(run[0]), int(run[-1])) if run.size else None
        if first is not None:
            found.append((first, int(run[-1])))
    return found


def earliest_readable(log: LogDirectory) -> int | None:
    """The first version from which all versions up to the newest are readable, or None."""
    newest = max([int(log.commit_versions.max(initial=-1)), *log.linked_commits])
    return next((first for first, last in readable_versions(log) if last == newest), None)


def missing_versions(before: Runs, after: Runs) -> Runs:
    """The versions in ``before`` that are not in ``after``, as runs."""
    known, left = (
        np.concatenate([np.arange(first, last + 1) for first, last in [*runs, (0, -1)]])
        for runs in (before, after)
    )
    missing = np.setdiff1d(known, left)
    runs = np.split(missing, np.flatnonzero(np.diff(missing) != 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs if run.size]


def _first_readable(log: LogDirectory, first: int, last: int) -> int | None:
    if first == 0:
        return 0
    inside = (each for each in reversed(log.checkpoints) if first <= each.version <= last)
    versions = groupby(inside, key=lambda each: each.version)
    return next(
        (version for version, some in versions if all(_opens(log.location, e) for e in some)), None
    )


def _opens(location: Location, checkpoint: Checkpoint) -> bool:
    """Whether the files of a checkpoint can be opened and all its sidecars exist."""
    try:
        sidecar_paths(location, checkpoint.entries)
    except (CorruptLogError, LogGapError):
        return False
    return True
