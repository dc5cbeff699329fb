"""Execute the plan of a VACUUM: delete the planned paths, and record an outcome for each.

The driver checks the plan again, executors delete in batches of BATCH_PATHS. Before each batch an
executor reads the commits made since the plan and skips every path that they name: a RESTORE, for
example, may have made a removed file live again. Delta Spark has no such check.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, batch_of, column
from maint_assets.datasets.intents import StopSign
from maint_assets.datasets.ledger import BATCH_PATHS, DeletionLocations, recording
from maint_assets.datasets.parts import Part, PartSlice, refuse_changed, slice_batches
from maint_assets.datasets.rows import TASK_ROWS, slices, task_groups, units
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import CHECKSUM_END, checked_path
from maint_assets.delta.paths import TableRoot, parents, relative_name
from maint_assets.errors import StalePlanError, StorageError, one_line
from maint_assets.snapshot.commits import refuse_other_commit
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG, contiguous_after, log_files
from maint_assets.snapshot.newer_commits import NewerCommits, refuse_old, refuse_other_table
from maint_assets.storage import read, write
from maint_assets.storage.deletions import Deletion, PlannedFile
from maint_assets.vacuum.aliases import are_linked, identity_marks, planned_marks
from maint_assets.vacuum.diff import DIFF_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.delta.properties import TableProperties
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location
    from maint_assets.vacuum.plan import Limits, VacuumPlan

SMALL_PLAN = 5_000
"""A plan of up to this many paths is deleted by one task, directories included."""

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

_COUNTS_SCHEMA = T.StructType([
    column("outcome", "string"),
    column("is_directory", "boolean"),
    column("paths", "bigint"),
    column("bytes", "bigint"),
    column("attempt", "bigint"),
])
_COUNTS_ARROW = arrow_schema(_COUNTS_SCHEMA)
_DIFF_ARROW = arrow_schema(DIFF_SCHEMA)
_LEDGER_ARROW = arrow_schema(DELETION_SCHEMA)
_ODD = r":|^/|//|(^|/)\.\.?(/|$)"


class _Planned(NamedTuple):
    """One path of the plan."""

    path: str
    size: int
    modified_ms: int
    is_directory: bool


def ready_head(
    plan: VacuumPlan,
    location: Location,
    limits: Limits,
    *,
    kept_ms: Callable[[TableHead], int],
    now_ms: int,
) -> TableHead:
    """The head of the planned table, after all checks that its plan may still be executed.

    ``kept_ms`` computes the retention from the present settings and properties of the table. Raises
    StalePlanError, RetentionError, UnsupportedFeatureError, LogGapError or GuardError; changes
    nothing.
    """
    max_age_ms = limits.plan_max_age_ms
    refuse_old(plan.table, planned_ms=plan.planned_ms, max_age_ms=max_age_ms, now_ms=now_ms)
    head = table_head(location)
    refuse_other_table(head, table_id=plan.table_id, version=plan.version)
    refuse_unsupported(head.protocol, Operation.VACUUM, table=plan.table)
    refuse_other_commit(location, plan.version, plan.commit_mark)
    contiguous_after(log_files(location), plan.version, table=plan.table)
    _refuse_raised_retention(plan, head.properties)
    if kept_ms(head) > plan.retention_ms:
        found = "the plan retains less than the settings ask for now: its retention is too short"
        raise StalePlanError(plan.table, found, "plan again")
    if not limits.allow_clock_skew:
        write.refuse_clock_skew(location, LOG, now_ms=now_ms)
    return head


def _refuse_raised_retention(plan: VacuumPlan, properties: TableProperties) -> None:
    if properties.deleted_file_retention_ms > max(plan.retention_ms, plan.table_retention_ms):
        raise StalePlanError(
            plan.table, "the table's retention was raised since the plan", "plan again"
        )


def _refuse_newer_properties(plan: VacuumPlan, properties: TableProperties) -> None:
    """Raise StalePlanError if a commit since the plan protects more of the table than the plan."""
    _refuse_raised_retention(plan, properties)
    if properties.iceberg:  # its metadata lie in a directory that the walk hides then
        found = "a commit since the plan sets the properties of a table with UniForm"
        raise StalePlanError(plan.table, found, "plan again")


def deletion(
    spark: SparkSession,
    parts: list[Part],
    plan: VacuumPlan,
    *,
    locations: DeletionLocations,
    parallelism: int,
) -> DataFrame:
    """Delete the planned paths; counts per task: outcome, is_directory, paths, bytes, attempt.

    Evaluate the frame exactly once: evaluating it deletes. The ledger has a row per path. Files are
    deleted first, then directories, deepest first. Of a plan with more than SMALL_PLAN paths only
    the files are deleted; call ``directory_deletion`` afterwards. Executors raise StalePlanError
    when the stored plan was changed.
    """
    if plan.paths <= SMALL_PLAN:
        return _deletes(
            spark, [slices(parts)], _in_order, parts=parts, plan=plan, locations=locations
        )
    rows = min(max(-(-plan.paths // parallelism), SMALL_PLAN), TASK_ROWS)
    groups = task_groups(slices(parts, rows=rows), parallelism, weight=lambda part: part.rows)
    return _deletes(spark, groups, _files, parts=parts, plan=plan, locations=locations)


def directory_deletion(
    spark: SparkSession, parts: list[Part], plan: VacuumPlan, *, locations: DeletionLocations
) -> DataFrame:
    """Delete the planned directories, after ``deletion`` has deleted the files; same counts."""
    return _deletes(
        spark, [slices(parts)], _directories, parts=parts, plan=plan, locations=locations
    )


def deepest_last(rows: pa.Table) -> pa.Table:
    """Planned paths in order of deletion: files, then directories, the deepest first."""
    is_directory = pc.equal(rows["kind"], "directory")
    depth = pc.if_else(is_directory, pc.negate(pc.count_substring(rows["path"], "/")), 0)
    order = pa.table({"is_directory": is_directory, "depth": depth})
    by = [("is_directory", "ascending"), ("depth", "ascending")]
    return rows.take(pc.sort_indices(order, by))


def recorded(ledger_rows: DataFrame) -> DataFrame:
    """Counts as of ``deletion``, from the ledger, with the best outcome of each path.

    Needed when Spark retried a task: the second attempt finds missing what the first one deleted.
    OUTCOMES are in the order from best to worst.
    """
    names = ", ".join(f"'{name}'" for name in OUTCOMES)
    best = ledger_rows.groupBy("path").agg(
        F.expr(f"min(array_position(array({names}), outcome)) as best"),
        F.expr("max(kind = 'directory') as is_directory"),
        F.expr("max(size) as size"),
    )
    counted = best.selectExpr(
        f"element_at(array({names}), cast(best as int)) as outcome", "is_directory", "size"
    )
    return counted.groupBy("outcome", "is_directory").agg(
        F.expr("count(1) as paths"), F.expr("sum(size) as bytes"), F.expr("0L as attempt")
    )


def _deletes(
    spark: SparkSession,
    groups: list[list[PartSlice]],
    read: Callable[[list[PartSlice]], Iterator[pa.Table]],
    *,
    parts: list[Part],
    plan: VacuumPlan,
    locations: DeletionLocations,
) -> DataFrame:
    """Delete the paths that ``read`` gives for each task group, one task per group.

    A task first checks that the parts of the plan that it reads are unchanged.
    """

    def deletes(group: list[PartSlice]) -> Iterator[pa.RecordBatch]:
        needed = {each.path for each in group}
        for part in parts:
            if part.path in needed:
                refuse_changed(part, table=plan.table)
        task = _Task(plan, locations)
        for rows in read(group):
            for first in range(0, rows.num_rows, BATCH_PATHS):
                if task.sign.is_set(at_once=True):
                    break
                task.execute(rows.slice(first, BATCH_PATHS))
        yield task.counted()

    return units(spark, groups, deletes, kind=PartSlice).as_frame(_COUNTS_SCHEMA)


def _files(group: list[PartSlice]) -> Iterator[pa.Table]:
    for part in group:
        for batch in slice_batches(part):
            yield pa.Table.from_batches([batch]).filter(pc.field("kind") != "directory")


def _directories(group: list[PartSlice]) -> Iterator[pa.Table]:
    is_directory = pc.field("kind") == "directory"
    batches = (batch.filter(is_directory) for part in group for batch in slice_batches(part))
    yield deepest_last(pa.Table.from_batches(batches, _DIFF_ARROW))


def _in_order(group: list[PartSlice]) -> Iterator[pa.Table]:
    batches = (batch for part in group for batch in slice_batches(part))
    yield deepest_last(pa.Table.from_batches(batches, _DIFF_ARROW))


class _Task:
    """The state of one deleting task: the commits since the plan, and counts of outcomes."""

    def __init__(self, plan: VacuumPlan, locations: DeletionLocations) -> None:
        self.location, self.ledger = locations.table, locations.ledger
        self.root, self.sign = TableRoot.of(plan.table), StopSign(self.ledger)
        self.newer = NewerCommits(
            self.location,
            table_id=plan.table_id,
            version=plan.version,
            mark=plan.commit_mark,
            operation=Operation.VACUUM,
            refuse=partial(_refuse_newer_properties, plan),
        )
        self._marked, self._marks = set[str](), set[str]()
        self.done: dict[tuple[str, bool], tuple[int, int]] = defaultdict(lambda: (0, 0))

    def execute(self, rows: pa.Table) -> None:
        """Delete one batch and record its outcomes; a sign to stop ends it between two paths."""
        columns = [rows[name] for name in ("path", "size", "modified_ms")]
        columns.append(pc.equal(rows["kind"], "directory"))
        values = (column.to_pylist() for column in columns)
        planned = list(map(_Planned._make, zip(*values, strict=True)))
        table = self.location.uri
        try:
            self.newer.refresh()
            skipped = self._skipped(rows["path"])
        except OSError as error:
            found = f"whether planned paths may still be deleted cannot be seen ({one_line(error)})"
            raise StorageError(
                table, found, "allow listing and reading, and run it again"
            ) from error
        with recording(self.ledger, rows, schema=_LEDGER_ARROW, table=table) as outcomes:
            if self.location.is_local:
                self._delete_each(planned, skipped, outcomes)
            elif not self.sign.is_set(at_once=True):
                outcomes.extend(self._delete_objects(planned, skipped))
        for each, done in zip(planned, outcomes, strict=False):
            paths, size = self.done[done.outcome, each.is_directory]
            self.done[done.outcome, each.is_directory] = (paths + 1, size + each.size)

    def counted(self) -> pa.RecordBatch:
        """Counts of the outcomes so far, a row per outcome and kind of path."""
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        rows = [(*key, *value, attempt) for key, value in self.done.items()]
        return batch_of(rows, _COUNTS_ARROW)

    def _skipped(self, paths: pa.ChunkedArray) -> dict[str, Deletion]:
        """Planned paths that must not be deleted, each with a "skipped" outcome and its reason."""
        found: dict[str, str] = {}
        for path in paths.filter(pc.match_substring_regex(paths, _ODD)).to_pylist():
            if relative_name(path, self.root) != path:
                found[path] = "not a path inside the table"
        closed, every = _closed_in(self.location), paths.to_pylist()
        parent = [path.rpartition("/")[0] for path in every]
        shut = {directory: why for directory in set(parent) if (why := closed(directory))}
        found |= {
            path: shut[above] for path, above in zip(every, parent, strict=True) if above in shut
        }
        for path in self._named_since(every):
            found[path] = "named by a commit newer than the plan"
        return {path: Deletion("skipped", why) for path, why in found.items()}

    def _named_since(self, paths: list[str]) -> set[str]:
        """The paths whose files a commit since the plan names, by this path or by an alias.

        A Hadoop checksum (``.<name>.crc``) counts as named with its file.
        """
        newer = self.newer
        found = newer.paths.intersection(paths)
        if newer.paths:
            beside = (path for path in paths if path.endswith(CHECKSUM_END))
            found |= {path for path in beside if checked_path(path) in newer.paths}
        if marks := self._marks_since():
            found |= {p for p in paths if not marks.isdisjoint(planned_marks(self.location, p))}
        return found

    def _marks_since(self) -> set[str]:
        """Marks of the files that commits since the plan name outside of the root, or by a link."""
        if not self.location.is_local:  # an object has one key
            return self._marks
        new, table = (self.newer.paths | self.newer.outside) - self._marked, self.location.path
        self._marked |= new
        inside = pa.array(sorted(new & self.newer.paths), pa.string())
        if not read.has_mounts(self.location):
            inside = inside.filter(are_linked(inside, location=self.location))
        for path in (*(f"{table}/{path}" for path in inside.to_pylist()), *new - self.newer.paths):
            self._marks.update(identity_marks(self.location, path))
        return self._marks

    def _delete_each(
        self,
        planned: list[_Planned],
        skipped: Mapping[str, Deletion],
        outcomes: list[Deletion],
    ) -> None:
        """Delete path by path, until the sign to stop; appends the outcome of each at once."""
        for each in planned:
            if self.sign.is_set(at_once=not outcomes):
                break
            outcomes.append(skipped.get(each.path) or self._delete(each))

    def _delete_objects(
        self, planned: list[_Planned], skipped: Mapping[str, Deletion]
    ) -> list[Deletion]:
        """Delete the objects of one batch together; an error of a look fails them all."""
        files = [
            PlannedFile(each.path, each.size, each.modified_ms)
            for each in planned
            if each.path not in skipped
        ]
        try:
            done = write.delete_objects(
                self.location, files, stop=partial(self.sign.is_set, at_once=True)
            )
        except OSError as error:
            done = [Deletion("failed", f"{type(error).__name__}: {error}")] * len(files)
        outcomes = dict(zip((each.path for each in files), done, strict=True)) | dict(skipped)
        return [outcomes[each.path] for each in planned]

    def _delete(self, planned: _Planned) -> Deletion:
        """Delete one path and return its outcome; an error of the storage fails this path only."""
        path, size, modified_ms, is_directory = planned
        try:
            if is_directory:
                return write.delete_directory(self.location, path)
            return write.delete_file(self.location, path, size=size, modified_ms=modified_ms)
        except (OSError, ValueError) as error:
            return Deletion("failed", f"{type(error).__name__}: {error}")


def _closed_in(location: Location) -> Callable[[str], str | None]:
    """A function: why nothing in a directory may be deleted, None if it may.

    The directory or one above it may have become a symbolic link or a Delta table since the plan.
    """

    @cache
    def reason(directory: str) -> str | None:
        if read.is_link(location, directory):
            return "below a symbolic link"
        if read.has_directory(location, f"{directory}/{LOG}"):
            return "inside another Delta table"
        return None

    @cache
    def closed(directory: str) -> str | None:
        above = (*parents(directory), directory) if directory else ()
        return next((why for each in above if (why := reason(each))), None)

    return closed
