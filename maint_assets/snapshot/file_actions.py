"""How executors read the file actions of commits and checkpoints: bytes in, Arrow rows out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.actions import parse_action
from maint_assets.delta.deletion_vectors import file_path
from maint_assets.delta.paths import TableRoot, canonical_key, is_outside
from maint_assets.errors import CorruptLogError, LogGapError, one_line
from maint_assets.snapshot.places import located, through_links
from maint_assets.snapshot.schemas import ACTION_ARROW
from maint_assets.storage import read
from maint_assets.storage.columns import batch_of
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.parquet as pq
    from typing_extensions import Self

    from maint_assets.delta.actions import Action, Add, Cdc, CommitInfo, Remove

_BATCH_ROWS = 16_384
_ODD_PATH = r"%|:|\\|^/|//|(^|/)\.\.?(/|$)"
_ODD = re.compile(_ODD_PATH)
_TIMES = {"add": "modificationTime", "remove": "deletionTimestamp"}
_DV_FIELDS = ("storageType", "pathOrInlineDv", "offset")


class LogUnit(msgspec.Struct, frozen=True):
    """One file of the log to read: ``commit_ms`` is None for checkpoints and sidecars.

    ``keys`` leaves all but the keys of replay null.
    """

    path: str
    version: int
    size: int
    commit_ms: int | None = None
    ict_from: int | None = None
    adds: bool = True
    removes: bool = True
    keys: bool = False


def actions_of(table: str, units: Iterable[LogUnit]) -> Iterator[pa.RecordBatch]:
    """The file actions and commits of files of the log: ACTION_SCHEMA.

    Raises CorruptLogError and LogGapError.
    """
    location = Location(table, table)
    for unit in units:
        yield from _unit_rows(location, unit)


def _unit_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    name = unit.path.rpartition("/")[2]
    try:
        if name.endswith(".parquet"):
            yield from _checkpoint_rows(location, unit)
        else:
            yield from _json_rows(location, unit)
    except FileNotFoundError as error:
        raise LogGapError(
            location.uri, f"{name} vanished while it was read", "run again"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise CorruptLogError(
            location.uri,
            f"{name} cannot be read ({one_line(error)})",
            "restore it from a backup or a replica",
        ) from error


def _json_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    name = unit.path.rpartition("/")[2]
    told: _Told | None = None
    rows = _Rows(TableRoot.of(location.path))
    for line in read.lines(location, unit.path):
        if told is None and unit.commit_ms is not None:
            told = _Told.of(location, unit, first=line)
        if not unit.adds and line.startswith(b'{"add"'):
            continue
        rows.append(parse_action(line, table=location.uri, file=name), unit, told)
        if len(rows) >= _BATCH_ROWS:
            yield rows.batch()
    if unit.commit_ms is not None:
        rows.append_commit(told or _Told(unit.version, "unknown", unit.commit_ms))
    yield rows.batch()


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
    """Rows under construction, in the order of ACTION_ARROW."""

    root: TableRoot
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def append(self, action: Action, unit: LogUnit, told: _Told | None) -> None:
        if action.add is not None and unit.adds:
            self.append_add(action.add, unit.version)
        if action.remove is not None and unit.removes:
            self.append_remove(action.remove, unit.version, told)
        if action.cdc is not None and told is not None:
            self.append_cdc(action.cdc, told)

    def append_add(self, add: Add, version: int) -> None:
        named = self._named(add)
        times = (add.modification_time, None)
        self.rows.append((*named, version * 2 + 1, None, add.size, *times, None, None))

    def append_remove(self, remove: Remove, version: int, told: _Told | None) -> None:
        named, by = self._named(remove), told or (None, None, None)
        times = (None, remove.deletion_timestamp or 0)
        self.rows.append((*named, version * 2, by[0], remove.size, *times, *by[1:]))

    def append_cdc(self, cdc: Cdc, told: _Told) -> None:
        named = ("cdc", *self._located(cdc.path), None)
        self.rows.append((*named, told.version * 2, told.version, cdc.size, None, None, *told[1:]))

    def append_commit(self, told: _Told) -> None:
        named = ("commit", str(told.version), None, "", None, False, None)
        self.rows.append((*named, told.version * 2, told.version, None, None, None, *told[1:]))

    def _named(self, file: Add | Remove) -> tuple[Any, ...]:
        dv = file.deletion_vector
        if dv is None:
            return "file", *self._located(file.path), None
        where = _vector_path(dv.storage_type, dv.path_or_inline_dv, self.root)
        return "file", *self._located(file.path, dv.unique_id), where

    def _located(self, raw: str, dv_id: str = "") -> tuple[str, str, str, str, bool]:
        """Replay key, path as spelled, vector's id, path as decoded, and whether it is inside."""
        if not _ODD.search(raw):
            return raw, raw, dv_id, raw, True
        path = located(raw, self.root)
        return canonical_key(raw), raw, dv_id, path, not is_outside(path)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self) -> pa.RecordBatch:
        rows, self.rows = self.rows, []
        return batch_of(rows, ACTION_ARROW)


def _vector_path(kind: str, named: str, root: TableRoot) -> str | None:
    found = file_path(kind, named, root)
    return None if found is None else through_links(found, root)


def _commit_ms(info: CommitInfo, unit: LogUnit) -> int | None:
    """The in-commit timestamp from the version on that has them, else the time of the file."""
    if unit.ict_from is not None and unit.version >= unit.ict_from:
        return info.in_commit_timestamp or unit.commit_ms
    return unit.commit_ms


def _checkpoint_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    """Rows of a Parquet checkpoint or sidecar, by column, without a Python object a row."""
    wanted = [name for name, kept in (("add", unit.adds), ("remove", unit.removes)) if kept]
    with read.parquet(location, unit.path) as file:
        for action in wanted:
            if action in file.schema_arrow.names:
                yield from _action_rows(file, action, unit=unit, root=TableRoot.of(location.path))


def _action_rows(
    file: pq.ParquetFile, action: str, *, unit: LogUnit, root: TableRoot
) -> Iterator[pa.RecordBatch]:
    names = ("path", "size", _TIMES[action], *(f"deletionVector.{name}" for name in _DV_FIELDS))
    columns = [f"{action}.{name}" for name in names]
    for batch in file.iter_batches(columns=columns, batch_size=_BATCH_ROWS * 4):
        structs = batch.column(action).drop_null()
        if len(structs):
            rows = _columns(structs, action, root=root, version=unit.version)
            if rows["log_path"].null_count:
                raise pa.ArrowInvalid(f"{action}.path is null")
            yield _only_keys(rows) if unit.keys else rows


def _only_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    kept = {"what", "log_key", "dv_id", "inside", "ord"}
    arrays = [
        rows[field.name] if field.name in kept else pa.nulls(len(rows), field.type)
        for field in ACTION_ARROW
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ACTION_ARROW)


def _columns(
    structs: pa.StructArray, action: str, *, root: TableRoot, version: int
) -> pa.RecordBatch:
    rows = len(structs)
    raw = _field(structs, "path", pa.string())
    time = _field(structs, _TIMES[action], pa.int64())
    is_add = action == "add"
    path, key, inside = _paths(raw, root)
    dv_id, dv_path = _deletion_vectors(structs, root)
    nothing = pa.nulls(rows, pa.int64())
    values = {
        "what": _constant(rows, value="file"),
        "log_key": key,
        "log_path": raw,
        "dv_id": dv_id,
        "path": path,
        "inside": inside,
        "dv_path": dv_path,
        "ord": _constant(rows, value=version * 2 + is_add),
        "version": nothing,
        "size": _field(structs, "size", pa.int64()),
        "modified_ms": time if is_add else nothing,
        "deletion_ms": nothing if is_add else pc.fill_null(time, 0),
        "operation": pa.nulls(rows, pa.string()),
        "commit_ms": nothing,
    }
    return pa.RecordBatch.from_arrays([values[f.name] for f in ACTION_ARROW], schema=ACTION_ARROW)


def _paths(raw: pa.Array, root: TableRoot) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Decoded path, replay key and whether inside; plain paths are all three at once."""
    odd = pc.match_substring_regex(raw, _ODD_PATH)
    if not pc.any(odd).as_py():
        return raw, raw, _constant(len(raw), value=True)
    spelled = pc.filter(raw, odd).to_pylist()
    found = [located(text, root) for text in spelled]
    path = pc.replace_with_mask(raw, odd, pa.array(found, pa.string()))
    key = pc.replace_with_mask(raw, odd, pa.array(map(canonical_key, spelled), pa.string()))
    within = pa.array([not is_outside(text) for text in found], pa.bool_())
    return path, key, pc.replace_with_mask(_constant(len(raw), value=True), odd, within)


def _deletion_vectors(structs: pa.StructArray, root: TableRoot) -> tuple[pa.Array, pa.Array]:
    """Id and file of each row's deletion vector; one Python call for each distinct vector file."""
    rows = len(structs)
    dv = _field(structs, "deletionVector", None)
    if dv.null_count == rows:
        return _constant(rows, value=""), pa.nulls(rows, pa.string())
    kind, where = _field(dv, "storageType", pa.string()), _field(dv, "pathOrInlineDv", pa.string())
    offset = _field(dv, "offset", pa.int64())
    at = pc.fill_null(pc.binary_join_element_wise("@", pc.cast(offset, pa.string()), ""), "")
    ids = pc.fill_null(pc.binary_join_element_wise(kind, where, at, ""), "")
    files: dict[tuple[str, str], str | None] = {}
    paths: list[str | None] = []
    for pair in zip(kind.to_pylist(), where.to_pylist(), strict=True):
        if pair[0] is None or pair[1] is None:
            paths.append(None)
            continue
        if pair not in files:
            files[pair] = _vector_path(pair[0], pair[1], root)
        paths.append(files[pair])
    return ids, pa.array(paths, pa.string())


def _field(structs: pa.Array, name: str, kind: pa.DataType | None) -> pa.Array:
    """A field of each struct, null where the struct or the whole field is missing."""
    if not pa.types.is_struct(structs.type) or structs.type.get_field_index(name) < 0:
        return pa.nulls(len(structs), kind or pa.null())
    found = pc.struct_field(structs, name)
    return found if kind is None else pc.cast(found, kind)


def _constant(rows: int, *, value: object) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)
