"""Execute the plan of a log cleanup: delete the planned files in an order that may stop anywhere.

One task deletes, because all files of a kind must be gone before the next kind begins (see ORDER in
``expired_logs.py``); many tasks would need a barrier after each kind. The task opens the anchor
again before it starts, and checks before each batch that the anchor's files are unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.intents import StopSign
from maint_assets.datasets.ledger import BATCH_PATHS, DeletionLocations, recording
from maint_assets.datasets.parts import PartSlice, refuse_changed, slice_batches
from maint_assets.datasets.rows import encode_result, slices, units
from maint_assets.delta.names import (
    LogFile,
    checked_name,
    checked_path,
    checksum_name,
    commit_name,
    is_temporary,
    staged_version,
)
from maint_assets.errors import CorruptLogError, LogGapError, StalePlanError, one_line
from maint_assets.log_cleanup.checkpoints.comparing import is_small
from maint_assets.log_cleanup.checkpoints.sidecars import referenced_sidecars, sidecar_paths
from maint_assets.log_cleanup.checkpoints.soundness import soundness_of_each
from maint_assets.log_cleanup.expired_logs import EXPIRED_SCHEMA
from maint_assets.log_cleanup.log_directory import CHECKPOINT_KINDS, log_directory
from maint_assets.log_cleanup.readable import earliest_readable
from maint_assets.snapshot.log import LOG, SIDECARS, STAGED
from maint_assets.storage import read, write
from maint_assets.storage.deletions import Deletion, PlannedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.datasets.parts import Part
    from maint_assets.datasets.rows import Rows
    from maint_assets.log_cleanup.checkpoints.comparing import Cluster
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.log_cleanup.plan import LogCleanupPlan
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location

    AnchorFiles = Mapping[str, tuple[int, int] | None]

DELETED_LOGS_SCHEMA = T.StructType([
    *EXPIRED_SCHEMA,
    column("outcome", "string", "deleted, missing, failed or skipped"),
    column("error", "string", "why it failed or was skipped", nullable=True),
    column("batch", "string", "id of the batch that recorded it"),
])

_LEDGER_ARROW = arrow_schema(DELETED_LOGS_SCHEMA)
_NAMES = {"commit": commit_name, "checksum": checksum_name}
_NOT_PLANNED = Deletion("skipped", "not a file that a log cleanup with this anchor deletes")
_COMMIT_LEFT = Deletion("skipped", "a commit before the anchor is still there")
_BELOW_A_LINK = Deletion("skipped", "below a symbolic link")
_BEFORE_ALL = ("compaction", "temporary", *CHECKPOINT_KINDS, "commit")
_FILE_EXISTS = Deletion("skipped", "the file that this checksum belongs to still exists")
_NAMED_AGAIN = Deletion("skipped", "named by a checkpoint that stays")


def refuse_clock_skew(location: Location, *, now_ms: int) -> None:
    """Raise GuardError when the clock of the file system differs from ours: ages would be wrong."""
    write.refuse_clock_skew(location, LOG, now_ms=now_ms)


def proven_anchor(location: Location, plan: LogCleanupPlan, cluster: Cluster) -> AnchorFiles | None:
    """The files of the anchor, which is opened and compared on executors; None for a small log.

    The deleting task compares the anchor of a small log itself. Raises StalePlanError when the
    anchor is no longer sound.
    """
    return None if is_small(log_directory(location)) else _anchor_files(location, plan, cluster)


class Cleaned(msgspec.Struct, frozen=True):
    """Counts of a log cleanup: files by kind and outcome, bytes of the deleted files.

    ``earliest_version`` is the oldest readable version afterwards, ``log_files`` and ``log_bytes``
    the size of the log then.
    """

    outcomes: dict[str, dict[str, int]]
    bytes: int
    earliest_version: int | None
    log_files: int
    log_bytes: int
    attempt: int

    @property
    def recorded(self) -> int:
        """The number of files with an outcome."""
        return sum(sum(found.values()) for found in self.outcomes.values())

    def count(self, outcome: str) -> int:
        """The number of files with an outcome."""
        return sum(found.get(outcome, 0) for found in self.outcomes.values())


def deleted_logs(
    spark: SparkSession,
    parts: list[Part],
    plan: LogCleanupPlan,
    *,
    locations: DeletionLocations,
    anchor: AnchorFiles | None,
) -> Rows:
    """Delete the planned files in their order; one row, an encoded Cleaned.

    Evaluate it exactly once: evaluating it deletes. ``anchor`` is the result of ``proven_anchor``.
    The executor raises StalePlanError before the first batch when the stored plan was changed, and
    before any batch when the anchor is gone, changed or not sound.
    """

    def deletes(group: list[PartSlice]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            refuse_changed(part, table=plan.table)
        rows = (batch for part in group for batch in slice_batches(part))
        yield encode_result(delete_planned(rows, plan, locations, anchor=anchor))

    return units(spark, [slices(parts)], deletes, kind=PartSlice)


def delete_planned(
    rows: Iterable[pa.RecordBatch],
    plan: LogCleanupPlan,
    locations: DeletionLocations,
    *,
    anchor: AnchorFiles | None = None,
) -> Cleaned:
    """Delete the files of planned rows in their order, and record each batch in the ledger.

    Without ``anchor``, the anchor is opened and compared here.
    """
    task = _Task(plan, locations, anchor)
    for batch in rows:
        planned = pa.Table.from_batches([batch])
        for first in range(0, planned.num_rows, BATCH_PATHS):
            if task.sign.is_set(at_once=True):
                return task.cleaned()
            task.execute(planned.slice(first, BATCH_PATHS))
    return task.cleaned()


def recorded(ledger_rows: DataFrame) -> dict[str, dict[str, int]]:
    """Outcomes as in ``Cleaned``, from the ledger, with the best outcome of each file.

    Needed when Spark retried the task: the second attempt finds missing what the first one deleted.
    """
    order = "array('deleted', 'missing', 'failed', 'skipped')"
    best = ledger_rows.groupBy("path").agg(
        F.expr(f"element_at({order}, cast(min(array_position({order}, outcome)) as int))").alias(
            "outcome"
        ),
        F.max("kind").alias("kind"),
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in best.groupBy("kind", "outcome").count().collect():
        found[row["kind"]][row["outcome"]] = row["count"]
    return dict(found)


class _Task:
    """The state of the deleting task: the anchor's files, and counts of outcomes."""

    def __init__(
        self, plan: LogCleanupPlan, locations: DeletionLocations, anchor: AnchorFiles | None
    ) -> None:
        self.location, self.ledger, self.plan = locations.table, locations.ledger, plan
        self.done: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.bytes, self.sign = 0, StopSign(locations.ledger)
        self.anchor = _anchor_files(self.location, plan) if anchor is None else anchor
        self._commit_left = False
        self._links: set[str] = set()
        self._named: set[str] | Deletion | None = None

    def execute(self, rows: pa.Table) -> None:
        """Delete one batch and record its outcomes; a sign to stop ends it between two files."""
        self._refuse_lost_anchor()
        self._links = {each for each in (STAGED, SIDECARS) if read.is_link(self.location, each)}
        planned = rows.select(["path", "kind", "version", "size", "modified_ms"]).to_pylist()
        self._named = None  # read again with the first sidecar of each batch
        table = self.location.uri
        with recording(self.ledger, rows, schema=_LEDGER_ARROW, table=table) as outcomes:
            for some in _together(planned, self.location):
                if self.sign.is_set(at_once=not outcomes):
                    break
                outcomes.extend(self._outcomes(some))
                left = any(each.outcome in {"failed", "skipped"} for each in outcomes[-len(some) :])
                self._commit_left |= left and some[0]["kind"] == "commit"
        for row, done in zip(planned, outcomes, strict=False):
            self.done[row["kind"]][done.outcome] += 1
            self.bytes += row["size"] if done.outcome == "deleted" else 0

    def cleaned(self) -> Cleaned:
        """The counts so far, with the earliest version of the log as it is now."""
        context, log = TaskContext.get(), log_directory(self.location)
        return Cleaned(
            outcomes={kind: dict(found) for kind, found in self.done.items()},
            bytes=self.bytes,
            earliest_version=earliest_readable(log),
            log_files=log.file_count,
            log_bytes=log.bytes,
            attempt=0 if context is None else context.attemptNumber(),
        )

    def _outcomes(self, rows: list[dict[str, Any]]) -> list[Deletion]:
        """Delete files whose order does not matter: on a store by as few requests as possible."""
        files = [PlannedFile(row["path"], row["size"], row["modified_ms"]) for row in rows]
        skipped = [self._skipped(row) for row in rows]
        if self.location.is_local:
            return [
                kept
                or write.delete_log_file(
                    self.location, each.path, size=each.size, modified_ms=each.modified_ms
                )
                for kept, each in zip(skipped, files, strict=True)
            ]
        wanted = [each for kept, each in zip(skipped, files, strict=True) if kept is None]
        stop = partial(self.sign.is_set, at_once=True)
        try:
            done = iter(write.delete_log_objects(self.location, wanted, stop=stop))
        except OSError as error:
            done = repeat(Deletion("failed", f"{type(error).__name__}: {one_line(error)}"))
        return [next(done) if kept is None else kept for kept in skipped]

    def _skipped(self, row: dict[str, Any]) -> Deletion | None:
        """Why a file must stay; None if it may be deleted."""
        path = row["path"]
        if self._commit_left and row["kind"] not in _BEFORE_ALL:
            return _COMMIT_LEFT
        if path.rpartition("/")[0] in self._links:
            return _BELOW_A_LINK
        if not (self._has_plain_name(row) or _may_be_deleted(path, row["kind"], self.plan)):
            return _NOT_PLANNED
        if row["kind"] == "sidecar" and (kept := self._kept_sidecar(path)) is not None:
            return kept
        checked = checked_path(path)
        if row["kind"] == "hadoop_checksum" and checked and read.exists(self.location, checked):
            return _FILE_EXISTS
        return None

    def _has_plain_name(self, row: dict[str, Any]) -> bool:
        """Whether it is a commit or checksum before the anchor with its usual name.

        These are most of a plan, and need no parsing of names.
        """
        version, named = row["version"], _NAMES.get(row["kind"])
        if named is None or version is None or self.plan.anchor_version is None:
            return False
        return version < self.plan.anchor_version and row["path"] == f"{LOG}/{named(version)}"

    def _kept_sidecar(self, path: str) -> Deletion | None:
        """Why a sidecar must stay, None if it need not: a new checkpoint may name it."""
        if self._named is None:
            self._named = self._named_sidecars()
        if isinstance(self._named, Deletion):
            return self._named
        return _NAMED_AGAIN if path in self._named else None

    def _named_sidecars(self) -> set[str] | Deletion:
        """The sidecars that checkpoints name now, or the reason to keep all if that is unknown."""
        try:
            return referenced_sidecars(log_directory(self.location))
        except (CorruptLogError, LogGapError) as error:
            return Deletion("skipped", error.found)

    def _refuse_lost_anchor(self) -> None:
        for path, seen in self.anchor.items():
            if read.size_and_mtime(self.location, path) != seen:
                name = path.rpartition("/")[2]
                raise StalePlanError(
                    self.plan.table,
                    f"{name}, which the log would begin with, is gone or was changed",
                    "find out why and plan again; the ledger lists the files deleted so far",
                )


def _together(rows: list[dict[str, Any]], location: Location) -> Iterator[list[dict[str, Any]]]:
    """Runs of planned files whose order of deletion does not matter; on a disk each file alone.

    Checkpoints go version by version, see ORDER in ``expired_logs``.
    """
    if location.is_local:
        yield from ([row] for row in rows)
        return

    def order(row: dict[str, Any]) -> tuple[str, int | None]:
        return row["kind"], row["version"] if row["kind"] in CHECKPOINT_KINDS else None

    yield from (list(found) for _, found in groupby(rows, order))


def _anchor_files(
    location: Location, plan: LogCleanupPlan, cluster: Cluster | None = None
) -> AnchorFiles:
    """Size and modification time of the files that the log needs to begin with the anchor.

    All checkpoints of its version count (see ``boundary``). None are needed in mode ``spark``.
    Raises StalePlanError when the anchor is gone or not sound.
    """
    if plan.mode == "spark" or plan.anchor_version is None:
        return {}
    log, anchor = log_directory(location), plan.anchor_version
    newest = int(log.commit_versions.max(initial=anchor))
    twins = [each for each in log.checkpoints if each.version == anchor]
    files: dict[str, tuple[int, int] | None] = {}
    wrong = None if twins else "it is gone"
    if not log.has_commits(anchor, newest):
        wrong = "a commit after it is missing"
    try:
        for each in twins:
            files |= _files_of(log, each)
    except (CorruptLogError, LogGapError) as error:
        wrong = error.found
    if wrong is None:
        sound = soundness_of_each(log, twins, cluster=cluster)
        wrong = next((fault for each in twins if (fault := sound[each].fault)), None)
    if wrong is not None:
        found = f"the log cannot begin with checkpoint {anchor}: {wrong}"
        raise StalePlanError(plan.table, found, "plan again")
    return files


def _files_of(log: LogDirectory, checkpoint: Checkpoint) -> AnchorFiles:
    """Size and time of the files of a checkpoint, of its sidecars and of its version's commit."""
    version = checkpoint.version
    paths = [entry.path for entry in checkpoint.entries]
    paths += [entry.path for entry in log.commits_between(version, version)]
    paths += sidecar_paths(log.location, checkpoint.entries)
    return {path: read.size_and_mtime(log.location, path) for path in paths}


def _may_be_deleted(path: str, kind: str, plan: LogCleanupPlan) -> bool:
    """Whether the name of a planned path fits its kind and a version before the anchor."""
    directory, _, name = path.rpartition("/")
    anchor = -1 if plan.anchor_version is None else plan.anchor_version
    if kind == "hadoop_checksum":
        return directory in {LOG, STAGED, SIDECARS} and checked_name(name) is not None
    if kind == "temporary":
        return directory in {LOG, STAGED, SIDECARS} and is_temporary(name)
    if kind == "staged_commit":
        version = staged_version(name)
        return directory == STAGED and version is not None and version <= anchor
    if kind == "sidecar":
        return directory == SIDECARS and name.endswith(".parquet")
    file = LogFile.parse(name)
    if directory != LOG or file is None or file.kind.value.replace(" ", "_") != kind:
        return False
    # Of two checkpoints of the version that it keeps, Delta Spark may delete one.
    is_last = kind == "compaction" or (plan.mode == "spark" and kind in CHECKPOINT_KINDS)
    return file.version < anchor or (is_last and file.version == anchor)
