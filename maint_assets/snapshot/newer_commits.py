"""Commits newer than a plan: the paths they name, and whether the plan is still valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.delta.actions import parse_action
from maint_assets.delta.deletion_vectors import file_path
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import LogFile, commit_name
from maint_assets.delta.paths import TableRoot, is_outside
from maint_assets.delta.properties import TableProperties
from maint_assets.delta.timestamps import duration_text
from maint_assets.errors import StalePlanError
from maint_assets.snapshot.commits import (
    commit_lines,
    commit_mark,
    commit_path,
    refuse_other_commit,
)
from maint_assets.snapshot.log import LOG, LogEntry, contiguous_after
from maint_assets.snapshot.resolved_paths import (
    behind_links,
    possible_paths,
    resolved_path,
    through_links,
)
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from maint_assets.delta.actions import Action
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location


MAX_AHEAD_MS = 5 * 60_000
"""Tolerance for a plan made on a machine whose clock is ahead, in ms."""


def refuse_old(table: str, *, planned_ms: int, max_age_ms: int, now_ms: int) -> None:
    """Raise StalePlanError if a plan is too old, or dated in the future."""
    if planned_ms - now_ms > MAX_AHEAD_MS:
        ahead = duration_text(planned_ms - now_ms)
        raise StalePlanError(table, f"the plan is dated {ahead} in the future", "plan again")
    age, limit = duration_text(now_ms - planned_ms), duration_text(max_age_ms)
    if now_ms - planned_ms > max_age_ms:
        raise StalePlanError(table, f"the plan is {age} old, the limit is {limit}", "plan again")


def refuse_other_table(head: TableHead, *, table_id: str, version: int) -> None:
    """Raise StalePlanError if the table was replaced, or is at an older version than planned."""
    if head.metadata.id != table_id:
        found = f"the table id is {head.metadata.id} now, but the plan is for {table_id}"
        raise StalePlanError(head.table, found, "plan again")
    if head.version < version:
        found = f"the table is at version {head.version}, but the plan is for version {version}"
        raise StalePlanError(head.table, found, "plan again")


class NewerCommits:
    """Paths named by commits after a version, updated by ``refresh``.

    ``paths`` are inside the table, ``outside`` are all others. ``mark`` is the digest of the
    version's commit (``commit_mark``). ``refresh`` raises StalePlanError if that commit has changed
    or the table was replaced, UnsupportedFeatureError if the new protocol does not allow
    ``operation``, LogGapError if a commit is missing, and what ``refuse`` raises for the properties
    that a commit sets.
    """

    def __init__(
        self,
        location: Location,
        *,
        table_id: str,
        version: int,
        mark: str,
        operation: Operation,
        refuse: Callable[[TableProperties], None] | None = None,
    ) -> None:
        self.version = version
        self.paths: set[str] = set()
        self.outside: set[str] = set()
        self._location, self._table_id, self._operation = location, table_id, operation
        self._refuse = refuse
        self._root = TableRoot.of(location.uri)
        self._log: tuple[int, ...] | None = None
        self._marks = {version: mark}
        self._seen: dict[int, tuple[int, ...] | None] = {}

    def refresh(self) -> None:
        """Read the commits that appeared since the last call, after checking the known ones."""
        self._refuse_other_commits()
        log = read.state(self._location, LOG)
        # A directory's mtime is too coarse to show two changes in quick succession.
        if log == self._log and not read.exists(self._location, commit_path(self.version + 1)):
            return
        for version in self._newer():
            self._take(version)
        self._log = log

    def _newer(self) -> list[int]:
        """New versions, ascending. Raises LogGapError if one is missing or has not 20 digits."""
        next_name, usual = commit_name(self.version + 1), len(commit_name(0))
        found = (
            LogEntry(file, 0, 0)
            for name in read.names(self._location, LOG)
            if name.endswith(".json")
            and (len(name) != usual or name >= next_name)
            and (file := LogFile.parse(name)) is not None
        )
        newer = contiguous_after(found, self.version, table=self._location.uri)
        return [entry.file.version for entry in newer]

    def _take(self, version: int) -> None:
        name, path = commit_name(version), commit_path(version)
        self._seen[version] = read.state(self._location, path)
        self._marks[version] = commit_mark(self._location, version)
        for line in commit_lines(self._location, path):
            action = parse_action(line, table=self._location.uri, file=name)
            self._refuse_change(action)
            for path in self._named(action):
                is_elsewhere = is_outside(path) or path.startswith("file:")
                (self.outside if is_elsewhere else self.paths).add(path)
        self.version = version

    def _refuse_other_commits(self) -> None:
        """Check that the planned commit and the newest known one are unchanged."""
        for version in {min(self._marks), self.version}:
            state = read.state(self._location, commit_path(version))
            if state is None or state != self._seen.get(version):
                refuse_other_commit(self._location, version, self._marks[version])
                self._seen[version] = state

    def _refuse_change(self, action: Action) -> None:
        table = self._location.uri
        if action.metaData is not None and action.metaData.id != self._table_id:
            raise StalePlanError(table, "the table was replaced by another one", "plan again")
        if action.metaData is not None and self._refuse is not None:
            self._refuse(TableProperties.of(action.metaData.configuration, table=table))
        if action.protocol is not None:
            refuse_unsupported(action.protocol, self._operation, table=table)

    def _named(self, action: Action) -> Iterator[str]:
        for file in (action.add, action.remove, action.cdc):
            if file is None:
                continue
            yield from possible_paths(file.path, self._root)
            yield resolved_path(file.path, self._root)
            if is_outside(file.path) or file.path.startswith("file:"):
                yield file.path
            dv = getattr(file, "deletion_vector", None)
            where = (
                None if dv is None else file_path(dv.storage_type, dv.path_or_inline_dv, self._root)
            )
            if where is not None:
                led = through_links(where, self._root)
                yield led
                yield behind_links(led, self._root) or led
