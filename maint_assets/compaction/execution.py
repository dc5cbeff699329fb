"""Execute a compaction plan batch by batch: rewrite the bins of a batch, then commit them.

The caller records the rows of each batch in the ledger before it starts the next one.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maint_assets.commit.rewrite.committing import commit_rewrites
from maint_assets.commit.rewrite.values import Committed, RewriteRequest, RewrittenBin
from maint_assets.compaction.engines.arrow import REWRITTEN_ARROW, remove_outputs, rewrite_bins
from maint_assets.compaction.engines.ordered import rewrite_ordered, rewrite_ordered_by_jobs
from maint_assets.compaction.engines.spark import rewrite_by_spark, spark_bins
from maint_assets.compaction.planning.tasks import RewriteTask
from maint_assets.datasets.columns import batch_of
from maint_assets.datasets.intents import StopSign
from maint_assets.datasets.parts import Target, slice_batches
from maint_assets.datasets.rows import slices, units
from maint_assets.delta.actions import Add
from maint_assets.errors import MaintError, StoppedError
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from maint_assets.compaction.engines.arrow import Rewriting
    from maint_assets.compaction.plan import CompactionPlan
    from maint_assets.datasets.parts import PartSlice
    from maint_assets.snapshot.head import TableHead

_NAMESPACE = uuid.UUID("6f2b1c0e-3a57-4c3f-9d65-0d1f5a2f9a11")


@dataclass(frozen=True, slots=True)
class ExecutionParameters:
    """The parameters of an execution: plan, table head, how files are written, and the clock."""

    plan: CompactionPlan
    head: TableHead
    how: Rewriting
    now_ms: Callable[[], int]

    def request(self, bins: Sequence[str], deletion_ms: int) -> RewriteRequest:
        """The commit request for these bins."""
        selection = self.plan.selection
        where = [] if selection.where is None else [selection.where]
        parameters: dict[str, Any] = {"predicate": msgspec.json.encode(where).decode()}
        if selection.purge:
            parameters["applyPurge"] = True
        else:
            parameters |= {"zOrderBy": "[]", "clusterBy": "[]", "auto": False}
            if self.how.ordering is not None:
                parameters |= self.how.ordering.parameters(full=selection.full)
        return RewriteRequest(
            operation=selection.operation,
            parameters=parameters,
            txn_id=self._txn_id(bins),
            deletion_timestamp_ms=deletion_ms,
            now_ms=self.now_ms,
            row_ids_kept=self.how.files.row_tracking is not None,
        )

    def commits(self, done: pa.RecordBatch) -> dict[int, str]:
        """The ``txnId`` of a batch's commit by version, from its rows of REWRITTEN_SCHEMA."""
        written = pc.is_in(done["state"], pa.array(["committed", "dropped"]))
        txn_id = self._txn_id(pc.unique(done["bin"].filter(written)).to_pylist())
        return dict.fromkeys(pc.unique(done["version"].drop_null()).to_pylist(), txn_id)

    def _txn_id(self, bins: Sequence[str]) -> str:
        """A hash of the plan's digest and the bins of a commit.

        So a run after a kill recognises the commit of the run before.
        """
        named = "\n".join((self.plan.digest, *sorted(bins)))
        return str(uuid.uuid5(_NAMESPACE, named))


def rewrite_batch(
    spark: SparkSession, batch: Sequence[RewriteTask], terms: ExecutionParameters, *, scratch: str
) -> pa.RecordBatch:
    """Rewrite a batch of rewrite tasks and commit it; its files as rows of REWRITTEN_SCHEMA.

    Raises what reading, writing and ``commit_rewrites`` raise; unless that is UnknownOutcomeError,
    nothing of the batch is committed then. New files that certainly no commit names are removed as
    far as they are known; those of tasks that Spark abandoned stay until the next VACUUM.
    """
    started_ms = terms.now_ms()
    target = Target(scratch, REWRITTEN_ARROW, {})

    how = terms.how

    def rewrite(some: list[RewriteTask]) -> Iterator[pa.RecordBatch]:
        sign, made = StopSign(Location(scratch)), list[pa.RecordBatch]()
        try:
            for group in some:
                _refuse_stopped(sign, how.table)
                files = slice_batches(group.part)
                found = rewrite_ordered(files, how, scratch=scratch)
                for rows in found if group.ordered else rewrite_bins(files, how):
                    made.append(rows)
                    yield rows
        except BaseException:  # the outputs of a failed task attempt are never committed
            remove_outputs(how.location, _bins(row for rows in made for row in rows.to_pylist()))
            raise

    try:
        rows = _rewritten_rows(spark, batch, rewrite, how=how, target=target)
        bins = _bins(rows)
    except BaseException:  # an interrupt included: the commit has not begun
        remove_outputs(how.location, _bins(_left_rows(scratch)))
        raise
    done = _committed(bins, terms, started_ms=started_ms)
    return batch_of(_with_outcomes(rows, done), REWRITTEN_ARROW)


def _rewritten_rows(
    spark: SparkSession,
    batch: Sequence[RewriteTask],
    rewrite: Callable[[list[RewriteTask]], Iterator[pa.RecordBatch]],
    *,
    how: Rewriting,
    target: Target,
) -> list[dict[str, Any]]:
    """The files of a batch, rewritten: one job for Arrow, more for large ordered bins and Spark."""
    scratch = target.directory
    large = [group for group in batch if group.is_large_and_ordered]
    others = [group for group in batch if not group.is_large_and_ordered]
    tasks = [[group] for group in sorted(others, key=lambda each: -each.bytes)]
    parts = units(spark, tasks, rewrite, kind=RewriteTask).write(target).parts if tasks else []
    rows = [row for part in slices(parts) for row in _rows(part)]
    if large:
        made = rewrite_ordered_by_jobs(spark, large, how, scratch=scratch)
        rows += [row for each in made for row in each.to_pylist()]
    left = [row for row in rows if row["state"] == "left"]
    if left:
        rows = [row for row in rows if row["state"] != "left"]
        rows += rewrite_by_spark(spark, spark_bins(left), how, scratch=scratch)
    return rows


def _left_rows(scratch: str) -> Iterator[dict[str, Any]]:
    """Rows of finished tasks of a job that failed, which name the new files to remove."""
    for path in Path(scratch).glob("*.parquet"):
        # An incomplete part is of an unfinished task, which removes its own new files.
        with contextlib.suppress(OSError, pa.ArrowException):
            found = pq.read_table(path)
            if found.schema.names == REWRITTEN_ARROW.names:
                yield from found.to_pylist()


def _refuse_stopped(sign: StopSign, table: str) -> None:
    if sign.is_set(at_once=True):
        raise StoppedError(table, "stopped; the batch in progress was not committed", "run again")


def _rows(part: PartSlice) -> Iterator[dict[str, Any]]:
    for batch in slice_batches(part):
        yield from batch.to_pylist()


def _bins(rows: Iterable[dict[str, Any]]) -> list[RewrittenBin]:
    """The bins in state ``written``, from rows of REWRITTEN_SCHEMA."""
    inputs: dict[str, list[Add]] = defaultdict(list)
    outputs: dict[str, list[Add]] = defaultdict(list)
    for row in rows:
        if row["state"] == "written":
            role = inputs if row["role"] == "input" else outputs
            role[row["bin"]].append(msgspec.json.decode(row["add"], type=Add))
    return [RewrittenBin(name, tuple(inputs[name]), tuple(outputs[name])) for name in inputs]


def _committed(
    bins: Sequence[RewrittenBin], terms: ExecutionParameters, *, started_ms: int
) -> Committed:
    """Commit the bins; remove the new files of bins that certainly were not committed."""
    if not bins:
        return Committed(None, (), (), {})
    request = terms.request([each.bin for each in bins], started_ms)
    try:
        done = commit_rewrites(terms.head, bins, request)
    except MaintError as error:
        if error.files_may_be_removed:
            remove_outputs(terms.how.location, bins)
        raise
    dropped = {each.bin for each in done.dropped}
    remove_outputs(terms.how.location, [each for each in bins if each.bin in dropped])
    return done


def _with_outcomes(rows: Iterable[dict[str, Any]], done: Committed) -> Iterator[tuple[Any, ...]]:
    dropped = {each.bin: each.reason for each in done.dropped}
    for row in rows:
        found = dict(row)
        if row["bin"] in dropped:
            found |= {"state": "dropped", "reason": dropped[row["bin"]]}
        elif row["state"] == "written":
            found |= {"state": "committed", "version": done.version}
        yield tuple(found[name] for name in REWRITTEN_ARROW.names)
