"""A plan straight from the stages' functions: the chain without Dagster and without Parquet."""

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from maint_assets.assets.spark import planned_for
from maint_assets.delta.features import Operation, unsupported
from maint_assets.errors import UnsupportedFeatureError
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.replay import snapshot
from maint_assets.storage.location import Location
from maint_assets.vacuum.diff import IS_MISSING, diff, judged
from maint_assets.vacuum.listing import Walk, listing
from maint_assets.vacuum.valid_files import valid_files


@dataclass(frozen=True)
class Planned:
    """What may go, and the active files that were not found."""

    files: set[str]
    directories: set[str]
    missing: set[str]
    kinds: dict[str, str]
    removed_in: dict[str, int | None]


def planned(spark: SparkSession, path: Path, *, cutoff_ms: int | None = None) -> Planned:
    """The plan of the newest version; without a cutoff nothing old is retained."""
    head = table_head(Location.of(str(path)))
    cutoff_ms = int(time.time() * 1_000) if cutoff_ms is None else cutoff_ms  # noqa: TID251
    reasons = unsupported(head.protocol, Operation.VACUUM)
    if reasons:
        raise UnsupportedFeatureError(head.table, "; ".join(reasons))
    columns = list(head.metadata.partition_columns)
    walk = Walk(
        table=head.location.path, partition_columns=columns, iceberg=head.properties.iceberg
    )
    with planned_for(spark, small=True):
        state = snapshot(spark, head, parallelism=1).localCheckpoint(eager=False)
        found = listing(spark, walk, parallelism=1).localCheckpoint(eager=False)
        valid = valid_files(state, cutoff_ms=cutoff_ms).coalesce(1)
        each = judged(found, valid, state, one_task=True)
        commits = state.where("action = 'commit'")
        plan = diff(each, found, valid, commits=commits, cutoff_ms=cutoff_ms)
        rows = plan.select("path", "kind", "removed_in_version").collect()
        missing = each.where(IS_MISSING).select("path").collect()
    return Planned(
        files={row.path for row in rows if row.kind != "directory"},
        directories={row.path for row in rows if row.kind == "directory"},
        missing={row.path for row in missing},
        kinds={row.path: row.kind for row in rows},
        removed_in={row.path: row.removed_in_version for row in rows},
    )
