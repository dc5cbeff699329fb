"""Read complete file actions, with every field, into Arrow batches, on executors."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maint_assets.delta.actions import Add, DeletionVector, Long, Remove, decoded_line
from maint_assets.delta.paths import canonical_key
from maint_assets.snapshot.log_units import action_fields, log_errors, unit_lines
from maint_assets.snapshot.whole.parsed_stats import (
    PARSED,
    int96_paths,
    json_stats,
    lacks_json_stats,
)
from maint_assets.snapshot.whole.schemas import FULL_ARROW
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.snapshot.schemas import LogUnit
    from maint_assets.storage.location import Location

_BATCH_ROWS = 16_384
_KEY_FIELDS = ("path", "deletionVector")
_REQUIRED = ("path", "partitionValues", "size", "modificationTime")
"""Fields of an add that readers or new checkpoints cannot do without."""


def full_actions_of(location: Location, units: Iterable[LogUnit]) -> Iterator[pa.RecordBatch]:
    """Read complete file actions from log files: FULL_ARROW.

    Raises CorruptLogError and LogGapError.
    """
    for unit in read.in_turn(location, units):
        with log_errors(location, unit):
            rows = _parquet_rows if unit.path.endswith(".parquet") else _json_rows
            yield from rows(location, unit)


def cast_to(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type. Struct fields are matched by name; missing ones are null."""
    if values.type.equals(kind):
        return values
    if not pa.types.is_struct(kind) or not pa.types.is_struct(values.type):
        return pc.cast(values, kind)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    children = [_child(values, field) for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())


def canonical_keys(path: pa.Array) -> pa.Array:
    """The replay key of each log path."""
    odd = pc.match_substring_regex(path, "%|^/|^file:")
    if not pc.any(odd).as_py():
        return path
    keys = [canonical_key(text) for text in pc.filter(path, odd).to_pylist()]
    return pc.replace_with_mask(path, odd, pa.array(keys, pa.string()))


def _child(structs: pa.Array, field: pa.Field) -> pa.Array:
    if structs.type.get_field_index(field.name) < 0:
        return pa.nulls(len(structs), field.type)
    return cast_to(pc.struct_field(structs, field.name), field.type)


def _parquet_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    wanted = [name for name, kept in (("add", unit.adds), ("remove", unit.removes)) if kept]
    source = read.opened(location, unit.path, size=unit.size).source
    # Year 9999, common in bounds, overflows Arrow's default of nanoseconds.
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        for action in wanted:
            if action in file.schema_arrow.names:
                yield from _action_rows(file, action, unit)


def _action_rows(file: pq.ParquetFile, action: str, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    there = set(action_fields(file.schema_arrow, action))
    wanted = [*_KEY_FIELDS] if unit.keys else FULL_ARROW.field(action).type.names
    parsed = action == "add" and not unit.keys and PARSED in there and lacks_json_stats(file)
    names = [name for name in (*wanted, *([PARSED] if parsed else [])) if name in there]
    for batch in _batches(file, [f"{action}.{name}" for name in names], unit):
        structs = batch.column(action).drop_null()
        if len(structs):
            yield _rows(_with_texts(structs, file) if parsed else structs, action, unit)


def _batches(file: pq.ParquetFile, columns: list[str], unit: LogUnit) -> Iterator[pa.RecordBatch]:
    """This unit's share of the file: of its row groups if there are enough, else of its batches."""
    groups = range(file.num_row_groups)
    if len(groups) >= unit.shares:
        mine = list(groups)[unit.share :: unit.shares]
        return file.iter_batches(columns=columns, row_groups=mine, batch_size=_BATCH_ROWS)
    batches = file.iter_batches(columns=columns, batch_size=_BATCH_ROWS)
    return islice(batches, unit.share, None, unit.shares)


def _with_texts(adds: pa.StructArray, file: pq.ParquetFile) -> pa.StructArray:
    """Fill missing JSON ``stats`` of adds from ``stats_parsed``."""
    texts = json_stats(pc.struct_field(adds, PARSED), int96_paths(file))
    columns = {field.name: pc.struct_field(adds, field.name) for field in adds.type}
    stats = columns.get("stats")
    columns["stats"] = texts if stats is None else pc.coalesce(pc.cast(stats, pa.string()), texts)
    del columns[PARSED]
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _rows(structs: pa.Array, action: str, unit: LogUnit) -> pa.RecordBatch:
    rows, is_add = len(structs), action == "add"
    found = cast_to(structs, FULL_ARROW.field(action).type)
    path, dv = pc.struct_field(found, "path"), pc.struct_field(found, "deletionVector")
    for name in _REQUIRED if is_add and not unit.keys else ("path",):
        if pc.struct_field(found, name).null_count:
            raise pa.ArrowInvalid(f"{action}.{name} is null")
    found = pa.nulls(rows, found.type) if unit.keys else _unchanged(found)
    other = "remove" if is_add else "add"
    columns = {
        "log_key": canonical_keys(path),
        "dv_id": _vector_ids(dv),
        "ord": pa.repeat(pa.scalar(unit.version * 2 + is_add, pa.int64()), rows),
        action: found,
        other: pa.nulls(rows, FULL_ARROW.field(other).type),
    }
    return pa.RecordBatch.from_arrays([columns[f.name] for f in FULL_ARROW], schema=FULL_ARROW)


def _unchanged(structs: pa.StructArray) -> pa.StructArray:
    """Set ``dataChange`` to false (PROTOCOL, "Action Reconciliation")."""
    fields = list(structs.type)
    false = pa.repeat(pa.scalar(value=False), len(structs))
    children = [
        false if field.name == "dataChange" else pc.struct_field(structs, field.name)
        for field in fields
    ]
    return pa.StructArray.from_arrays(children, fields=fields)


def _vector_ids(dv: pa.Array) -> pa.Array:
    if dv.null_count == len(dv):
        return pa.repeat(pa.scalar(""), len(dv))
    kind, where = pc.struct_field(dv, "storageType"), pc.struct_field(dv, "pathOrInlineDv")
    offset = pc.cast(pc.struct_field(dv, "offset"), pa.string())
    at = pc.fill_null(pc.binary_join_element_wise("@", offset, ""), "")
    return pc.fill_null(pc.binary_join_element_wise(kind, where, at, ""), "")


class _Vector(DeletionVector, frozen=True):
    """A deletion vector with the field that delta-spark adds."""

    max_row_index: Long | None = None


class _Add(Add, frozen=True):
    """An add with its complete deletion vector.

    Unlike in ``Add``, missing partition values are None, not the values of an unpartitioned table.
    """

    partition_values: dict[str, str | None] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    deletion_vector: _Vector | None = None


class _Remove(Remove, frozen=True):
    """A remove with all fields that a checkpoint keeps."""

    deletion_vector: _Vector | None = None
    extended_file_metadata: bool | None = None
    tags: dict[str, str | None] | None = None
    stats: str | None = None


class _Line(msgspec.Struct, frozen=True):
    """The file action of a line; both None for other actions."""

    add: _Add | None = None
    remove: _Remove | None = None


_LINE = msgspec.json.Decoder(_Line)


def _json_rows(location: Location, unit: LogUnit) -> Iterator[pa.RecordBatch]:
    adds: list[dict[str, Any]] = []
    removes: list[dict[str, Any]] = []
    name = unit.path.rpartition("/")[2]
    for line in unit_lines(location, unit):
        found = decoded_line(line, _LINE, table=location.uri, file=name)
        if found.add is not None and unit.adds:
            adds.append(_add(found.add))
        if found.remove is not None and unit.removes:
            removes.append(msgspec.to_builtins(found.remove))
        if len(adds) + len(removes) >= _BATCH_ROWS:
            yield from _both(adds, removes, unit)
            adds, removes = [], []
    yield from _both(adds, removes, unit)


def _add(add: _Add) -> dict[str, Any]:
    """All fields of an add, including those that msgspec omits as defaults."""
    return {"modificationTime": add.modification_time} | msgspec.to_builtins(add)


def _both(
    adds: list[dict[str, Any]], removes: list[dict[str, Any]], unit: LogUnit
) -> Iterator[pa.RecordBatch]:
    for action, found in (("add", adds), ("remove", removes)):
        if found:
            yield _rows(pa.array(found, FULL_ARROW.field(action).type), action, unit)
