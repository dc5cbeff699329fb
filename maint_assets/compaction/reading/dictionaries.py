"""Pass text columns of few values through as dictionaries, without copying values.

Only the representation changes; memory is accounted as for plain text.

Arrow misreads dictionaries with duplicate values, so only files of writers that never
write one are read in this way.
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
"""Writers whose dictionaries have no duplicates: most files of Delta tables are theirs."""

_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
"""Arrow cannot read pages of other encodings as dictionaries."""

_LEAST_ROWS = 4096
"""Least rows of a row group: with fewer, merging dictionaries is slower than copying values."""

_MOST_BYTES = 4 * 1024 * 1024
"""Most bytes of a dictionary in a row group: each batch holds all values that came until then."""

_VALUE_BYTES = 4
"""A plain text value takes at least this many bytes in a page, for its length; an index fewer."""

_FEW_BYTES, _INDEX_BYTES = 2, 3
"""Compressed bytes a value: plain text is seldom below the first, indices never above the second.

A column that is mistaken for a dictionary of few values is read more slowly, but correctly.
"""

_BATCH_BYTES = 64 * 1024 * 1024
_SMALL_BYTES = 2 * 1024 * 1024

_TEXT = {pa.string(), pa.binary()}


def shared_dictionaries(
    files: Iterable[Callable[[], pq.ParquetFile]], target: FileSchema
) -> tuple[str, ...]:
    """The string and binary columns that all files hold as dictionaries of few values.

    Reads footers one after the other until no column is left. The columns
    are named as in ``target.arrow``. Empty if a file cannot be opened:
    the error is raised when it is read.
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
    """The schema with these columns as dictionaries."""
    for name in names:
        at = schema.get_field_index(name)
        schema = schema.set(at, as_dictionary(schema.field(at)))
    return schema


def as_dictionary(field: pa.Field) -> pa.Field:
    """The field as a dictionary field."""
    return field.with_type(pa.dictionary(pa.int32(), field.type))


def held_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the rows in memory as plain columns."""
    return sum(map(column_bytes, batch.columns))


def column_bytes(values: pa.Array) -> int:
    """Bytes of a column in memory as a plain column."""
    if isinstance(values, pa.DictionaryArray):
        return values.indices.nbytes + _text_bytes(values)
    return values.nbytes


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts that stay small as plain text, with dictionaries of only the values in use.

    A dictionary that is much larger than its rows, as after most of them were deleted,
    is rebuilt.
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
    """The columns of these types that a file holds as dictionaries of few values."""
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
    """Whether a column chunk consists of a small dictionary and of indices."""
    dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    pages = chunk.total_compressed_size - dictionary
    return 0 < dictionary < _FEW_BYTES * values and pages < _INDEX_BYTES * values


def _is_small(values: pa.DictionaryArray) -> bool:
    """Whether neither the dictionary nor the plain text is large for the number of rows."""
    dictionary, rows = values.dictionary, len(values)
    longest = int(_lengths(dictionary).max(initial=0))
    return dictionary.nbytes <= values.indices.nbytes and longest * rows <= _SMALL_BYTES


def _text_bytes(values: pa.DictionaryArray) -> int:
    """Bytes of the values as plain text; indices count as offsets."""
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
