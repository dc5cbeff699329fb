"""The shapes of the read path: what executors read from the log, and the state it becomes."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

ACTION_SCHEMA = T.StructType(
    [
        T.StructField("is_commit", T.BooleanType(), False),
        T.StructField("log_key", T.StringType(), False),
        T.StructField("dv_id", T.StringType(), False),
        T.StructField("path", T.StringType()),
        T.StructField("inside", T.BooleanType(), False),
        T.StructField("dv_path", T.StringType()),
        T.StructField("ord", T.LongType(), False),
        T.StructField("version", T.LongType()),
        T.StructField("size", T.LongType()),
        T.StructField("modified_ms", T.LongType()),
        T.StructField("deletion_ms", T.LongType()),
        T.StructField("operation", T.StringType()),
        T.StructField("commit_ms", T.LongType()),
    ]
)
"""One action of the log: ``ord`` is version * 2 + 1 for an add, version * 2 else; ``version`` is
null for what only a checkpoint tells."""

ACTION_ARROW = pa.schema(
    [
        ("is_commit", pa.bool_()),
        ("log_key", pa.string()),
        ("dv_id", pa.string()),
        ("path", pa.string()),
        ("inside", pa.bool_()),
        ("dv_path", pa.string()),
        ("ord", pa.int64()),
        ("version", pa.int64()),
        ("size", pa.int64()),
        ("modified_ms", pa.int64()),
        ("deletion_ms", pa.int64()),
        ("operation", pa.string()),
        ("commit_ms", pa.int64()),
    ]
)

SNAPSHOT_SCHEMA = T.StructType(
    [
        T.StructField("action", T.StringType(), False, {"comment": "add: live file; remove: tombstone; commit: a version of the log"}),
        T.StructField("path", T.StringType(), True, {"comment": "decoded, relative to the table root; absolute where outside it"}),
        T.StructField("log_path", T.StringType(), True, {"comment": "as the log spells it"}),
        T.StructField("inside", T.BooleanType(), False, {"comment": "whether the path lies inside the table"}),
        T.StructField("dv_id", T.StringType(), True, {"comment": "id of the deletion vector, empty for none"}),
        T.StructField("dv_path", T.StringType(), True, {"comment": "file of the deletion vector, null for none or inline"}),
        T.StructField("size", T.LongType(), True, {"comment": "bytes"}),
        T.StructField("modified_ms", T.LongType(), True, {"comment": "time of the add, ms"}),
        T.StructField("deletion_ms", T.LongType(), True, {"comment": "time of the remove, ms; 0 where the log has none"}),
        T.StructField("version", T.LongType(), True, {"comment": "newest commit that names the path; null when only a checkpoint does"}),
        T.StructField("operation", T.StringType(), True, {"comment": "of a commit row"}),
        T.StructField("commit_ms", T.LongType(), True, {"comment": "time of a commit row, ms"}),
    ]
)
"""The rows of the ``snapshot`` stage: live adds, known tombstones, and the commits of the log."""
