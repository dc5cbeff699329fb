"""Concurrent commits that came first: which bins of a batch they invalidate.

Also the version, timestamp and row id high-water mark that the next commit must build on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maint_assets.commit.rewrite.row_ids import RowTracking, row_id_high_water_mark
from maint_assets.commit.rewrite.values import DroppedBin, RewrittenBin
from maint_assets.delta.actions import parse_action
from maint_assets.delta.conflicts import CommitEffect, RewriteBasis, commit_effect, file_name
from maint_assets.errors import (
    CommitError,
    ConflictError,
    CorruptLogError,
    LogGapError,
    StalePlanError,
    one_line,
)
from maint_assets.snapshot.commits import commit_lines
from maint_assets.snapshot.log import contiguous_after, log_files
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from maint_assets.commit.rewrite.values import RewriteRequest
    from maint_assets.delta.actions import Action, Add
    from maint_assets.delta.paths import TableRoot
    from maint_assets.snapshot.head import TableHead
    from maint_assets.snapshot.log import LogEntry

_PLAN_AGAIN = "plan the rewrite again"


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A commit in the log with our ``txnId``: its version, and the files it adds and removes."""

    version: int
    root: TableRoot
    added: frozenset[str]
    removed: frozenset[str]

    def holds(self, each: RewrittenBin) -> bool:
        """Whether it removed all inputs and added all outputs of the bin."""
        removed = (file_name(file.path, self.root) for file in each.inputs)
        return self.added.issuperset(self._outputs(each)) and self.removed.issuperset(removed)

    def shares(self, each: RewrittenBin) -> bool:
        """Whether it added any output of the bin."""
        return not self.added.isdisjoint(self._outputs(each))

    def _outputs(self, each: RewrittenBin) -> list[str]:
        return [file_name(file.path, self.root) for file in each.outputs]


class ConcurrentCommits:
    """The commits since ``head`` on which a batch was planned, and what they do to its bins.

    After ``refresh``, ``version``, ``newest_ms`` (its timestamp) and ``mark`` (the row id
    high-water mark) are those of the newest commit; or ``own`` is our commit, found in the log.
    """

    def __init__(
        self, head: TableHead, bins: Sequence[RewrittenBin], request: RewriteRequest
    ) -> None:
        self.table = head.table
        self.version, self.newest_ms = head.version, head.timestamp_ms
        self.tracking = RowTracking.of(head)
        self.mark = row_id_high_water_mark(head) if self.tracking is not RowTracking.OFF else -1
        self.own: OwnCommit | None = None
        self._head, self._bins, self._request = head, bins, request
        self._inputs = {
            file_name(file.path, head.root): file for each in bins for file in each.inputs
        }
        outputs = frozenset(file_name(f.path, head.root) for each in bins for f in each.outputs)
        self._planned = RewriteBasis(head.root, head.protocol, head.metadata, self._inputs, outputs)
        self._lost: dict[str, str] = {}

    def refresh(self) -> None:
        """Read the commits that came since the last call, up to one of ours.

        Raises ConflictError if one rules out the whole batch, CommitError if one adds our new
        files, StalePlanError if the log was replaced, LogGapError if it has a gap, and
        CorruptLogError if it cannot be read.
        """
        for entry in read.in_turn(self._head.location, self._newer()):
            found = commit_effect(self._actions(entry), self._planned)
            if found.info is not None and found.info.txn_id == self._request.txn_id:
                self.own = self._own(entry)
                return
            self._take(found, entry)

    def kept(self) -> list[RewrittenBin]:
        """The bins whose inputs are all live, with the newest add action of each input."""
        return [
            replace(each, inputs=tuple(self._inputs[name] for name in self._names(each)))
            for each in self._bins
            if self._loss(each) is None
        ]

    def dropped(self) -> list[DroppedBin]:
        """The bins that lost an input, with the reason."""
        losses = ((each.bin, self._loss(each)) for each in self._bins)
        return [DroppedBin(name, loss) for name, loss in losses if loss is not None]

    def _newer(self) -> list[LogEntry]:
        """The commits after ``version``, without a gap.

        Raises LogGapError if log cleanup removed one of them: what it changed is unknown.
        """
        entries = log_files(self._head.location)
        self._refuse_other_log(entries)
        newer = contiguous_after(entries, self.version, table=self.table)
        newest = max((entry.file.version for entry in entries), default=-1)
        if newest > (newer[-1].file.version if newer else self.version):
            what = f"the log has files of version {newest}, but not all commits before it"
            raise LogGapError(self.table, what, _PLAN_AGAIN)
        return newer

    def _refuse_other_log(self, entries: list[LogEntry]) -> None:
        """Raise unless the commit of the planned version is unchanged, or was cleaned up since.

        Another file of its name means that the table was dropped and created again.
        """
        segment = self._head.segment
        planned = (segment.commits or segment.history)[-1]
        there = [entry for entry in entries if entry.file == planned.file]
        if there and there != [planned]:
            what = f"{planned.file.name} was replaced since the rewrite was planned"
            raise StalePlanError(self.table, what, _PLAN_AGAIN)
        if not any(entry.file.version > planned.file.version for entry in entries) and not there:
            raise LogGapError(self.table, f"{planned.file.name} is gone", _PLAN_AGAIN)

    def _take(self, found: CommitEffect, entry: LogEntry) -> None:
        operation = (found.info and found.info.operation) or "unknown"
        by = f"version {entry.file.version} ({operation})"
        if found.known:
            what = f"{by} adds the new file {min(found.known)} already"
            raise CommitError(self.table, what, "keep the new files, and plan again")
        if found.closed:
            what = f"{by} changed the table: {'; '.join(found.closed)}"
            raise ConflictError(self.table, what, _PLAN_AGAIN)
        for name, add in found.renewed.items():
            if self._request.row_ids_kept and _row_ids(add) != _row_ids(self._inputs[name]):
                # The outputs hold the row ids of the add as planned, which are stale now.
                found.lost.setdefault(name, "got other row ids")
            self._inputs[name] = add
        for name, what in found.lost.items():
            self._lost.setdefault(name, f"{self._inputs[name].path} {what} by {by}")
        if found.row_id_high_water_mark is not None:
            self.mark = found.row_id_high_water_mark
        ict_ms = found.info and found.info.in_commit_timestamp
        self.version, self.newest_ms = entry.file.version, ict_ms or entry.modified_ms

    def _own(self, entry: LogEntry) -> OwnCommit:
        root = self._head.root
        added: set[str] = set()
        removed: set[str] = set()
        for action in self._actions(entry):
            if action.add is not None:
                added.add(file_name(action.add.path, root))
            if action.remove is not None:
                removed.add(file_name(action.remove.path, root))
        return OwnCommit(entry.file.version, root, frozenset(added), frozenset(removed))

    def _actions(self, entry: LogEntry) -> Iterator[Action]:
        table, name = self.table, entry.file.name
        try:
            for line in commit_lines(self._head.location, entry.path):
                yield parse_action(line, table=table, file=name)
        except FileNotFoundError as error:
            raise LogGapError(table, f"{name} vanished while it was read", _PLAN_AGAIN) from error
        except OSError as error:
            what = f"{name} cannot be read ({one_line(error)})"
            raise CorruptLogError(table, what, "allow reading it") from error

    def _names(self, each: RewrittenBin) -> list[str]:
        return [file_name(file.path, self._head.root) for file in each.inputs]

    def _loss(self, each: RewrittenBin) -> str | None:
        """How the first lost input of the bin was lost; None if all are live."""
        return next((self._lost[name] for name in self._names(each) if name in self._lost), None)


def _row_ids(file: Add) -> tuple[int | None, int | None]:
    return file.base_row_id, file.default_row_commit_version
