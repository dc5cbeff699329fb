"""Which files and directories may go: old enough, visible, and named by no retained version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.snapshot.schemas import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DIFF_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column("kind", "string", "orphan, removed, dv, cdc, index or directory"),
    column("size", "bigint", "bytes, 0 for directories"),
    column("modified_ms", "bigint", "last modification, ms"),
    column(
        "removed_in_version",
        "bigint",
        "commit that removed it, where the log still knows",
        nullable=True,
    ),
    column("removed_by", "string", "operation of that commit", nullable=True),
    column("removed_ms", "bigint", "time of that commit, or of the tombstone, ms", nullable=True),
])

KINDS = ("orphan", "removed", "dv", "cdc", "index", "directory")

IS_MISSING = r"active and is_dir is null and not path rlike r'(^|/)[._]'"
"""Whether a judged path is needed by the newest version but was not found, in SQL.

Paths below names that a listing never enters say nothing."""

_DV_NAME = (
    r"(^|/)deletion_vector_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.bin$"
)


def judged(
    listing: DataFrame, valid_files: DataFrame, snapshot: DataFrame, *, one_task: bool = False
) -> DataFrame:
    """One row a path that the listing, the valid files or a tombstone names, with what each says.

    Columns: those of the listing (null where not listed), ``valid``, ``active``,
    ``removed_in_version``, ``removed_ms``. One shuffle, fixed-width aggregates; none in one task.
    """
    listed = listing.select(
        "path", "size", "modified_ms", "is_dir", "hidden",
        *_blank(valid="boolean", active="boolean", removed_in_version="long", removed_ms="long"),
    )  # fmt: skip
    blank = _blank(size="long", modified_ms="long", is_dir="boolean", hidden="boolean")
    valid = valid_files.select(
        "path", *blank, F.expr("true as valid"), F.expr("reason like 'active%' as active"),
        *_blank(removed_in_version="long", removed_ms="long"),
    )  # fmt: skip
    dead = [
        snapshot.where("action = 'remove'").select(
            F.col(path).alias("path"), *blank, *_blank(valid="boolean", active="boolean"),
            F.col("version").alias("removed_in_version"), F.col("deletion_ms").alias("removed_ms"),
        ).where("path is not null")
        for path in ("path", "dv_path")
    ]  # fmt: skip
    every = listed.unionByName(valid).unionByName(dead[0]).unionByName(dead[1])
    if one_task:
        every = every.coalesce(1)
    names = (
        "size",
        "modified_ms",
        "is_dir",
        "hidden",
        "valid",
        "active",
        "removed_in_version",
        "removed_ms",
    )
    return every.groupBy("path").agg(*(F.max(name).alias(name) for name in names))


def diff(
    judged: DataFrame,
    listing: DataFrame,
    valid_files: DataFrame,
    *,
    commits: DataFrame,
    cutoff_ms: int,
) -> DataFrame:
    """Files that VACUUM may delete, and directories that nothing remains beneath: DIFF_SCHEMA.

    Last modified before the cutoff: a file exactly at it stays. ``commits`` are the commit rows
    of the snapshot.
    """
    files = judged.transform(expired, cutoff_ms).where("not is_dir").transform(untracked)
    gone = files.withColumn("kind", kind()).transform(with_commit, commits)
    directories = emptied_directories(listing, valid_files, cutoff_ms=cutoff_ms)
    return gone.select(*DIFF_SCHEMA.names).unionByName(directories.select(*DIFF_SCHEMA.names))


def expired(entries: DataFrame, cutoff_ms: int) -> DataFrame:
    """Visible entries last modified before the cutoff; one exactly at it stays."""
    return entries.where(~F.col("hidden") & (F.col("modified_ms") < cutoff_ms))


def untracked(judged: DataFrame) -> DataFrame:
    """Listed files that no retained version names."""
    return judged.where(F.col("valid").isNull())


def kind() -> Column:
    """What a candidate is: by its name, else by whether the log remembers its removal."""
    path = F.col("path")
    return (
        F
        .when(path.rlike(_DV_NAME), "dv")
        .when(path.rlike(r"(^|/)_change_data"), "cdc")
        .when(path.rlike(r"(^|/)_delta_index"), "index")
        .when(F.col("removed_ms").isNotNull(), "removed")
        .otherwise("orphan")
    )


def with_commit(candidates: DataFrame, commits: DataFrame) -> DataFrame:
    """Candidates with operation and time of the commit that removed them."""
    known = commits.select(
        F.col("version").alias("removed_in_version"),
        F.col("operation").alias("removed_by"),
        "commit_ms",
    )
    joined = candidates.join(F.broadcast(known), on="removed_in_version", how="left")
    when = F.coalesce("commit_ms", F.when(F.col("removed_ms") > 0, F.col("removed_ms")))
    return joined.withColumn("removed_ms", when)


def emptied_directories(listing: DataFrame, valid_files: DataFrame, *, cutoff_ms: int) -> DataFrame:
    """Old visible directories beneath which nothing remains once the plan is executed.

    What remains: valid paths, whether found or not, hidden and recent entries.
    """
    stays = F.col("hidden") | (F.col("modified_ms") >= cutoff_ms)
    recent = listing.where(stays).select("path", "parent")
    parents = recent.select("parent").union(valid_files.select(parent("path").alias("parent")))
    kept = parents.distinct().select(F.explode(ancestors("parent")).alias("path"))
    kept = kept.union(recent.select("path")).distinct()
    return (
        listing
        .transform(expired, cutoff_ms)
        .where("is_dir")
        .join(kept, on="path", how="left_anti")
        .withColumns({
            "kind": F.lit("directory"),
            "removed_in_version": F.lit(None).cast("long"),
            "removed_by": F.lit(None).cast("string"),
            "removed_ms": F.lit(None).cast("long"),
        })
    )


def parent(path: str) -> Column:
    """The directory of a path, empty for one directly in the root."""
    return F.regexp_replace(path, r"(^|/)[^/]*$", "")


def ancestors(path: str) -> Column:
    """A directory and every directory above it, the root (empty) among them."""
    parts = F.split(F.col(path), "/")
    return F.transform(
        F.sequence(F.lit(1), F.size(parts)),
        lambda depth: F.array_join(F.slice(parts, 1, depth), "/"),
    )


def _blank(**columns: str) -> list[Column]:
    return [F.lit(None).cast(kind).alias(name) for name, kind in columns.items()]
