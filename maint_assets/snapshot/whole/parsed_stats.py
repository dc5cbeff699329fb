"""Convert parsed statistics back to JSON, for checkpoints that contain only ``stats_parsed``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow.parquet as pq

PARSED = "stats_parsed"

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_INFINITIES = {math.inf: "Infinity", -math.inf: "-Infinity"}


def lacks_json_stats(file: pq.ParquetFile) -> bool:
    """Whether some adds of a checkpoint lack JSON statistics."""
    columns = {file.schema.column(at).path: at for at in range(len(file.schema))}
    if "add.stats" not in columns:
        return True
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    return any(
        (nulls := _nulls(group, columns["add.stats"])) is None
        or nulls != _nulls(group, columns["add.path"])
        for group in groups
    )


def _nulls(group: pq.RowGroupMetaData, column: int) -> int | None:
    """Null count of a column by the footer; None if unknown."""
    found = group.column(column).statistics
    return found.null_count if found is not None and found.has_null_count else None


def int96_paths(file: pq.ParquetFile) -> frozenset[tuple[str, ...]]:
    """Paths of INT96 columns in ``stats_parsed``: UTC timestamps, though Arrow reads no zone."""
    leaves = (file.schema.column(at) for at in range(len(file.schema)))
    paths = (leaf.path.split(".") for leaf in leaves if leaf.physical_type == "INT96")
    return frozenset(tuple(path[2:]) for path in paths if path[:2] == ["add", PARSED])


def json_stats(parsed: pa.StructArray, moments: frozenset[tuple[str, ...]]) -> pa.Array:
    """JSON statistics of each row, null if there are none.

    ``moments``: the ``int96_paths`` of the source file.
    """
    printable = _printable(parsed, (), moments)
    rows = cast("Iterable[dict[str, Any] | None]", printable.to_pylist())
    texts = (None if row is None else _ENCODER.encode(_present(row)).decode() for row in rows)
    return pa.array(texts, pa.string())


def _printable(
    values: pa.Array, path: tuple[str, ...], moments: frozenset[tuple[str, ...]]
) -> pa.Array:
    """Convert timestamps to Delta's text form, and drop values that have no JSON form."""
    kind = values.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind if _has_text(field.type)]
        if not names:
            return pa.nulls(len(values))
        fields = [(pc.struct_field(values, name), (*path, name)) for name in names]
        children = [_printable(field, below, moments) for field, below in fields]
        return pa.StructArray.from_arrays(children, names=names, mask=values.is_null())
    if pa.types.is_timestamp(kind):
        return _timestamp_texts(values, zone="Z" if kind.tz or path in moments else "")
    return pc.cast(values, pa.string()) if pa.types.is_date(kind) else values


def _timestamp_texts(values: pa.Array, *, zone: str) -> pa.Array:
    """ISO 8601 in ms, as delta-spark writes it, or in microseconds if needed."""
    local = pc.cast(pc.cast(values, pa.timestamp("us")), pa.string())
    text = pc.replace_substring(local, " ", "T")
    whole = pc.replace_substring_regex(text, r"(\.\d{3})000$", r"\1")
    return pc.binary_join_element_wise(whole, zone, "")


def _has_text(kind: pa.DataType) -> bool:
    """Whether a type has a JSON form; the binary parts of a variant have none."""
    if pa.types.is_struct(kind):
        return not any(pa.types.is_binary(field.type) for field in kind)
    return not pa.types.is_binary(kind)


def _present(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return _present(cast("dict[str, Any]", value))
    if isinstance(value, float) and not math.isfinite(value):
        return _INFINITIES.get(value, "NaN")
    return value
