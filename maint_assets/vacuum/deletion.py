"""The deletion of a plan: planned paths only, each with its outcome, recorded batch by batch.

The driver checks the plan once more, executors delete. Before each batch an executor reads the
commits that came since the plan and skips every path that they name.
"""

from __future__ import annotations

import io
import pathlib
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.paths import TableRoot, parents, relative
from maint_assets.errors import (
    GuardError,
    MaintError,
    StalePlanError,
)
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG, contiguous_after, log_files
from maint_assets.snapshot.newer import NewerCommits
from maint_assets.snapshot.schemas import arrow_schema, column
from maint_assets.storage import read, write
from maint_assets.storage.location import Location
from maint_assets.vacuum.plan import refuse_stale

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.pandas._typing import ArrowMapIterFunction as ArrowFunction

    from maint_assets.snapshot.head import TableHead
    from maint_assets.vacuum.plan import Limits, VacuumPlan

BATCH_PATHS = 1_000
"""Paths that are deleted between two looks at the log and two records in the ledger."""

SMALL_PLAN = 2_000
"""Up to this many paths one task deletes files and directories."""

MAX_CLOCK_SKEW_MS = 5 * 60_000

DELETION_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column("kind", "string", "as planned"),
    column("size", "bigint", "bytes"),
    column("modified_ms", "bigint", "last modification, ms"),
    column("removed_in_version", "bigint", "commit that removed it", nullable=True),
    column("removed_by", "string", "operation of that commit", nullable=True),
    column("removed_ms", "bigint", "time of that commit, ms", nullable=True),
    column("outcome", "string", "deleted, missing, failed or skipped"),
    column("error", "string", "why it failed or was skipped", nullable=True),
    column("batch", "string", "id of the batch that recorded it"),
])

OUTCOMES = ("deleted", "missing", "failed", "skipped")

_CHUNK_SCHEMA = "outcome string, is_directory boolean, paths long, bytes long, attempt int"
_LEDGER_ARROW = arrow_schema(DELETION_SCHEMA)


class Act(msgspec.Struct, frozen=True):
    """What an executor must know to delete: the table as planned, and where the ledger is."""

    table: str
    table_id: str
    version: int
    ledger: str


def ready_head(plan: VacuumPlan, limits: Limits, *, now_ms: int) -> TableHead:
    """The newest version of the planned table, once nothing speaks against executing the plan.

    Raises StalePlanError, UnsupportedFeatureError, LogGapError or GuardError; nothing is changed.
    """
    refuse_stale(plan, limits, now_ms=now_ms)
    location = Location.of(plan.table)
    head = table_head(location)
    if head.metadata.id != plan.table_id:
        raise StalePlanError(
            plan.table,
            f"is table {head.metadata.id} now, planned was {plan.table_id}",
            "plan again",
        )
    if head.version < plan.version:
        raise StalePlanError(
            plan.table, f"is at version {head.version}, planned was {plan.version}", "plan again"
        )
    refuse_unsupported(head.protocol, Operation.VACUUM, table=plan.table)
    contiguous_after(log_files(location), plan.version, table=plan.table)
    own_ms = head.properties.deleted_file_retention_ms
    if own_ms > max(plan.retention_ms, plan.table_retention_ms):
        raise StalePlanError(plan.table, "its retention was raised since the plan", "plan again")
    _refuse_clock_skew(head, limits, now_ms=now_ms)
    return head


def _refuse_clock_skew(head: TableHead, limits: Limits, *, now_ms: int) -> None:
    if limits.allow_clock_skew:
        return
    try:
        skew_ms = write.storage_clock_ms(head.location, LOG) - now_ms
    except OSError as error:
        raise GuardError(
            head.table, f"its storage cannot be written ({error.strerror})", "allow writing"
        ) from error
    if abs(skew_ms) > MAX_CLOCK_SKEW_MS:
        raise GuardError(
            head.table,
            f"the storage's clock and this machine's differ by {abs(skew_ms) / 1000:.0f} s",
            "set the clocks, or set allow_clock_skew",
        )


def deletion(
    plan_rows: DataFrame, plan: VacuumPlan, *, ledger: Location, parallelism: int
) -> DataFrame:
    """Outcomes of the planned paths by batch: outcome, is_directory, paths, bytes, attempt.

    The ledger has each path. Evaluate it once: evaluating it deletes. Files first, then
    directories, deepest first; a plan of more than SMALL_PLAN paths has only its files deleted,
    see ``directory_deletion``.
    """
    act = _deletes(Act(plan.table, plan.table_id, plan.version, ledger.path))
    if plan.files + plan.directories <= SMALL_PLAN:
        return plan_rows.coalesce(1).transform(deepest_last).mapInArrow(act, _CHUNK_SCHEMA)
    files = plan_rows.where("kind != 'directory'").repartition(parallelism * 4)
    return files.mapInArrow(act, _CHUNK_SCHEMA)


def directory_deletion(plan_rows: DataFrame, plan: VacuumPlan, *, ledger: Location) -> DataFrame:
    """Outcomes of the planned directories by chunk, for a plan whose files went before."""
    act = _deletes(Act(plan.table, plan.table_id, plan.version, ledger.path))
    directories = plan_rows.where("kind = 'directory'").coalesce(1)
    return directories.transform(deepest_last).mapInArrow(act, _CHUNK_SCHEMA)


def deepest_last(plan_rows: DataFrame) -> DataFrame:
    """Planned paths of each partition: files, then directories from the deepest up."""
    depth = F.size(F.split("path", "/"))
    return plan_rows.sortWithinPartitions(F.col("kind") == "directory", depth.desc())


def recorded(ledger_rows: DataFrame) -> DataFrame:
    """Counts like those of ``deletion``, from the ledger: the best outcome of each path.

    Needed when a task was tried again: what its first attempt deleted, its second finds missing.
    """
    names = ", ".join(f"'{name}'" for name in OUTCOMES)
    best = ledger_rows.groupBy("path").agg(
        F.expr(f"min(array_position(array({names}), outcome)) as best"),
        F.expr("max(kind = 'directory') as is_directory"),
        F.expr("max(size) as size"),
    )
    return best.selectExpr(
        f"element_at(array({names}), cast(best as int)) as outcome",
        "is_directory", "1L as paths", "size as bytes", "0 as attempt",
    )  # fmt: skip


def _deletes(act: Act) -> ArrowFunction:
    """The function that deletes the planned rows of one partition, batch by batch."""
    text = msgspec.json.encode(act)

    def deletes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(msgspec.json.decode(text, type=Act))
        for batch in batches:
            for first in range(0, batch.num_rows, BATCH_PATHS):
                try:
                    yield task.execute(batch.slice(first, BATCH_PATHS).to_pylist())
                except MaintError as error:
                    raise RuntimeError(error.marked()) from error

    return deletes


class _Task:
    """The state of one deleting task: newer commits, and what is known of directories."""

    def __init__(self, act: Act) -> None:
        self.location = Location(act.table, act.table)
        self.ledger = Location(act.ledger, act.ledger)
        self.root = TableRoot.of(act.table)
        self.newer = NewerCommits(
            self.location, table_id=act.table_id, version=act.version, operation=Operation.VACUUM
        )
        context = TaskContext.get()
        self.attempt = 0 if context is None else context.attemptNumber()

    def execute(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """Deletes one batch and records it; counts by outcome."""
        self.newer.refresh()
        batch = str(uuid.uuid4())
        closed: dict[str, str | None] = {}
        for row in rows:
            done = self._skipped(row, closed) or self._delete(row)
            row |= {"outcome": done.outcome, "error": done.error, "batch": batch}
        self._record(rows, batch)
        return self._counted(rows)

    def _counted(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        sizes: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for row in rows:
            sizes[row["outcome"], row["kind"] == "directory"].append(row["size"])
        return pa.RecordBatch.from_pydict({
            "outcome": pa.array([outcome for outcome, _ in sizes], pa.string()),
            "is_directory": pa.array([is_directory for _, is_directory in sizes], pa.bool_()),
            "paths": pa.array([len(each) for each in sizes.values()], pa.int64()),
            "bytes": pa.array([sum(each) for each in sizes.values()], pa.int64()),
            "attempt": pa.array([self.attempt] * len(sizes), pa.int32()),
        })

    def _skipped(self, row: dict[str, Any], closed: dict[str, str | None]) -> write.Deletion | None:
        """Why a planned path must not be touched now, or None."""
        path = row["path"]
        if relative(_quoted(path), self.root) != path:
            return write.Deletion("skipped", "not a path inside the table")
        if path in self.newer.paths:
            return write.Deletion("skipped", "named by a commit newer than the plan")
        for directory in parents(path):
            if directory not in closed:
                closed[directory] = _closed(self.location, directory)
            if closed[directory]:
                return write.Deletion("skipped", closed[directory])
        return self._changed(row)

    def _changed(self, row: dict[str, Any]) -> write.Deletion | None:
        if row["kind"] == "directory":
            return None
        found = read.size_and_mtime(self.location, row["path"])
        if found is not None and found != (row["size"], row["modified_ms"]):
            return write.Deletion("skipped", "changed since it was planned")
        return None

    def _delete(self, row: dict[str, Any]) -> write.Deletion:
        if row["kind"] == "directory":
            return write.delete_directory(self.location, row["path"])
        return write.delete_file(self.location, row["path"])

    def _record(self, rows: list[dict[str, Any]], batch: str) -> None:
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=_LEDGER_ARROW), body)
        write.put_if_absent(self.ledger, f"part-{batch}.parquet", body.getvalue())


def _closed(location: Location, directory: str) -> str | None:
    """Why nothing in a directory may be touched: it is a link or another table now."""
    if pathlib.Path(f"{location.path}/{directory}").is_symlink():
        return "below a symbolic link"
    if read.exists(location, f"{directory}/{LOG}"):
        return "inside another Delta table"
    return None


def _quoted(path: str) -> str:
    """A path spelled as a log would, so that the log's own rules say where it leads."""
    return path.replace("%", "%25")
