"""Text of few values stays a dictionary from a data file to the new one: no value is copied.

Only how columns are held changes. What counts for memory is what they would take as plain text,
so that they may become that at any time.

Arrow misreads a dictionary in which a value stands twice, so only files of writers that never
write such a one are read in this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow.parquet as pq

_MOST_BYTES = 4
"""A value of text takes more than so many bytes in a page unless it is an index: its length."""

_WRITERS = (
    "parquet-mr version ",
    "parquet-cpp-arrow version ",
    "parquet-rs version ",
    "delta-rs version ",
)
"""Their encoders look each value up before they add it; most files of Delta tables are theirs."""

_TEXT = "BYTE_ARRAY"
_SHORT = 64


def dictionary_columns(file: pq.ParquetFile) -> tuple[str, ...]:
    """The columns of text or bytes that may be read as dictionaries, by the footer."""
    leaves = [file.schema.column(at) for at in range(len(file.schema))]
    text = [at for at, leaf in enumerate(leaves) if _is_flat_text(leaf)]
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    if not groups or not (file.metadata.created_by or "").startswith(_WRITERS):
        return ()
    return tuple(
        leaves[at].name for at in text if all(_is_dictionary(each.column(at)) for each in groups)
    )


def as_dictionary(field: pa.Field) -> pa.Field:
    """The column as one that holds dictionaries."""
    return field.with_type(pa.dictionary(pa.int32(), field.type))


def dictionaries_of(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that hold dictionaries."""
    return tuple(field.name for field in schema if pa.types.is_dictionary(field.type))


def held_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of the rows in memory if no column held a dictionary."""
    return batch.nbytes + sum(
        _decoded_bytes(values) for values in batch.columns if isinstance(values, pa.DictionaryArray)
    )


def common_schema(batches: Sequence[pa.RecordBatch], plain: pa.Schema) -> pa.Schema:
    """The plain schema where a column holds dictionaries that does so in each of the batches."""
    kept = set(dictionaries_of(batches[0].schema)) if batches else set()
    for batch in batches[1:]:
        kept.intersection_update(dictionaries_of(batch.schema))
    return pa.schema(
        [as_dictionary(field) if field.name in kept else field for field in plain], plain.metadata
    )


def conformed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows of the batches in a schema that differs only in what is held as a dictionary."""
    return [
        batch
        if batch.schema.equals(schema)
        else pa.RecordBatch.from_arrays(
            [_held_as(batch.column(at), field.type) for at, field in enumerate(schema)],
            schema=schema,
        )
        for batch in batches
    ]


def _held_as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    return plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain


def _is_flat_text(leaf: pq.ColumnSchema) -> bool:
    return (
        leaf.physical_type == _TEXT
        and leaf.path == leaf.name
        and leaf.max_repetition_level == 0
        and leaf.max_definition_level <= 1
    )


def _is_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    # Encodings do not tell whether all pages are: Arrow names the one of the dictionary as well.
    few = chunk.total_uncompressed_size < _MOST_BYTES * chunk.num_values
    return bool(chunk.has_dictionary_page) and few


def _decoded_bytes(values: pa.DictionaryArray) -> int:
    """About as many as its texts would take, and not fewer; its indices count as offsets."""
    dictionary = values.dictionary
    if not len(dictionary):
        return 0
    start = np.dtype(np.int32).itemsize * dictionary.offset
    offsets = np.frombuffer(dictionary.buffers()[1], np.int32, len(dictionary) + 1, start)
    longest = int(np.diff(offsets).max(initial=0))
    if longest <= _SHORT:
        return longest * len(values)
    return pc.sum(pc.binary_length(dictionary).take(values.indices)).as_py() or 0
