"""Batch sizes for reading data files: as many rows as take a moderate number of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.compaction.reading.dictionaries import held_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.parquet as pq

_MOST_ROWS, _LEAST_ROWS = 65_536, 256
_PROBE_ROWS = 1024
_BATCH_BYTES = 16 * 1024 * 1024


class RowWidth:
    """Bytes of a row in memory, learned from the files read before.

    Repetitive text is small in a file and large in memory. So the first rows of a file
    are read twice, unless similar files, with about as many bytes a row, were read before.
    """

    def __init__(self) -> None:
        self._stored = self._held = 0.0

    def batches(self, file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """All rows of these columns in order."""
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        stored = max((each.total_byte_size / max(each.num_rows, 1) for each in groups), default=0)
        width, is_long = stored, file.metadata.num_rows > 4 * _PROBE_ROWS
        if is_long and (repeated := _repeated(file, columns)):
            if not self._stored / 2 <= stored <= self._stored * 2:
                some = next(file.iter_batches(_PROBE_ROWS, columns=repeated, use_threads=False))
                self._stored, self._held = stored, held_bytes(some) / max(some.num_rows, 1)
            width = max(stored, self._held)
        rows = min(max(int(_BATCH_BYTES / max(width, 1)), _LEAST_ROWS), _MOST_ROWS)
        # One thread a file: the tasks of Spark are what runs at once.
        for batch in file.iter_batches(rows, columns=columns, use_threads=False):
            if is_long and batch.num_rows:
                self._held = max(self._held, held_bytes(batch) / batch.num_rows)
            yield batch


def _repeated(file: pq.ParquetFile, columns: list[str]) -> list[str]:
    """The columns whose values may be small in the file and large in memory."""
    leaves = (file.schema.column(at) for at in range(len(file.schema)))
    found = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"}
    return [name for name in columns if name in found]
