"""Commit times: in-commit timestamps, or file modification times.

See PROTOCOL.md, "In-Commit Timestamps". Delta Spark's cleanup uses file times only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from maint_assets.log_cleanup.log_directory import log_entry
from maint_assets.snapshot.head import in_commit_ms, version_checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from maint_assets.log_cleanup.log_directory import LogDirectory, Versions


class InCommitTimes(msgspec.Struct, frozen=True):
    """The version and time from which commits have in-commit timestamps.

    ``enabled_ms`` None, without the enablement properties: all commits have them.
    """

    version: int = 0
    enabled_ms: int | None = None


class CommitTimes:
    """The times of the published commits of a log, in ms.

    With ``in_commit`` None they are file times, each made at least a millisecond later than the one
    before, as Delta does. The two kinds of times are never compared with each other. ``asked`` has
    the in-commit timestamps read so far, by version.
    """

    def __init__(self, log: LogDirectory, in_commit: InCommitTimes | None) -> None:
        self._log, self._in_commit = log, in_commit
        self.by_file = _monotonic(log.commits["modified_ms"].to_numpy())
        self.asked: dict[int, int] = {}

    @property
    def has_in_commit(self) -> bool:
        """Whether the table has in-commit timestamps."""
        return self._in_commit is not None

    def newest_until(self, cutoff_ms: int) -> int | None:
        """The newest version committed at or before a time; None when all are younger.

        Raises CorruptLogError for a commit without a required in-commit timestamp.
        """
        versions, in_commit = self._log.commit_versions, self._in_commit
        if in_commit is None:
            return _last(versions, self.by_file <= cutoff_ms)
        if in_commit.enabled_ms is not None and cutoff_ms < in_commit.enabled_ms:
            return _last(versions, (self.by_file <= cutoff_ms) & (versions < in_commit.version))
        first = int(np.searchsorted(versions, in_commit.version))
        low = self._search(cutoff_ms, first, time_of=self._recorded_ms)
        # Checksums are small, so they are read first. Only commits are authoritative: if a checksum
        # beside the boundary disagrees with its commit, the search is repeated on commits alone.
        if any(self._recorded_ms(at) != self._by_commit(at) for at in self._around(low, first)):
            self.asked.clear()
            low = self._search(cutoff_ms, first, time_of=self._by_commit)
        return int(versions[low - 1]) if low > first else None

    def _around(self, low: int, first: int) -> range:
        """The positions of the commits next to a boundary, before and after it."""
        return range(max(low - 1, first), min(low + 1, self._log.commit_versions.size))

    def _search(self, cutoff_ms: int, first: int, *, time_of: Callable[[int], int]) -> int:
        """The position after the newest expired commit, by in-commit timestamps from ``first`` on.

        In-commit timestamps increase with the version, so a binary search reads few files.
        """
        low, high = first, self._log.commit_versions.size
        while low < high:
            middle = (low + high) // 2
            if time_of(middle) <= cutoff_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _recorded_ms(self, at: int) -> int:
        """The time in the version checksum, else in the commit."""
        version = int(self._log.commit_versions[at])
        if version not in self.asked:
            self.asked[version] = self._by_checksum(version) or self._by_commit(at)
        return self.asked[version]

    def _by_checksum(self, version: int) -> int | None:
        found = version_checksum(self._log.location, version)
        return found and found.in_commit_timestamp_opt

    def _by_commit(self, at: int) -> int:
        entry = log_entry(self._log.commits.slice(at, 1).to_pylist()[0])
        assert entry is not None, "a commit has the name of one"
        return in_commit_ms(self._log.location, entry)


def _monotonic(modified_ms: Versions) -> Versions:
    """The times, raised where needed so that each is at least 1 ms later than the one before."""
    steps = np.arange(modified_ms.size)
    return np.maximum.accumulate(modified_ms - steps) + steps


def _last(versions: Versions, holds: np.ndarray) -> int | None:
    found = versions[holds]
    return int(found[-1]) if found.size else None
