"""Check that Delta Spark can load a checkpoint file: its codecs, types and nulls.

Arrow reads more than Spark does. A type is refused only where Delta Spark fails on it; fields that
are absent, or not listed here, are ignored (PROTOCOL.md, "Checkpoint Schema").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow.parquet as pq

_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "LZ4_RAW", "ZSTD"}
"""The codecs that Spark ships with; it has none for Brotli."""

REQUIRED = {
    "add": ("path", "size", "modificationTime", "dataChange"),
    "remove": ("path",),
    "metaData": ("configuration", "partitionColumns", "format"),
}
"""The required fields of each kind of action."""

_LINE = msgspec.json.Decoder(dict[str, Any])


def refuse_unloadable(file: pq.ParquetFile) -> None:
    """Raise TypeError for a checkpoint file that Spark cannot load, by its footer."""
    wrong = _unloadable(file)
    if wrong:
        raise TypeError(f"Spark cannot load it: {wrong}")


def lacking(batch: pa.RecordBatch) -> str | None:
    """The first required field that is missing or null in an action of a batch; None if none is."""
    for action, names in REQUIRED.items():
        if action not in batch.schema.names:
            continue
        rows: Any = batch[action].drop_null()
        for name in names if len(rows) else ():
            if rows.type.get_field_index(name) < 0:
                return f"{action}.{name} is missing"
            if pc.struct_field(rows, name).null_count:
                return f"{action}.{name} is null"
    return None


def lacking_in_json(line: bytes) -> str | None:
    """The first required field that is missing in a line of a JSON checkpoint; None if none is.

    Delta Spark reads such a line, but Delta Kernel does not. Raises msgspec's errors.
    """
    actions = _LINE.decode(line)
    for action, names in REQUIRED.items():
        fields: dict[str, Any] = actions.get(action) or {}
        missing = next((name for name in names if fields.get(name) is None), None)
        if fields and missing is not None:
            return f"{action}.{missing} is missing"
    return None


def _unloadable(file: pq.ParquetFile) -> str | None:
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    codecs = {group.column(at).compression for group in groups for at in range(group.num_columns)}
    if not codecs <= _CODECS:
        return f"it is compressed by {', '.join(sorted(codecs - _CODECS))}"
    for column in file.schema_arrow:
        wanted = _TYPES.get(column.name)
        if wanted is None:
            continue
        if not pa.types.is_struct(column.type):
            return f"{column.name} is a column of {column.type}"
        for field in column.type:
            if field.name in wanted and not wanted[field.name](_plain(field.type)):
                return f"{column.name}.{field.name} is of the type {field.type}"
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def _is_int(kind: pa.DataType) -> bool:
    return kind in {pa.int8(), pa.int16(), pa.int32()}


def _is_long(kind: pa.DataType) -> bool:
    """An integer that Spark can load as a long. It takes unsigned 64-bit integers for decimals."""
    return pa.types.is_integer(kind) and kind != pa.uint64()


def _is_time(kind: pa.DataType) -> bool:
    return _is_long(kind) or pa.types.is_timestamp(kind)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        holds(kind)
        for holds in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
        )
    )


def _is_map(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.MapType) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_list(kind: pa.DataType) -> bool:
    listed = isinstance(kind, (pa.ListType, pa.LargeListType))
    return listed and _is_text(_plain(kind.value_type))


_FILE: Mapping[str, Callable[[pa.DataType], bool]] = {
    "path": _is_text,
    "partitionValues": _is_map,
    "size": _is_long,
    "tags": _is_map,
    "dataChange": pa.types.is_boolean,
    "deletionVector": pa.types.is_struct,
    "stats": _is_text,
    "baseRowId": _is_long,
    "defaultRowCommitVersion": _is_long,
}
_TYPES: Mapping[str, Mapping[str, Callable[[pa.DataType], bool]]] = {
    "add": {**_FILE, "modificationTime": _is_time, "clusteringProvider": _is_text},
    "remove": {**_FILE, "deletionTimestamp": _is_time},
    "protocol": {
        "minReaderVersion": _is_int,
        "minWriterVersion": _is_int,
        "readerFeatures": _is_list,
        "writerFeatures": _is_list,
    },
    "metaData": {
        "id": _is_text,
        "schemaString": _is_text,
        "format": pa.types.is_struct,
        "partitionColumns": _is_list,
        "configuration": _is_map,
        "createdTime": _is_time,
    },
    "txn": {"appId": _is_text, "version": _is_long, "lastUpdated": _is_time},
    "domainMetadata": {
        "domain": _is_text,
        "configuration": _is_text,
        "removed": pa.types.is_boolean,
    },
    "sidecar": {"path": _is_text, "sizeInBytes": _is_long},
    "checkpointMetadata": {"version": _is_long},
}
