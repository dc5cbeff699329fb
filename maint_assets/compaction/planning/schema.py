"""The rows of an OPTIMIZE plan: all live files, each in a bin or with the reason why it stays."""

from __future__ import annotations

import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.parts import Measure
from maint_assets.snapshot.summary import size_counts

PLANNED_REASONS = (
    "small", "deleted_rows", "dropped_columns", "no_stats", "unordered", "merged"
)  # fmt: skip


LEFT_OUT_REASONS = (
    "large", "whole", "alone", "ordered", "clustered", "other_partition", "postponed", "disputed"
)  # fmt: skip


COMPACTION_SCHEMA = T.StructType([
    column("bin", "string", "id of the bin; null where the file stays", nullable=True),
    column("position", "bigint", "index of the file in its bin, from 0", nullable=True),
    column("partition", "string", "partition values by physical name, JSON"),
    column("path", "string", "decoded, relative to the table root; absolute where outside it"),
    column("dv_id", "string", "id of the deletion vector, empty for none"),
    column("size", "bigint", "bytes"),
    column("live_bytes", "bigint", "estimated bytes of the rows that are not deleted"),
    column("rows", "bigint", "rows in the file, deleted ones included", nullable=True),
    column("deleted", "bigint", "rows deleted by the deletion vector"),
    column("clustered", "boolean", "whether its rows are clustered or Z-ordered"),
    column("cube", "string", "id of its Z-cube, if ordered by the columns of now", nullable=True),
    column("ordered", "boolean", "whether the rewrite orders the rows of its bin"),
    column("rewrites", "bigint", "compactions of its rows so far: 0, 1, or 2 for more"),
    column("reason", "string", "why it is rewritten, or why it stays"),
    column("engine", "string", "planned engine; the file itself may require another"),
    column("added", "bigint", "sort key: order in which files were added to the table"),
    column("add", "string", "add action as JSON, of statistics only numRecords", nullable=True),
])
"""A row per live file; the files of a bin are adjacent."""


COMPACTION_ARROW = arrow_schema(COMPACTION_SCHEMA)


_BIN = pc.field("bin")


PLANNED = pc.is_valid(_BIN)


BINS_MEASURES = {
    "bins": Measure("count", where=PLANNED & (pc.field("position") == 0)),
    "bytes": Measure("sum", "size", PLANNED),
    "rows": Measure("sum", "rows", PLANNED),
    # Of files whose rows are counted: the difference of both is the number of live rows.
    "deleted": Measure("sum", "deleted", PLANNED & pc.is_valid(pc.field("rows"))),
    "considered": Measure("count"),
    **{
        f"left_{name}": Measure("count", where=pc.field("reason") == name)
        for name in LEFT_OUT_REASONS
    },
    **{
        f"left_bytes_{name}": Measure("sum", "size", pc.field("reason") == name)
        for name in LEFT_OUT_REASONS
    },
    **{
        f"reason_{name}": Measure("count", where=PLANNED & (pc.field("reason") == name))
        for name in PLANNED_REASONS
    },
    **size_counts("planned ", PLANNED),
}
