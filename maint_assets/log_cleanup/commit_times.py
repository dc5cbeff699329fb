"""When each commit of a log was made: by its file, or by what it says itself (logs.md 10)."""

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
    """From which version and time on commits say their own time; a time of None means always."""

    version: int = 0
    enabled_ms: int | None = None


class CommitTimes:
    """The times of the published commits of a log, in ms.

    ``in_commit`` None means that a commit is as old as its file, each at least a millisecond
    younger than the one before. Both ways are never mixed in one search.
    """

    def __init__(self, log: LogDirectory, in_commit: InCommitTimes | None) -> None:
        self._log, self._in_commit = log, in_commit
        self.by_file = _monotonic(log.commits["modified_ms"].to_numpy())
        self.asked: dict[int, int] = {}

    @property
    def is_told(self) -> bool:
        """Whether commits say their time."""
        return self._in_commit is not None

    def newest_until(self, cutoff_ms: int) -> int | None:
        """The newest version that was committed at or before a time; None when all are younger.

        Raises CorruptLogError for a commit that does not say the time that it should.
        """
        versions, told = self._log.commit_versions, self._in_commit
        if told is None:
            return _last(versions, self.by_file <= cutoff_ms)
        if told.enabled_ms is not None and cutoff_ms < told.enabled_ms:
            return _last(versions, (self.by_file <= cutoff_ms) & (versions < told.version))
        first = int(np.searchsorted(versions, told.version))
        low = self._newest_told(cutoff_ms, first, told=self._told_ms)
        if any(self._told_ms(at) != self._by_commit(at) for at in self._around(low, first)):
            self.asked.clear()
            low = self._newest_told(cutoff_ms, first, told=self._by_commit)
        return int(versions[low - 1]) if low > first else None

    def _around(self, low: int, first: int) -> range:
        """The positions of the last commit before a boundary, and of the first one after it."""
        return range(max(low - 1, first), min(low + 1, self._log.commit_versions.size))

    def _newest_told(self, cutoff_ms: int, first: int, *, told: Callable[[int], int]) -> int:
        """The position after the newest expired one of commits that say their time.

        It only grows, so that few are looked at.
        """
        low, high = first, self._log.commit_versions.size
        while low < high:
            middle = (low + high) // 2
            if told(middle) <= cutoff_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _told_ms(self, at: int) -> int:
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
    """Times of which each is later than the one before."""
    steps = np.arange(modified_ms.size)
    return np.maximum.accumulate(modified_ms - steps) + steps


def _last(versions: Versions, holds: np.ndarray) -> int | None:
    found = versions[holds]
    return int(found[-1]) if found.size else None
