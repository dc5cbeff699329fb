"""VACUUM LITE: the candidates are files that the log removed; no directory is listed.

Unlike in Delta Spark, each file is looked up: a missing one is no candidate, and the plan has its
true size and time. Progress is recorded apart from Delta's ``_last_vacuum_info`` (see
``handled.py``): a FULL run erases that marker, and failed deletes do not stop it from advancing.
Here a version is handled once all files that it removed are gone, and FULL runs count as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.columns import arrow_schema, batch_of
from maint_assets.datasets.parts import Measure
from maint_assets.delta.names import hadoop_checksum
from maint_assets.errors import LogGapError, LogTooShortError
from maint_assets.snapshot.resolved_paths import are_inside
from maint_assets.storage import read
from maint_assets.vacuum.listing import LISTING_SCHEMA
from maint_assets.vacuum.walk import Entered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from maint_assets.datasets.rows import Rows
    from maint_assets.vacuum.walk import Walk

_ARROW = arrow_schema(LISTING_SCHEMA)


@dataclass(frozen=True, slots=True)
class ExpiredLog:
    """The expired versions of a log: those committed at or before the cutoff.

    ``earliest`` is the oldest commit in the log, ``upper`` the newest expired one (None without
    any), ``complete`` the newest one up to which every removal is older than the cutoff.
    ``commits`` counts the expired commits after the version ``handled``.
    """

    handled: int
    earliest: int
    upper: int | None
    complete: int | None
    commits: int

    @classmethod
    def of(cls, measured: Mapping[str, int | None], handled: int) -> ExpiredLog:
        """From the results of ``expired_measures``."""
        upper, held = measured["expired_upper"], measured["expired_held"]
        complete = upper if upper is None or held is None else min(upper, held - 1)
        return cls(
            handled, measured["earliest"] or 0, upper, complete, measured["expired_commits"] or 0
        )


def expired_measures(cutoff_ms: int, handled: int) -> dict[str, Measure]:
    """Measures over a snapshot's rows from which ``ExpiredLog`` is made."""
    commit, expired = pc.field("action") == "commit", pc.field("commit_ms") <= cutoff_ms
    young = (pc.field("deletion_ms") >= cutoff_ms) | (pc.field("commit_ms") >= cutoff_ms)
    held = pc.field("action").isin(["remove", "cdc"]) & young
    return {
        "earliest": Measure("min", "version", where=commit),
        "expired_upper": Measure("max", "version", where=commit & expired),
        "expired_held": Measure("min", "version", where=held & expired),
        "expired_commits": Measure(
            "count", where=commit & expired & (pc.field("version") > handled)
        ),
    }


def refuse_incomplete(log: ExpiredLog, *, table: str) -> None:
    """Refuse a log that lacks commits after the handled version.

    Raises LogTooShortError where its beginning is gone, LogGapError for a gap.
    """
    if log.upper is None or log.upper <= log.handled:
        return
    start = max(log.handled + 1, log.earliest)
    if start > log.handled + 1:
        raise LogTooShortError(
            table,
            "VACUUM LITE cannot delete all eligible files as some files are not referenced by the "
            f"Delta log: it begins at version {log.earliest}, the last version whose removed files "
            f"are all deleted is {log.handled} (-1: none)",
            "run a full VACUUM",
        )
    if log.commits != log.upper - start + 1:
        raise LogGapError(
            table,
            f"{log.upper - start + 1 - log.commits} commits between {start} and {log.upper} "
            "are missing from _delta_log",
            "run a full VACUUM",
        )


def removed_files(snapshot: Rows, log: ExpiredLog, walk: Walk, *, cutoff_ms: int) -> Rows:
    """Existing files that expired commits removed before the cutoff: LISTING_SCHEMA.

    Files that a walk would not report as candidates are left out. As in any mode, the diff keeps a
    file that was modified at or after the cutoff.
    """
    return snapshot.then(partial(_removed, log=log, walk=walk, cutoff_ms=cutoff_ms))


def _removed(
    snapshot: Iterable[pa.RecordBatch], *, log: ExpiredLog, walk: Walk, cutoff_ms: int
) -> Iterator[pa.RecordBatch]:
    entered = Entered(walk)
    for batch in snapshot:
        due = batch.filter(_is_due(batch, log, cutoff_ms))
        inside = due.filter(due["inside"])
        yield _existing(inside["path"], entered)
        yield _existing(due["dv_path"].filter(are_inside(due["dv_path"])), entered)


def _is_due(batch: pa.RecordBatch, log: ExpiredLog, cutoff_ms: int) -> pa.Array:
    """Mask of the removes and change data of expired versions not handled yet."""
    action = batch["action"]
    removed = pc.and_(pc.equal(action, "remove"), pc.less(batch["deletion_ms"], cutoff_ms))
    either = pc.or_kleene(removed, pc.equal(action, "cdc"))
    expired = pc.less_equal(pc.fill_null(batch["commit_ms"], 0), cutoff_ms)
    fresh = pc.greater(pc.fill_null(batch["version"], log.handled + 1), log.handled)
    return pc.fill_null(pc.and_(either, pc.and_(expired, fresh)), fill_value=False)


def _existing(paths: pa.Array, entered: Entered) -> pa.RecordBatch:
    """Rows of the paths that exist as files, and of their Hadoop checksums (``.<name>.crc``)."""
    shown = [path for path in pc.unique(paths).to_pylist() if entered.shows_file(path)]
    beside = [hadoop_checksum(path) for path in shown]
    rows = [
        (path, path.rpartition("/")[0], *found, False, False, False)
        for path in dict.fromkeys((*shown, *beside))
        if (found := read.size_and_mtime(entered.walk.location, path)) is not None and found[0] >= 0
    ]
    return batch_of(rows, _ARROW)
