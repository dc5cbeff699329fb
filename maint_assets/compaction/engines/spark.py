"""The Spark engine: rewrite the bins whose rows Arrow would change.

Rows are read as delta-spark reads them: dates of the Julian calendar are rebased, shredded
variants reassembled. Spark writes into scratch; a new file is copied into the table only when it
is complete and has been read back.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from maint_assets.compaction.columns.spark_schema import has_equal_names
from maint_assets.compaction.engines.arrow import REWRITTEN_SCHEMA
from maint_assets.compaction.engines.spark_output import SparkFile, adopt
from maint_assets.compaction.engines.spark_rows import (
    BIN,
    MOST_TASKS,
    POSITION,
    ROW,
    SparkBin,
    SparkInputs,
    reserved_name,
    uri,
)
from maint_assets.datasets.rows import task_groups, units
from maint_assets.delta.actions import Add
from maint_assets.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from maint_assets.compaction.writing.target import Rewriting

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.variant.allowReadingShredded": "true",
}
"""Settings under which Spark reads and writes Parquet as the Delta protocol defines it.

They override whatever the user's session or cluster defaults say.
"""

_CODECS = {"lz4": "lz4_raw"}

_UNKNOWN_CALENDAR = (
    "it has dates before 1582 or timestamps before 1900, and its footer does not name the calendar"
)
_CAUSE = re.compile(r"^(?:: |Caused by: )(?:[\w.$]+: )?(.+)$", re.MULTILINE)
_SHOWN = 300


def spark_bins(rows: Iterable[dict[str, Any]]) -> list[SparkBin]:
    """Group the input rows of the ledger by bin."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["bin"], []).append(row)
    return [
        SparkBin(
            name,
            [msgspec.json.decode(row["add"], type=Add) for row in files],
            [row["rows"] for row in files],
        )
        for name, files in found.items()
    ]


def rewrite_by_spark(
    spark: SparkSession, bins: Sequence[SparkBin], how: Rewriting, *, scratch: str
) -> list[dict[str, Any]]:
    """Rewrite bins by Spark; their inputs and outputs as rows of REWRITTEN_SCHEMA.

    A bin that Spark cannot read or write has state ``failed`` or ``refused``, and the others go on.
    Raises StorageError for an input that is missing, and the errors of the Spark jobs that link
    inputs and adopt outputs.
    """
    session = _session(spark, how)
    reserved = reserved_name(how.files)
    if reserved is None:
        inputs = SparkInputs(session, bins, how, scratch=scratch)
        codec = _CODECS.get(how.codec, how.codec)
        new = list(_written(inputs, bins, f"{scratch}/out", codec=codec))
    else:
        reason = f"the name of column {reserved} is reserved for rewrites by Spark: rename it"
        new = [SparkFile(each, "", "refused", reason) for each in bins]
    groups = task_groups(new, MOST_TASKS, weight=lambda each: sum(each.of.rows))

    def adopted(some: list[SparkFile]) -> Iterator[pa.RecordBatch]:
        for each in some:
            yield adopt(each, how)

    made = units(session, groups, adopted, kind=SparkFile).as_frame(REWRITTEN_SCHEMA)
    return [row.asDict() for row in made.collect()]


def _session(spark: SparkSession, how: Rewriting) -> SparkSession:
    """A separate session of the same application, so that the user's settings stay as they are."""
    clone = getattr(spark, "cloneSession", None)  # Spark Connect has no newSession
    session: SparkSession = spark.newSession() if clone is None else clone()
    by_id = how.files.by_id
    shredding = str(how.properties.variant_shredding).lower()
    settings = {
        **_SETTINGS,
        # Case-insensitive, as delta-spark reads files, unless names differ only in case.
        "spark.sql.caseSensitive": str(has_equal_names(how.files.data)).lower(),
        "spark.sql.parquet.fieldId.read.enabled": str(by_id).lower(),
        "spark.sql.parquet.fieldId.read.ignoreMissing": str(not by_id).lower(),
        "spark.sql.variant.writeShredding.enabled": shredding,
        "spark.sql.variant.inferShreddingSchema": shredding,
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def _written(
    inputs: SparkInputs, bins: Sequence[SparkBin], directory: str, *, codec: str
) -> Iterator[SparkFile]:
    """Write all bins in one job; the file or the error of each bin.

    If the job fails, each half of the bins is tried by itself, until the faulty bins are isolated.
    """
    rows = inputs.rows(bins)
    tasks = min(4 * len(bins), MOST_TASKS)
    in_order = rows.repartition(tasks, F.col(BIN)).sortWithinPartitions(BIN, POSITION, ROW)
    out = f"{directory}/{uuid.uuid4()}"
    try:
        (
            in_order
            .drop(POSITION, ROW)
            .write.option("compression", codec)
            .option("parquet.page.write-checksum.enabled", "true")
            .partitionBy(BIN)
            .parquet(uri(out))
        )
    except (PySparkException, Py4JJavaError) as error:
        if len(bins) == 1:
            yield SparkFile(bins[0], out, *_fault(error))
            return
        half = len(bins) // 2
        for some in (bins[:half], bins[half:]):
            yield from _written(inputs, some, directory, codec=codec)
    else:
        yield from (SparkFile(each, f"{out}/{BIN}={each.bin}") for each in bins)


def _fault(error: Exception) -> tuple[str, str]:
    """The state and the reason of a bin that Spark could not rewrite."""
    text = str(error)
    if "READ_ANCIENT_DATETIME" in text:
        return "refused", _UNKNOWN_CALENDAR
    causes = _CAUSE.findall(text)
    cause = causes[-1] if causes else one_line(error)
    return "failed", f"Spark cannot rewrite it: {cause[:_SHOWN]}"
