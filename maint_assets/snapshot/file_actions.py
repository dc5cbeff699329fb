"""How executors read the file actions of commits and checkpoints: bytes in, Arrow rows out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.actions import parse_action
from maint_assets.delta.deletion_vectors import file_path
from maint_assets.delta.paths import TableRoot, canonical_key, is_outside
from maint_assets.errors import CorruptLogError, LogGapError, MaintError
from maint_assets.snapshot.places import located, through_links
from maint_assets.snapshot.schemas import ACTION_ARROW
from maint_assets.storage import read
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.parquet as pq

    from maint_assets.delta.actions import Action, Add, CommitInfo, DeletionVector, Remove

_BATCH_ROWS = 16_384
_ODD_PATH = r"%|:|\\|^/|//|(^|/)\.\.?(/|$)"
_TIMES = {"add": "modificationTime", "remove": "deletionTimestamp"}
_DV_FIELDS = ("storageType", "pathOrInlineDv", "offset")


class LogUnit(msgspec.Struct, frozen=True):
    """One file of the log to read: ``commit_ms`` is None for checkpoints and sidecars."""

    path: str
    version: int
    size: int
    commit_ms: int | None = None
    ict_from: int | None = None
    adds: bool = True
    removes: bool = True


class LogUnits(msgspec.Struct, frozen=True):
    """The files that one task reads, and the table that they belong to."""

    table: str
    units: list[LogUnit]


def read_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The actions of all files named in the ``units`` column; a bad file is a marked error."""
    for batch in batches:
        for text in batch.column("units").to_pylist():
            try:
                yield from _task_rows(msgspec.json.decode(text, type=LogUnits))
            except MaintError as error:
                raise RuntimeError(error.marked()) from error


def _task_rows(task: LogUnits) -> Iterator[pa.RecordBatch]:
    location = Location(task.table, task.table)
    for unit in task.units:
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
            f"{name} cannot be read ({error})",
            "restore it from a backup or a replica",
        ) from error


@dataclass(slots=True)
class _Rows:
    """Columns under construction, in the order of ACTION_ARROW."""

    columns: list[list[Any]] = field(default_factory=lambda: [[] for _ in ACTION_ARROW])

    def append(self, *values: object) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self.columns[0])

    def batch(self) -> pa.RecordBatch:
        arrays = [pa.array(c, f.type) for c, f in zip(self.columns, ACTION_ARROW, strict=True)]
        self.columns = [[] for _ in ACTION_ARROW]
        return pa.RecordBatch.from_arrays(arrays, schema=ACTION_ARROW)


def _json_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    root, rows, info = TableRoot.of(location.path), _Rows(), None
    name = unit.path.rpartition("/")[2]
    for line in read.lines(location, unit.path):
        action = parse_action(line, table=location.uri, file=name)
        info = action.commitInfo or info
        _append(rows, action, unit=unit, root=root)
        if len(rows) >= _BATCH_ROWS:
            yield rows.batch()
    if unit.commit_ms is not None:
        when, operation = _commit_ms(info, unit), info.operation if info else None
        rows.append(
            True, str(unit.version), "", None, False, None, unit.version * 2, unit.version,
            None, None, None, operation or "unknown", when,
        )  # fmt: skip
    if len(rows):
        yield rows.batch()


def _append(rows: _Rows, action: Action, *, unit: LogUnit, root: TableRoot) -> None:
    version = None if unit.commit_ms is None else unit.version
    if action.add is not None and unit.adds:
        _append_file(
            rows, action.add, root,
            ord_=unit.version * 2 + 1, version=version, modified_ms=action.add.modification_time,
        )  # fmt: skip
    if action.remove is not None and unit.removes:
        _append_file(
            rows, action.remove, root,
            ord_=unit.version * 2, version=version,
            deletion_ms=action.remove.deletion_timestamp or 0,
        )  # fmt: skip


def _append_file(  # noqa: PLR0913
    rows: _Rows,
    file: Add | Remove,
    root: TableRoot,
    *,
    ord_: int,
    version: int | None,
    modified_ms: int | None = None,
    deletion_ms: int | None = None,
) -> None:
    path, dv = located(file.path, root), file.deletion_vector
    rows.append(
        False, canonical_key(file.path), dv.unique_id if dv else "", path, not is_outside(path),
        _dv_path(dv, root), ord_, version, file.size, modified_ms, deletion_ms, None, None,
    )  # fmt: skip


def _dv_path(dv: DeletionVector | None, root: TableRoot) -> str | None:
    return None if dv is None else _vector_path(dv.storage_type, dv.path_or_inline_dv, root)


def _vector_path(kind: str, named: str, root: TableRoot) -> str | None:
    found = file_path(kind, named, root)
    return None if found is None else through_links(found, root)


def _commit_ms(info: CommitInfo | None, unit: LogUnit) -> int | None:
    """The in-commit timestamp from the version on that has them, else the time of the file."""
    if unit.ict_from is not None and unit.version >= unit.ict_from and info is not None:
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
            yield _columns(structs, action, root=root, version=unit.version)


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
        "is_commit": _constant(rows, value=False),
        "log_key": key,
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
