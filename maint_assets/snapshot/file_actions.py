"""Read file actions from commits and checkpoints into Arrow batches, on executors."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.paths import TableRoot
from maint_assets.snapshot.commit_rows import JsonRows
from maint_assets.snapshot.log_units import action_fields, log_errors
from maint_assets.snapshot.resolved_paths import resolved_columns, vector_path
from maint_assets.snapshot.schemas import ACTION_ARROW, add_order, remove_order
from maint_assets.storage import read
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.parquet as pq

    from maint_assets.snapshot.schemas import LogUnit

_BATCH_ROWS = 65_536
_TIMES = {"add": "modificationTime", "remove": "deletionTimestamp"}
_DV_FIELDS = ("storageType", "pathOrInlineDv", "offset")


def actions_of(location: Location, units: Iterable[LogUnit]) -> Iterator[pa.RecordBatch]:
    """Read file actions, and a row per commit, from log files: ACTION_SCHEMA.

    Adds of commits up to a checkpoint are left out where the checkpoint's row was read before: it
    wins anyway. Raises CorruptLogError and LogGapError.
    """
    in_json = JsonRows(location)
    for unit in read.in_turn(location, units):
        if not unit.path.endswith(".parquet"):
            yield from in_json.read(unit)
            continue
        with log_errors(location, unit):
            for rows in _checkpoint_rows(location, unit):
                in_json.pass_over(rows)
                yield rows
    yield from in_json.rest()


def _checkpoint_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    """Read a Parquet checkpoint or sidecar by column, without a Python object per row."""
    wanted = [name for name, kept in (("add", unit.adds), ("remove", unit.removes)) if kept]
    with read.parquet(location, unit.path) as file:
        for action in wanted:
            if action in file.schema_arrow.names:
                yield from _action_rows(file, action, unit=unit, root=TableRoot.of(location.uri))


def _action_rows(
    file: pq.ParquetFile, action: str, *, unit: LogUnit, root: TableRoot
) -> Iterator[pa.RecordBatch]:
    action_fields(file.schema_arrow, action)
    names = ("path", "size", _TIMES[action], *(f"deletionVector.{name}" for name in _DV_FIELDS))
    columns = [f"{action}.{name}" for name in names]
    batches = file.iter_batches(columns=columns, batch_size=_BATCH_ROWS)
    # Tasks that share a large file take its batches in turn.
    for batch in islice(batches, unit.share, None, unit.shares):
        structs = batch.column(action).drop_null()
        if len(structs):
            order = add_order(unit) if action == "add" else remove_order(unit)
            rows = _columns(structs, action, root=root, order=order)
            # ``log_errors`` makes a CorruptLogError of it, which names the file.
            if rows["log_path"].null_count:
                raise pa.ArrowInvalid(f"{action}.path is null")
            if action == "add" and rows["size"].null_count:
                raise pa.ArrowInvalid("add.size is null")
            yield _only_keys(rows) if unit.keys else rows


def _only_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    kept = {"what", "log_key", "dv_id", "inside", "ord"}
    arrays = [
        rows[field.name] if field.name in kept else pa.nulls(len(rows), field.type)
        for field in ACTION_ARROW
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ACTION_ARROW)


def _columns(
    structs: pa.StructArray, action: str, *, root: TableRoot, order: int
) -> pa.RecordBatch:
    rows = len(structs)
    raw = _field(structs, "path", pa.string())
    time = _field(structs, _TIMES[action], pa.int64())
    is_add = action == "add"
    path, key, inside = resolved_columns(raw, root)
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
        "ord": _constant(rows, value=order),
        "version": nothing,
        "size": _field(structs, "size", pa.int64()),
        "modified_ms": time if is_add else nothing,
        # PROTOCOL leaves the time out where it is unknown; delta-spark takes it for 0.
        "deletion_ms": nothing if is_add else pc.fill_null(time, 0),
        "operation": pa.nulls(rows, pa.string()),
        "commit_ms": nothing,
    }
    return pa.RecordBatch.from_arrays([values[f.name] for f in ACTION_ARROW], schema=ACTION_ARROW)


def _deletion_vectors(structs: pa.StructArray, root: TableRoot) -> tuple[pa.Array, pa.Array]:
    """Unique id and file of each row's deletion vector. Each distinct file is resolved once."""
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
            files[pair] = vector_path(pair[0], pair[1], root)
        paths.append(files[pair])
    return ids, pa.array(paths, pa.string())


def _field(structs: pa.Array, name: str, kind: pa.DataType | None) -> pa.Array:
    """A field of each struct; null if the struct is null or lacks the field."""
    if not pa.types.is_struct(structs.type) or structs.type.get_field_index(name) < 0:
        return pa.nulls(len(structs), kind or pa.null())
    found = pc.struct_field(structs, name)
    return found if kind is None else pc.cast(found, kind)


def _constant(rows: int, *, value: object) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)
