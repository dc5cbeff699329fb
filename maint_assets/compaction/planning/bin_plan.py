"""The plan of an OPTIMIZE: classify live files as they are read, then pack each partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from maint_assets.compaction.columns.physical import has_variants
from maint_assets.compaction.planning.budget import within_budget
from maint_assets.compaction.planning.candidates import Criteria, candidates
from maint_assets.compaction.planning.dropped_columns import Held, with_dropped_columns
from maint_assets.compaction.planning.packing import compaction_bins
from maint_assets.compaction.planning.partition_filter import of_partitions
from maint_assets.compaction.reading.footers import is_promising
from maint_assets.datasets.exchange import BUCKET_ROWS, exchanged, in_waves
from maint_assets.snapshot.whole.live_adds import live_adds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from maint_assets.compaction.plan import Selection
    from maint_assets.compaction.writing.target import Rewriting
    from maint_assets.datasets.rows import Rows
    from maint_assets.snapshot.head import TableHead

_FOOTERS = 500
"""Footers that one task reads; more files are divided among tasks."""


def planned_bins(  # noqa: PLR0913
    spark: SparkSession,
    head: TableHead,
    selection: Selection,
    *,
    how: Rewriting,
    live_files: int,
    parallelism: int,
    scratch: str,
) -> Rows:
    """All live files of the head's version, in a bin or with the reason why each stays.

    Rows of COMPACTION_SCHEMA. Raises PredicateError; executors raise CorruptLogError, LogGapError,
    and StorageError when a purge cannot read the footer of a file.
    """
    files = how.files
    partitions = files.table.partitions
    engine = "spark" if has_variants(files.table.data) else "arrow"
    criteria = Criteria(head.root, partitions, selection, engine, how.ordering)
    live = live_adds(spark, head, parallelism=parallelism, scratch=scratch)
    found = [rows.then(partial(candidates, criteria=criteria)) for rows in live]
    if selection.where is not None:
        where, table = selection.where, head.table
        found = [of_partitions(r, where, partitions=partitions, table=table) for r in found]
    if selection.purge:
        if live_files > _FOOTERS:
            tasks = in_waves(-(-live_files // _FOOTERS), parallelism)
            found = [exchanged(spark, found, by=["path"], buckets=tasks, scratch=scratch)]
        check = partial(with_dropped_columns, held=Held.of(head, files.table))
        found = [rows.then(check) for rows in found]
    buckets = -(-live_files // BUCKET_ROWS)
    pack = partial(compaction_bins, selection=selection, ordering=how.ordering is not None)
    if buckets <= 1 and len(found) == 1 and found[0].tasks == 1:
        packed = found[0].then(pack)
    else:
        by_partition = exchanged(
            spark, found, by=["partition"], buckets=in_waves(buckets, parallelism), scratch=scratch
        )
        packed = by_partition.then(pack)
    if selection.max_bytes is None:
        return packed
    # The budget is shared by all bins, so one task must see them all.
    every = exchanged(spark, [packed], by=["engine"], buckets=1, scratch=scratch)
    promising = partial(is_promising, location=head.location, target=files)
    return every.then(partial(within_budget, max_bytes=selection.max_bytes, is_promising=promising))
