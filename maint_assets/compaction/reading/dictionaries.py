"""Text of few values stays a dictionary from data files to the new one: no value is copied.

Only how columns are held changes. What counts for memory is what they would take as plain text.

Arrow misreads a dictionary in which a value stands twice, so only files of writers that never
write such a one are read in this way.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.errors import MaintError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from maint_assets.compaction.columns.physical import FileSchema

_WRITERS = (
    "parquet-mr version ",
    "parquet-cpp-arrow version ",
    "parquet-rs version ",
    "delta-rs version ",
)
"""Their encoders look each value up before they add it; most files of Delta tables are theirs."""

_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
"""Pages of others Arrow cannot read as dictionaries."""

_LEAST_ROWS = 4096
"""Of a row group: with fewer rows it takes longer to merge dictionaries than to copy values."""

_MOST_BYTES = 4 * 1024 * 1024
"""Of a column in a row group: each batch of it holds all values that came until then."""

_VALUE_BYTES = 4
"""A value of text takes more than so many bytes in a page unless it is an index: its length."""

_FEW_BYTES, _INDEX_BYTES = 2, 3
"""Compressed, for each value: text that differs seldom takes so little, an index never more.

What is taken for a dictionary of few values by mistake is read more slowly, and as right.
"""

_BATCH_BYTES = 64 * 1024 * 1024
_SMALL_BYTES = 2 * 1024 * 1024

_TEXT = {pa.string(), pa.binary()}


def shared_dictionaries(
    files: Iterable[Callable[[], pq.ParquetFile]], target: FileSchema
) -> tuple[str, ...]:
    """The columns of text or bytes that all files hold as dictionaries of few values.

    Looks at footers of files, opened one after the other, until no column is left. The columns
    are named as in the files, which is as in ``target.arrow``. None where a file cannot be opened:
    whoever reads it will say so.
    """
    if target.by_id:  # names of columns mean something else in each file
        return ()
    columns = list(target.arrow)[: len(target.data)]
    # A name with a dot may be taken for the path of a field.
    found = {
        each.name: each.type for each in columns if each.type in _TEXT and "." not in each.name
    }
    for opened in files:
        if not found:
            break
        try:
            with closing(opened()) as file:
                kept = _dictionaries(file, found)
        except (MaintError, OSError, pa.ArrowException):
            return ()
        found = {name: found[name] for name in kept}
    return tuple(found)


def with_dictionaries(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The schema where these columns hold dictionaries."""
    for name in names:
        at = schema.get_field_index(name)
        schema = schema.set(at, as_dictionary(schema.field(at)))
    return schema


def as_dictionary(field: pa.Field) -> pa.Field:
    """The column as one that holds dictionaries."""
    return field.with_type(pa.dictionary(pa.int32(), field.type))


def held_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of the rows in memory if no column held a dictionary."""
    return sum(map(column_bytes, batch.columns))


def column_bytes(values: pa.Array) -> int:
    """The bytes of a column in memory if it held no dictionary."""
    if isinstance(values, pa.DictionaryArray):
        return values.indices.nbytes + _text_bytes(values)
    return values.nbytes


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, at once or in parts: none is large as plain text, or has values it does not need.

    A dictionary that is larger than what the rows hold of it, as after most of them were deleted,
    is made anew.
    """
    held = {
        at: values
        for at, values in enumerate(batch.columns)
        if isinstance(values, pa.DictionaryArray)
    }
    if all(_is_small(values) for values in held.values()):
        yield batch
        return
    texts = {at: _text_bytes(values) for at, values in held.items()}
    if sum(texts.values()) > _BATCH_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from bounded(batch.slice(0, half))
        yield from bounded(batch.slice(half))
        return
    for at, size in texts.items():
        if held[at].dictionary.nbytes > size:
            anew = held[at].dictionary_decode().dictionary_encode()
            batch = batch.set_column(at, batch.schema.field(at), anew)
    yield batch


def _dictionaries(file: pq.ParquetFile, wanted: dict[str, pa.DataType]) -> list[str]:
    """Which columns of these types a file holds as dictionaries of few values."""
    footer = file.metadata
    if (
        not footer.num_row_groups
        or footer.num_rows < _LEAST_ROWS * footer.num_row_groups
        or not (footer.created_by or "").startswith(_WRITERS)
    ):
        return []
    stored = file.schema_arrow
    same = {
        name
        for name, kind in wanted.items()
        # The place is -1, too, if two columns have the name.
        if (at := stored.get_field_index(name)) >= 0 and stored.field(at).type == kind
    }
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    paths = [column.path_in_schema for column in map(groups[0].column, range(footer.num_columns))]
    return [
        path
        for at, path in enumerate(paths)
        if path in same and all(_is_dictionary(group.column(at)) for group in groups)
    ]


def _is_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    # Encodings do not tell whether all pages are: Arrow names the one of the dictionary as well.
    if not chunk.has_dictionary_page or not _ENCODINGS.issuperset(chunk.encodings):
        return False
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return False
    values, size = chunk.num_values - statistics.null_count, chunk.total_uncompressed_size
    return size < _MOST_BYTES and (size < _VALUE_BYTES * values or _has_few(chunk, values))


def _has_few(chunk: pq.ColumnChunkMetaData, values: int) -> bool:
    """Whether a chunk of so many values is made of a small dictionary and of indices."""
    dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    pages = chunk.total_compressed_size - dictionary
    return 0 < dictionary < _FEW_BYTES * values and pages < _INDEX_BYTES * values


def _is_small(values: pa.DictionaryArray) -> bool:
    """Whether neither its dictionary nor its texts can be large for its rows."""
    dictionary, rows = values.dictionary, len(values)
    longest = int(_lengths(dictionary).max(initial=0))
    return dictionary.nbytes <= values.indices.nbytes and longest * rows <= _SMALL_BYTES


def _text_bytes(values: pa.DictionaryArray) -> int:
    """The bytes of its texts; those of its indices are those of offsets."""
    dictionary, indices = values.dictionary, values.indices
    if not len(dictionary):
        return 0
    if indices.null_count:
        return pc.sum(pc.binary_length(dictionary).take(indices)).as_py() or 0
    return int(_lengths(dictionary)[indices.to_numpy()].sum())


def _lengths(texts: pa.Array) -> NDArray[np.int32]:
    if not len(texts):
        return np.array([], np.int32)
    start = np.dtype(np.int32).itemsize * texts.offset
    return np.diff(np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, start))
