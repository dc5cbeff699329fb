"""Which paths must stay: whatever a retained version needs, and why (vacuum.md 5 and 16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.snapshot.schemas import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALID_FILES_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column(
        "reason",
        "string",
        "active, tombstone, active_dv, tombstone_dv, or spelling: as the log writes the path",
    ),
    column("size", "bigint", "bytes of a data file, by the log", nullable=True),
    column("deletion_ms", "bigint", "time of the remove of a tombstone, ms", nullable=True),
])

REASONS = ("active", "tombstone", "active_dv", "tombstone_dv", "spelling")


def valid_files(snapshot: DataFrame, *, cutoff_ms: int) -> DataFrame:
    """Paths inside the table that a live file or a tombstone not older than the cutoff names.

    A tombstone exactly at ``cutoff_ms`` stays; one without a time counts as 0. Deletion vectors
    of every storage type count with their file. One path may have several reasons.
    """
    kept = snapshot.where(protects(cutoff_ms)).withColumn("lower_path", _lower_escapes())
    reasons = F.array(
        _named("path", "active", "tombstone", inside=F.col("inside")),
        _named("dv_path", "active_dv", "tombstone_dv", inside=_is_relative("dv_path")),
        _named("log_path", "spelling", "spelling", inside=F.col("inside") & _spelled_otherwise()),
        _named("lower_path", "spelling", "spelling", inside=F.col("inside") & _has_letters()),
    )
    named = kept.select(F.explode(reasons).alias("named"), "deletion_ms")
    return (
        named
        .where("named is not null")
        .select("named.*", "deletion_ms")
        .select(*VALID_FILES_SCHEMA.names)
    )


def protects(cutoff_ms: int) -> Column:
    """Whether a row of the snapshot keeps its files: live, or removed not before the cutoff."""
    action = F.col("action")
    return (action == "add") | ((action == "remove") & (F.col("deletion_ms") >= cutoff_ms))


def _named(column: str, live: str, dead: str, *, inside: Column) -> Column:
    reason = F.when(F.col("action") == "add", live).otherwise(dead)
    size = F.lit(None).cast("long") if column == "dv_path" else F.col("size")
    found = F.struct(F.col(column).alias("path"), reason.alias("reason"), size.alias("size"))
    return F.when(F.col(column).isNotNull() & inside, found)


def _spelled_otherwise() -> Column:
    """Whether the log spells a relative path in another way: that name is protected as well."""
    return (F.col("log_path") != F.col("path")) & _is_relative("log_path")


def _has_letters() -> Column:
    """Whether escapes in lower case make another name: ``log_path`` has them in upper case."""
    return (F.col("lower_path") != F.col("log_path")) & _is_relative("log_path")


def _lower_escapes() -> Column:
    """The log path as a writer spells it that does not encode and has lower-case escapes."""
    lowered = F.transform(
        F.split("log_path", "%"),
        lambda part, at: F.when(
            (at > 0) & part.rlike("^[0-9A-F]{2}"),
            F.concat(F.lower(F.substring(part, 1, 2)), F.substring(part, 3, 2**31 - 1)),
        ).otherwise(part),
    )
    return F.array_join(lowered, "%")


def _is_relative(column: str) -> Column:
    return ~F.col(column).rlike(r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)")
