"""Whether files are there: the look after the deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.storage import read
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.pandas._typing import ArrowMapIterFunction as ArrowFunction


def missing_files(valid_files: DataFrame, *, table: str) -> DataFrame:
    """The active paths that are not there, each once a reason; column ``path``."""
    active = valid_files.where("reason in ('active', 'active_dv')").select("path")
    return active.mapInArrow(_missing(table), "path string")


def _missing(table: str) -> ArrowFunction:
    def missing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        location = Location(table, table)
        for batch in batches:
            paths = batch.column("path").to_pylist()
            gone = [path for path in paths if not read.exists(location, path)]
            yield pa.RecordBatch.from_pydict({"path": pa.array(gone, pa.string())})

    return missing
