"""Hazards: files of which Arrow would read other values than Spark does.

Those that Spark preserves are rewritten by Spark, the others are left as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from maint_assets.compaction.columns.physical import has_variants
from maint_assets.compaction.reading.matching import MismatchError, matches, sources
from maint_assets.compaction.reading.partition_constants import constant
from maint_assets.compaction.reading.row_ids import RowIds
from maint_assets.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow.parquet as pq
    from typing_extensions import Self

    from maint_assets.compaction.columns.physical import FileSchema
    from maint_assets.compaction.reading.matching import Source
    from maint_assets.delta.actions import Add

_SPARK_VERSION = b"org.apache.spark.version"
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_LEGACY_DATES = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
_OF_SPARK = {_SPARK_SCHEMA, _LEGACY_DATES, _LEGACY_INT96}
_NUMBERS = re.compile(rb"(\d+)\.(\d+)")
# From these versions of Spark on the calendar is ISO's unless a legacy key says otherwise.
_ISO_DATES, _ISO_INT96 = (3, 0), (3, 1)


@dataclass(frozen=True, slots=True)
class Hazard:
    """Why Arrow must not rewrite a file; ``engine`` is the one that may, None for none.

    ``is_doubtful`` if only the values tell whether that engine preserves them.
    """

    text: str
    engine: Literal["spark"] | None = None
    is_doubtful: bool = False

    def of(self, path: str) -> Self:
        """The same hazard with the path of the file."""
        return replace(self, text=f"{path}: {self.text}")


def hazard(file: pq.ParquetFile, add: Add, target: FileSchema) -> Hazard | None:
    """The hazard of a file: it must be rewritten by Spark, or not at all; None if Arrow may.

    Reads only the footer of the file, as opened by ``data_file``. What Spark would not preserve
    either comes first.
    """
    try:
        columns = sources(file)
        matches(columns, target)
        for field in target.partitions:
            constant(field, add.partition_values.get(field.physical_name))
        if target.row_tracking is not None:
            RowIds.of(add, columns, target.row_tracking)
    except (MismatchError, pa.ArrowException) as error:
        return Hazard(one_line(error))
    leaves = [leaf for column in columns for leaf in column.leaves()]
    found = _of_units(leaves) or _of_calendar(file.metadata.metadata or {}, leaves)
    if found is None and has_variants(target.table.data):
        return Hazard("it holds variants, which only Spark reads and writes", "spark")
    return found


def names_calendar(footer: Mapping[bytes, bytes]) -> bool:
    """Whether the footer tells the calendar of a file; Spark assumes the proleptic one otherwise.

    Files of Spark before 2.4.1 do not: their old dates and timestamps may be in either calendar.
    """
    return _SPARK_VERSION in footer or not footer.keys() & _OF_SPARK


def _of_calendar(footer: Mapping[bytes, bytes], leaves: Iterable[Source]) -> Hazard | None:
    """Whether dates and timestamps may be in the hybrid calendar that Spark had before 3.0."""
    leaves, version = list(leaves), footer.get(_SPARK_VERSION)
    engine = "spark" if version is None or _NUMBERS.match(version) else None
    if any(leaf.int96 for leaf in leaves) and _is_legacy(footer, _LEGACY_INT96, _ISO_INT96):
        found = "its int96 moments may be of the Julian calendar, which only Spark converts"
        return Hazard(found, engine, version is None and engine is not None)
    if any(_is_dated(leaf) for leaf in leaves) and _is_legacy(footer, _LEGACY_DATES, _ISO_DATES):
        found = "its dates and moments may be of the Julian calendar, which only Spark converts"
        return Hazard(found, engine, version is None and engine is not None)
    return None


def _is_legacy(footer: Mapping[bytes, bytes], key: bytes, iso: tuple[int, int]) -> bool:
    """As Spark decides it, but files of Spark 2, which names no version, count as legacy."""
    version = footer.get(_SPARK_VERSION)
    if key in footer:
        return True
    if version is None:
        return _SPARK_SCHEMA in footer
    numbers = _NUMBERS.match(version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) < iso


def _is_dated(leaf: Source) -> bool:
    """Dates and timestamps, but not ``timestamp_ntz``, which Spark did not have before 3.0."""
    if leaf.int96:
        return False
    kind = leaf.type
    return pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)


def _of_units(leaves: Iterable[Source]) -> Hazard | None:
    for leaf in leaves:
        if pa.types.is_timestamp(leaf.type) and leaf.type.unit == "ns" and not leaf.int96:
            found = f"column {leaf.name} holds nanoseconds, and a Delta table microseconds"
            return Hazard(found)
    return None
