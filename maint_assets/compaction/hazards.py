"""Why Arrow must not rewrite a file: it would read other values than Spark does (O9)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.compaction.constants import constant
from maint_assets.compaction.matching import MismatchError, matches, sources
from maint_assets.compaction.row_ids import RowIds
from maint_assets.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow.parquet as pq

    from maint_assets.compaction.matching import Source
    from maint_assets.compaction.physical import FileSchema
    from maint_assets.delta.actions import Add

_SPARK_VERSION = b"org.apache.spark.version"
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_LEGACY_DATES = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
# From these versions of Spark on the calendar is ISO's unless a legacy key says otherwise.
_ISO_DATES, _ISO_INT96 = (3, 0), (3, 1)


def hazard(file: pq.ParquetFile, add: Add, target: FileSchema) -> str | None:
    """Why the file must be rewritten by Spark, or not at all; None if Arrow may do it.

    Only the footer is looked at: the file as ``data_file`` opens it.
    """
    try:
        columns = sources(file)
        matches(columns, target)
        for field in target.partitions:
            constant(field, add.partition_values.get(field.physical_name))
        if target.row_tracking is not None:
            RowIds.of(add, columns, target.row_tracking)
    except (MismatchError, pa.ArrowException) as error:
        return one_line(error)
    leaves = [leaf for column in columns for leaf in column.leaves()]
    return _of_calendar(file.metadata.metadata or {}, leaves) or _of_units(leaves)


def _of_calendar(footer: Mapping[bytes, bytes], leaves: Iterable[Source]) -> str | None:
    """Whether days and moments may be of the calendar that Spark had before 3.0."""
    leaves = list(leaves)
    if any(leaf.int96 for leaf in leaves) and _is_legacy(footer, _LEGACY_INT96, _ISO_INT96):
        return "its int96 moments may be of the Julian calendar, which only Spark converts"
    if any(_is_dated(leaf) for leaf in leaves) and _is_legacy(footer, _LEGACY_DATES, _ISO_DATES):
        return "its dates and moments may be of the Julian calendar, which only Spark converts"
    return None


def _is_legacy(footer: Mapping[bytes, bytes], key: bytes, iso: tuple[int, int]) -> bool:
    """As Spark decides it, but Spark 2, which does not name its version, is legacy too."""
    version = footer.get(_SPARK_VERSION)
    if key in footer:
        return True
    if version is None:
        return _SPARK_SCHEMA in footer
    numbers = re.match(rb"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) < iso


def _is_dated(leaf: Source) -> bool:
    """Days and moments, but for local times: Spark never had those before 3.0."""
    if leaf.int96:
        return False
    kind = leaf.type
    return pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)


def _of_units(leaves: Iterable[Source]) -> str | None:
    for leaf in leaves:
        if pa.types.is_timestamp(leaf.type) and leaf.type.unit == "ns" and not leaf.int96:
            return f"column {leaf.name} holds nanoseconds, and a Delta table microseconds"
    return None
