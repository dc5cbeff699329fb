"""Read file actions from commits and JSON checkpoints, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.columns import batch_of
from maint_assets.delta.actions import is_only_add, may_hold, parse_action
from maint_assets.delta.paths import TableRoot
from maint_assets.errors import CorruptLogError
from maint_assets.snapshot.log_units import log_errors, unit_lines
from maint_assets.snapshot.resolved_paths import resolved_columns, vector_path
from maint_assets.snapshot.schemas import ACTION_ARROW, add_order, is_add, remove_order
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from maint_assets.delta.actions import Action, Add, Cdc, CommitInfo, Remove
    from maint_assets.snapshot.schemas import LogUnit
    from maint_assets.storage.location import Location

_BATCH_ROWS = 16_384
_MOST_PASSED_OVER = 200_000
"""Paths of a checkpoint that a task keeps, about 40 MB; of a larger one it keeps the first."""

_PLACED = ("log_key", "path", "inside")
_READ = pa.schema([field for field in ACTION_ARROW if field.name not in _PLACED])


class JsonRows:
    """Collects the actions of many small JSON files into few batches of ACTION_SCHEMA.

    Call ``read`` per file, then ``rest`` once.
    """

    def __init__(self, location: Location) -> None:
        self._location, self._root = location, TableRoot.of(location.uri)
        self._rows = _Rows(self._root)
        self._commits: list[tuple[LogUnit, _CommitSource]] = []
        self._units: list[tuple[LogUnit, int]] = []

    def pass_over(self, checkpoint: pa.RecordBatch) -> None:
        """Skip adds of covered commits whose file is live in the checkpoint.

        Files with a deletion vector are read anyway.
        """
        if len(self._rows.passed_over) < _MOST_PASSED_OVER:
            is_plain = pc.equal(checkpoint["dv_id"], "")
            plain = checkpoint["log_path"].filter(pc.and_(is_plain, is_add(checkpoint)))
            self._rows.passed_over.update(plain.drop_null().to_pylist())

    def read(self, unit: LogUnit) -> Iterator[pa.RecordBatch]:
        """Read one file; yields a batch whenever enough rows are collected."""
        commit: _CommitSource | None = None
        self._units.append((unit, len(self._rows.read)))
        with log_errors(self._location, unit):
            for action in self._actions(unit):
                if commit is None and unit.commit_ms is not None:
                    commit = _CommitSource.of(self._location, unit, first=action)
                self._rows.append(action, unit, commit)
                if len(self._rows.read) >= _BATCH_ROWS:
                    yield self._batch()
                    self._units.append((unit, 0))
        if unit.commit_ms is not None:
            commit = commit or _CommitSource(unit.version, "unknown", unit.commit_ms)
            self._commits.append((unit, commit))

    def _actions(self, unit: LogUnit) -> Iterator[Action]:
        name = unit.path.rpartition("/")[2]
        for line in unit_lines(self._location, unit):
            # Most lines of old commits are adds that nobody needs: skipped without parsing.
            if not unit.adds and is_only_add(line):
                continue
            try:
                yield parse_action(line, table=self._location.uri, file=name)
            except CorruptLogError:
                # No reader needs an add that a checkpoint covers, and it removes nothing.
                if not (unit.covered and is_only_add(line)):
                    raise

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, and a row per commit."""
        yield self._batch()
        commits, self._commits = self._commits, []
        try:
            yield _commits([commit for _, commit in commits])
        except (OverflowError, pa.ArrowException):
            for unit, commit in commits:
                with log_errors(self._location, unit):
                    _commits([commit])
            raise

    def _batch(self) -> pa.RecordBatch:
        """Convert the collected rows to a batch. An error names the file that caused it."""
        rows, units, self._units = self._rows.read, self._units, []
        try:
            return self._rows.batch()
        except (OSError, OverflowError, pa.ArrowException):
            ends = [*(start for _, start in units[1:]), len(rows)]
            for (unit, start), end in zip(units, ends, strict=True):
                with log_errors(self._location, unit):
                    _Rows(self._root, rows[start:end]).batch()
            raise


class _CommitSource(NamedTuple):
    """Version, operation and time (ms) of the commit that an action is from."""

    version: int
    operation: str
    commit_ms: int | None

    @classmethod
    def of(cls, location: Location, unit: LogUnit, *, first: Action) -> Self:
        """From ``commitInfo``, usually the first line; without one, from file name and mtime."""
        info = first.commitInfo
        if info is None:
            name = unit.path.rpartition("/")[2]
            every = read.lines(location, unit.path)
            lines = (line for line in every if may_hold(line, b"commitInfo"))
            found = (parse_action(line, table=location.uri, file=name).commitInfo for line in lines)
            info = next((each for each in found if each is not None), None)
        if info is None:
            return cls(unit.version, "unknown", unit.commit_ms)
        return cls(unit.version, info.operation or "unknown", _commit_ms(info, unit))


@dataclass(slots=True)
class _Rows:
    """Rows being collected: the columns of ACTION_ARROW that come directly from the log."""

    root: TableRoot
    read: list[tuple[Any, ...]] = field(default_factory=list)
    passed_over: set[str] = field(default_factory=set)

    def append(self, action: Action, unit: LogUnit, commit: _CommitSource | None) -> None:
        if action.add is not None and unit.adds:
            self._append_add(action.add, unit)
        if action.remove is not None and unit.removes:
            self._append_remove(action.remove, unit, commit)
        if action.cdc is not None and commit is not None:
            self._append_cdc(action.cdc, commit)

    def _append_add(self, add: Add, unit: LogUnit) -> None:
        # Written out for files without a deletion vector: this runs for every add of the log.
        modified_ms, order = add.modification_time, add_order(unit)
        if add.deletion_vector is not None:
            row = (*self._named(add), order, None, add.size, modified_ms, None, None, None)
        elif unit.covered and add.path in self.passed_over:
            return
        else:
            row = "file", add.path, "", None, order, None, add.size, modified_ms, None, None, None
        self.read.append(row)

    def _append_remove(self, remove: Remove, unit: LogUnit, commit: _CommitSource | None) -> None:
        by, times = commit or (None, None, None), (None, remove.deletion_timestamp or 0)
        order = remove_order(unit)
        self.read.append((*self._named(remove), order, by[0], remove.size, *times, *by[1:]))

    def _append_cdc(self, cdc: Cdc, commit: _CommitSource) -> None:
        named = ("cdc", cdc.path, "", None)
        self.read.append((
            *named,
            commit.version * 2,
            commit.version,
            cdc.size,
            None,
            None,
            *commit[1:],
        ))

    def _named(self, file: Add | Remove) -> tuple[Any, ...]:
        dv = file.deletion_vector
        if dv is None:
            return "file", file.path, "", None
        where = vector_path(dv.storage_type, dv.path_or_inline_dv, self.root)
        return "file", file.path, dv.unique_id, where

    def batch(self) -> pa.RecordBatch:
        """Convert the collected rows to a batch, and start over."""
        rows, self.read = batch_of(self.read, _READ), []
        path, key, inside = resolved_columns(rows["log_path"], self.root)
        columns = {"path": path, "log_key": key, "inside": inside}
        arrays = [columns[name] if name in columns else rows[name] for name in ACTION_ARROW.names]
        return pa.RecordBatch.from_arrays(arrays, schema=ACTION_ARROW)


def _commits(found: list[_CommitSource]) -> pa.RecordBatch:
    rows = [
        ("commit", str(commit.version), None, "", None, False, None,
         commit.version * 2, commit.version, None, None, None, *commit[1:])
        for commit in found
    ]  # fmt: skip
    return batch_of(rows, ACTION_ARROW)


def _commit_ms(info: CommitInfo, unit: LogUnit) -> int | None:
    """Commit time in ms: the later of the file time and, once enabled, the in-commit timestamp.

    A writer whose clock is behind must not shorten the retention.
    """
    is_enabled = unit.ict_from is not None and unit.version >= unit.ict_from
    if not is_enabled or unit.commit_ms is None:
        return unit.commit_ms
    return max(info.in_commit_timestamp or 0, unit.commit_ms)
