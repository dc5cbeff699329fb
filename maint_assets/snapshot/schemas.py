"""Schemas of the read path: actions as read from the log, and the state of a version."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column


class LogUnit(msgspec.Struct, frozen=True):
    """One log file to read, and what to read of it.

    ``commit_ms``: commit time, None for checkpoints and sidecars. ``ict_from``: first version with
    in-commit timestamps. ``keys``: only replay keys, all else null. ``covered``: a checkpoint
    covers the commit, so that its adds are not live by themselves. ``share`` of ``shares``: the
    part of a Parquet file to read.
    """

    path: str
    version: int
    size: int
    commit_ms: int | None = None
    ict_from: int | None = None
    adds: bool = True
    removes: bool = True
    keys: bool = False
    covered: bool = False
    share: int = 0
    shares: int = 1


ACTION_SCHEMA = T.StructType([
    column("what", "string", "file, cdc or commit"),
    column("log_key", "string"),
    column("log_path", "string", nullable=True),
    column("dv_id", "string"),
    column("path", "string", nullable=True),
    column("inside", "boolean"),
    column("dv_path", "string", nullable=True),
    column("ord", "bigint"),
    column("version", "bigint", nullable=True),
    column("size", "bigint", nullable=True),
    column("modified_ms", "bigint", nullable=True),
    column("deletion_ms", "bigint", nullable=True),
    column("operation", "string", nullable=True),
    column("commit_ms", "bigint", nullable=True),
])
"""One action of the log. ``ord`` orders actions of one key: see ``add_order``, ``remove_order``.
``version``, ``operation`` and ``commit_ms`` are null for actions known only from a checkpoint."""

ACTION_ARROW = arrow_schema(ACTION_SCHEMA)

SNAPSHOT_SCHEMA = T.StructType([
    column(
        "action",
        "string",
        "add: live file; remove: tombstone; cdc: change data file; commit: a version; lost: file "
        "that a commit adds and none removes, but that the checkpoint lacks",
    ),
    column(
        "path",
        "string",
        "decoded, relative to the table root; absolute where outside it",
        nullable=True,
    ),
    column("log_path", "string", "path as in the log", nullable=True),
    column("inside", "boolean", "whether the path lies inside the table"),
    column("dv_id", "string", "id of the deletion vector, empty for none", nullable=True),
    column(
        "dv_path", "string", "file of the deletion vector, null for none or inline", nullable=True
    ),
    column("size", "bigint", "bytes", nullable=True),
    column("modified_ms", "bigint", "time of the add, ms", nullable=True),
    column(
        "deletion_ms", "bigint", "time of the remove, ms; 0 where the log has none", nullable=True
    ),
    column(
        "version",
        "bigint",
        "version of the commit, or of the one that removed the file; null for adds",
        nullable=True,
    ),
    column("operation", "string", "operation of that commit", nullable=True),
    column("commit_ms", "bigint", "time of that commit, ms", nullable=True),
])
"""Rows of the ``snapshot`` stage: live files, tombstones, change data, and commits."""

SNAPSHOT_ARROW = arrow_schema(SNAPSHOT_SCHEMA)

_CHECKPOINT_REMOVE = -4


def add_order(unit: LogUnit) -> int:
    """``ord`` of the adds of a log file: odd, and below the checkpoint's where that covers it."""
    return unit.version * 2 + (-1 if unit.covered else 1)


def remove_order(unit: LogUnit) -> int:
    """``ord`` of the removes of a log file: even.

    Those of a checkpoint are below all others: where its tombstone is right, the commit that
    removed the file has it too, or is no longer readable, and then no earlier add is read. Those
    of a covered commit are below its own adds: readers disagree on a file that it adds and removes.
    """
    if unit.commit_ms is None:
        return _CHECKPOINT_REMOVE
    return unit.version * 2 - (2 if unit.covered else 0)


def is_add(actions: pa.RecordBatch | pa.Table) -> pa.Array:
    """Whether each action is an add, by its ``ord``."""
    return pc.equal(pc.bit_wise_and(actions["ord"], 1), 1)
