"""A plan made by the stage functions alone: the chain without Dagster and its store."""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.parts import Part, Target
from maint_assets.datasets.rows import Rows, part_rows
from maint_assets.delta.features import Operation, unsupported
from maint_assets.errors import UnsupportedFeatureError
from maint_assets.snapshot.head import TableHead, table_head
from maint_assets.snapshot.replay import snapshot
from maint_assets.snapshot.schemas import SNAPSHOT_SCHEMA
from maint_assets.storage.location import Location
from maint_assets.vacuum.cross_checks import are_missing
from maint_assets.vacuum.diff import DIFF_SCHEMA, KINDS, MISSING, Sources, StorageChecks, diff
from maint_assets.vacuum.listing import LISTING_SCHEMA, small_listing
from maint_assets.vacuum.valid_files import VALID_FILES_SCHEMA, Retained, valid_files
from maint_assets.vacuum.walk import Walk
from maint_assets_tests.support.chain import without_checksums


@dataclass(frozen=True)
class Planned:
    """Planned files without their checksums, and the active files that were not found."""

    files: set[str]
    directories: set[str]
    missing: set[str]
    kinds: dict[str, str]
    removed_in: dict[str, int | None]


def planned(spark: SparkSession, path: Path | Location, *, cutoff_ms: int | None = None) -> Planned:
    """The plan of the newest version; without a cutoff no older version is retained."""
    head = table_head(Location.of(str(path)) if isinstance(path, Path) else path)
    cutoff_ms = int(time.time() * 1_000) if cutoff_ms is None else cutoff_ms  # noqa: TID251
    reasons = unsupported(head.protocol, Operation.VACUUM)
    if reasons:
        raise UnsupportedFeatureError(head.table, "; ".join(reasons))
    columns = list(head.metadata.partition_columns)
    walk = Walk(location=head.location, partition_columns=columns, iceberg=head.properties.iceberg)
    with tempfile.TemporaryDirectory() as made:
        rows = _rows(spark, head, walk, cutoff_ms=cutoff_ms, made=Path(made))
    missing = [row["path"] for row in rows if row["kind"] == MISSING]
    rows = [row for row in rows if row["kind"] in KINDS]
    return Planned(
        files=without_checksums({row["path"] for row in rows if row["kind"] != "directory"}),
        directories={row["path"] for row in rows if row["kind"] == "directory"},
        missing=set(missing),
        kinds={row["path"]: row["kind"] for row in rows},
        removed_in={row["path"]: row["removed_in_version"] for row in rows},
    )


def _rows(
    spark: SparkSession, head: TableHead, walk: Walk, *, cutoff_ms: int, made: Path
) -> list[dict[str, Any]]:
    """The rows of the plan, including those of missing files."""
    state = _parts(
        snapshot(spark, head, parallelism=1, scratch=str(made / "scratch")),
        SNAPSHOT_SCHEMA,
        made / "snapshot",
    )
    of_state = part_rows(spark, state, parallelism=1)
    retained = Retained(cutoff_ms, head.segment.checkpoint_ms)
    valid = [valid_files(of_state, table=head.location.uri, retained=retained)]
    found = [small_listing(spark, walk)]
    sources = Sources(
        snapshot=state,
        valid_files=_parts(valid, VALID_FILES_SCHEMA, made / "valid_files"),
        listing=_parts(found, LISTING_SCHEMA, made / "listing"),
    )
    plan = diff(
        spark,
        sources,
        cutoff_ms=cutoff_ms,
        checks=StorageChecks(are_missing=partial(are_missing, location=walk.location)),
        parallelism=1,
        scratch=str(made / "scratch"),
    )
    return [row.asDict() for row in plan.as_frame(DIFF_SCHEMA).collect()]


def _parts(rows: list[Rows], schema: T.StructType, directory: Path) -> list[Part]:
    target = Target(str(directory), arrow_schema(schema), {})
    return [part for some in rows for part in some.write(target).parts]
