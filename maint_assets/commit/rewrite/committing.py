"""Commit a batch of rewritten bins, beside other writers, as the next free version.

Each try first reads the commits that came since the plan, drops the bins that lost an input to
them, and writes the rest by put-if-absent. A write whose outcome is in doubt is never repeated
blindly: the next look at the log finds our ``txnId`` if it did succeed.
"""

from __future__ import annotations

import errno
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.commit.rewrite.body import CommitFrame, commit_body
from maint_assets.commit.rewrite.metrics import operation_metrics
from maint_assets.commit.rewrite.soundness import refuse_unsound
from maint_assets.commit.rewrite.values import Committed, DroppedBin
from maint_assets.commit.rewrite.winners import ConcurrentCommits
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import commit_name
from maint_assets.errors import (
    CommitError,
    ConflictError,
    NoRoomError,
    UnknownOutcomeError,
    one_line,
)
from maint_assets.snapshot.log import LOG
from maint_assets.storage import read
from maint_assets.storage.write import put_if_absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maint_assets.commit.rewrite.values import RewriteRequest, RewrittenBin
    from maint_assets.commit.rewrite.winners import OwnCommit
    from maint_assets.snapshot.head import TableHead

logger = logging.getLogger(__name__)

FAULTS = 5
"""After this many failed writes of one version the commit gives up."""

_FULL = errno.ENOSPC, errno.EDQUOT
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""obstore raises the errno of its Rust I/O only inside the text of its errors."""

_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0


def commit_rewrites(
    head: TableHead, bins: Sequence[RewrittenBin], request: RewriteRequest
) -> Committed:
    """Commit the bins that were planned on ``head``, in one version.

    A bin that lost an input to a newer commit is dropped, and the others are committed.

    Raises ConflictError if a newer commit rules out the whole batch or all attempts lost the race,
    UnknownOutcomeError if a write failed and may have succeeded, NoRoomError for a full disk,
    CommitError for an unsound batch, and StalePlanError, LogGapError, CorruptLogError or
    StorageError if the newer commits cannot be read from the planned version on.
    """
    refuse_unsupported(head.protocol, Operation.REWRITE, table=head.table)
    refuse_unsound(head, bins, request)
    timestamp_ms = request.now_ms()
    winners = ConcurrentCommits(head, bins, request)
    tries = _Tries(head.table, request)
    while True:
        winners.refresh()
        if winners.own is not None:
            return _recognised(winners.own, winners, bins)
        kept, dropped = winners.kept(), winners.dropped()
        if not kept:
            return Committed(None, (), tuple(dropped), {})
        frame = _frame(head, winners, request, timestamp_ms=timestamp_ms)
        if tries.put(head, frame.version, commit_body(kept, frame, request)):
            return _committed(frame.version, kept, dropped)


@dataclass(slots=True)
class _Tries:
    """Attempts to write the commit.

    ``count`` is the number of all attempts; ``tries`` those of ``version``, of which ``faults``
    failed, ``full`` of them for lack of space. ``doubt`` is why ``version`` may or may not hold
    our commit; None if it does not.
    """

    table: str
    request: RewriteRequest
    count: int = 0
    faults: int = 0
    full: int = 0
    tries: int = 0
    version: int = -1
    doubt: str | None = None

    def put(self, head: TableHead, version: int, body: bytes) -> bool:
        """Try to write the version; False, after a pause, if the log must be read again."""
        # A version after the one in doubt: the log shows that another writer has the latter.
        if version > self.version:
            self.version, self.doubt = version, None
            self.faults = self.full = self.tries = 0
        self._refuse_more(head)
        self.count += 1
        self.tries += 1
        try:
            if put_if_absent(head.location, f"{LOG}/{commit_name(version)}", body):
                return True
            # Another writer's, or ours after all: the next look at the log decides.
            self.doubt = "it exists, but is not listed yet"
        except OSError as error:
            self.faults, self.doubt = self.faults + 1, one_line(error)
            self.full += _is_full(error)
            logger.warning("%s: %s: %s", self.table, commit_name(version), self.doubt)
        longest = min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(self.count, 16))
        self.request.sleep(longest * self.request.random())
        return False

    def _refuse_more(self, head: TableHead) -> None:
        if self.faults < FAULTS and self.count < self.request.attempts:
            return
        if self.doubt is None:
            what = f"{self.count} attempts to commit {self.request.operation} lost the race"
            raise ConflictError(self.table, what, "run again later")
        if self._is_absent(head):
            what = f"{commit_name(self.version)} cannot be written (the disk or a quota is full)"
            raise NoRoomError(self.table, what, "make room, and run again")
        what = f"{commit_name(self.version)} may or may not hold the rewrite ({self.doubt})"
        remedy = f"look for txnId {self.request.txn_id} in it before removing any new file"
        raise UnknownOutcomeError(self.table, what, remedy)

    def _is_absent(self, head: TableHead) -> bool:
        """Whether the version is certainly absent.

        A write that fails for lack of space leaves no file; any other failure may still succeed
        later on a network file system.
        """
        name = f"{LOG}/{commit_name(self.version)}"
        return self.full == self.faults == self.tries and not read.exists(head.location, name)


def _is_full(error: OSError) -> bool:
    """Whether a write failed because the disk or a quota is full."""
    found = _OS_ERROR.search(str(error))
    return error.errno in _FULL or (found is not None and int(found[1]) in _FULL)


def _frame(
    head: TableHead, winners: ConcurrentCommits, request: RewriteRequest, *, timestamp_ms: int
) -> CommitFrame:
    has_ict = head.properties.in_commit_timestamps
    return CommitFrame(
        table=head.table,
        version=winners.version + 1,
        read_version=head.version,
        timestamp_ms=timestamp_ms,
        in_commit_ms=max(request.now_ms(), winners.newest_ms + 1) if has_ict else None,
        tracking=winners.tracking,
        mark=winners.mark,
    )


def _recognised(
    own: OwnCommit, winners: ConcurrentCommits, bins: Sequence[RewrittenBin]
) -> Committed:
    """The result when the log holds a commit with our ``txnId`` already."""
    if any(own.shares(each) and not own.holds(each) for each in bins):
        what = f"version {own.version} has this transaction's txnId, but other bins"
        raise CommitError(winners.table, what, "keep the new files, and plan again")
    left = winners.kept()
    reason = f"version {own.version} has this transaction's txnId, but not these files"
    others = [DroppedBin(each.bin, reason) for each in left if not own.holds(each)]
    there = [each for each in left if own.holds(each)]
    return _committed(own.version, there, [*winners.dropped(), *others])


def _committed(
    version: int, kept: Sequence[RewrittenBin], dropped: Sequence[DroppedBin]
) -> Committed:
    return Committed(version, tuple(kept), tuple(dropped), operation_metrics(kept))
