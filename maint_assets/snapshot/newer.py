"""What commits newer than a plan say: which paths they name, and whether the plan still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.delta.actions import parse_action
from maint_assets.delta.deletion_vectors import file_path
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import commit_name
from maint_assets.delta.paths import TableRoot
from maint_assets.delta.timestamps import shown_length
from maint_assets.errors import StalePlanError
from maint_assets.snapshot.log import LOG
from maint_assets.snapshot.places import names, through_links
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.delta.actions import Action
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location


MAX_AHEAD_MS = 5 * 60_000
"""A plan may be made by another machine, whose clock is a little ahead."""


def refuse_old(table: str, *, planned_ms: int, max_age_ms: int, now_ms: int) -> None:
    """StalePlanError when a plan is older than its limit, or made by a clock that ran ahead."""
    if planned_ms - now_ms > MAX_AHEAD_MS:
        ahead = shown_length(planned_ms - now_ms)
        raise StalePlanError(table, f"the plan was made {ahead} ahead of now", "plan again")
    age, limit = shown_length(now_ms - planned_ms), shown_length(max_age_ms)
    if now_ms - planned_ms > max_age_ms:
        raise StalePlanError(table, f"the plan is {age} old, the limit is {limit}", "plan again")


def refuse_other_table(head: TableHead, *, table_id: str, version: int) -> None:
    """StalePlanError when the newest version is not one of the planned table, or an older one."""
    if head.metadata.id != table_id:
        found = f"is table {head.metadata.id} now, planned was {table_id}"
        raise StalePlanError(head.table, found, "plan again")
    if head.version < version:
        found = f"is at version {head.version}, planned was {version}"
        raise StalePlanError(head.table, found, "plan again")


class NewerCommits:
    """The paths that commits after a version name, grown by each ``refresh``.

    Raises StalePlanError when the table becomes another one, UnsupportedFeatureError when its
    protocol becomes one that ``operation`` must not meet.
    """

    def __init__(
        self, location: Location, *, table_id: str, version: int, operation: Operation
    ) -> None:
        self.version = version
        self.paths: set[str] = set()
        self._location, self._table_id, self._operation = location, table_id, operation
        self._root = TableRoot.of(location.path)

    def refresh(self) -> None:
        """Takes in every commit that has come since; contiguous versions, so one look a commit."""
        while read.exists(self._location, f"{LOG}/{commit_name(self.version + 1)}"):
            name = commit_name(self.version + 1)
            for line in read.lines(self._location, f"{LOG}/{name}"):
                action = parse_action(line, table=self._location.uri, file=name)
                self._refuse_change(action)
                self.paths.update(self._named(action))
            self.version += 1

    def _refuse_change(self, action: Action) -> None:
        table = self._location.uri
        if action.metaData is not None and action.metaData.id != self._table_id:
            raise StalePlanError(table, "the table was replaced by another one", "plan again")
        if action.protocol is not None:
            refuse_unsupported(action.protocol, self._operation, table=table)

    def _named(self, action: Action) -> Iterator[str]:
        for file in (action.add, action.remove, action.cdc):
            if file is None:
                continue
            yield from names(file.path, self._root)
            dv = getattr(file, "deletion_vector", None)
            where = (
                None if dv is None else file_path(dv.storage_type, dv.path_or_inline_dv, self._root)
            )
            if where is not None:
                yield through_links(where, self._root)
