"""The file actions of a commit, or of a checkpoint in JSON, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from maint_assets.delta.actions import parse_action
from maint_assets.delta.paths import TableRoot
from maint_assets.snapshot.places import placed, vector_path
from maint_assets.snapshot.schemas import ACTION_ARROW
from maint_assets.storage import read
from maint_assets.storage.columns import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from maint_assets.delta.actions import Action, Add, Cdc, CommitInfo, Remove
    from maint_assets.snapshot.schemas import LogUnit
    from maint_assets.storage.location import Location

_BATCH_ROWS = 16_384
_ADD = b'{"add"'
_PLACED = ("log_key", "path", "inside")
_READ = pa.schema([field for field in ACTION_ARROW if field.name not in _PLACED])


def json_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    """The file actions of a file in JSON, and of a commit the commit itself: ACTION_SCHEMA."""
    name = unit.path.rpartition("/")[2]
    told: _Told | None = None
    rows = _Rows(TableRoot.of(location.path))
    for line in read.lines(location, unit.path, without=None if unit.adds else _ADD):
        if told is None and unit.commit_ms is not None:
            told = _Told.of(location, unit, first=line)
        rows.append(parse_action(line, table=location.uri, file=name), unit, told)
        if len(rows.read) >= _BATCH_ROWS:
            yield rows.batch()
    yield rows.batch()
    if unit.commit_ms is not None:
        yield _commit(told or _Told(unit.version, "unknown", unit.commit_ms))


class _Told(NamedTuple):
    """What a commit says of itself."""

    version: int
    operation: str
    commit_ms: int | None

    @classmethod
    def of(cls, location: Location, unit: LogUnit, *, first: bytes) -> Self:
        """By its ``commitInfo``, mostly the first line; else by its name and file alone."""
        name = unit.path.rpartition("/")[2]
        lines = (line for line in read.lines(location, unit.path) if b'"commitInfo"' in line)
        for line in chain((first,), lines):
            info = parse_action(line, table=location.uri, file=name).commitInfo
            if info is not None:
                return cls(unit.version, info.operation or "unknown", _commit_ms(info, unit))
        return cls(unit.version, "unknown", unit.commit_ms)


@dataclass(slots=True)
class _Rows:
    """Rows under construction: the columns of ACTION_ARROW that are read, not placed."""

    root: TableRoot
    read: list[tuple[Any, ...]] = field(default_factory=list)

    def append(self, action: Action, unit: LogUnit, told: _Told | None) -> None:
        if action.add is not None and unit.adds:
            self._append_add(action.add, unit.version)
        if action.remove is not None and unit.removes:
            self._append_remove(action.remove, unit.version, told)
        if action.cdc is not None and told is not None:
            self._append_cdc(action.cdc, told)

    def _append_add(self, add: Add, version: int) -> None:
        times = (add.modification_time, None)
        self.read.append((*self._named(add), version * 2 + 1, None, add.size, *times, None, None))

    def _append_remove(self, remove: Remove, version: int, told: _Told | None) -> None:
        by, times = told or (None, None, None), (None, remove.deletion_timestamp or 0)
        named = self._named(remove)
        self.read.append((*named, version * 2, by[0], remove.size, *times, *by[1:]))

    def _append_cdc(self, cdc: Cdc, told: _Told) -> None:
        named = ("cdc", cdc.path, "", None)
        self.read.append((*named, told.version * 2, told.version, cdc.size, None, None, *told[1:]))

    def _named(self, file: Add | Remove) -> tuple[Any, ...]:
        dv = file.deletion_vector
        if dv is None:
            return "file", file.path, "", None
        where = vector_path(dv.storage_type, dv.path_or_inline_dv, self.root)
        return "file", file.path, dv.unique_id, where

    def batch(self) -> pa.RecordBatch:
        """The rows so far; none are held afterwards."""
        rows, self.read = batch_of(self.read, _READ), []
        path, key, inside = placed(rows["log_path"], self.root)
        columns = {"path": path, "log_key": key, "inside": inside}
        arrays = [columns[name] if name in columns else rows[name] for name in ACTION_ARROW.names]
        return pa.RecordBatch.from_arrays(arrays, schema=ACTION_ARROW)


def _commit(told: _Told) -> pa.RecordBatch:
    named = ("commit", str(told.version), None, "", None, False, None)
    row = (*named, told.version * 2, told.version, None, None, None, *told[1:])
    return batch_of([row], ACTION_ARROW)


def _commit_ms(info: CommitInfo, unit: LogUnit) -> int | None:
    """The in-commit timestamp from the version on that has them, else the time of the file."""
    if unit.ict_from is not None and unit.version >= unit.ict_from:
        return info.in_commit_timestamp or unit.commit_ms
    return unit.commit_ms
