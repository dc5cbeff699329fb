"""What the log says was removed long ago: VACUUM LITE (vacuum.md 7.3), which lists no directory.

Unlike Delta's, each file is looked at: one that is gone is no candidate, and the plan holds its
true size and time. Progress is our own (W9, W10): a version is handled once all that it removed is
gone, and every complete run says so, FULL ones as well.
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
    """The versions that a cutoff has passed.

    ``earliest`` is the oldest commit in the log, ``upper`` the newest at or before the cutoff (None
    if there is none), ``complete`` the newest up to which every removal is older than the cutoff.
    ``commits`` counts those after ``handled``, the version up to which nothing is left to do.
    """

    handled: int
    earliest: int
    upper: int | None
    complete: int | None
    commits: int

    @classmethod
    def of(cls, measured: Mapping[str, int | None], handled: int) -> ExpiredLog:
        """From what ``expired_measures`` found."""
        upper, held = measured["expired_upper"], measured["expired_held"]
        complete = upper if upper is None or held is None else min(upper, held - 1)
        return cls(
            handled, measured["earliest"] or 0, upper, complete, measured["expired_commits"] or 0
        )


def expired_measures(cutoff_ms: int, handled: int) -> dict[str, Measure]:
    """What a snapshot's rows tell of the versions that the cutoff has passed."""
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
    """LogTooShortError or LogGapError when the log no longer tells of removals not handled yet."""
    if log.upper is None or log.upper <= log.handled:
        return
    start = max(log.handled + 1, log.earliest)
    if start > log.handled + 1:
        raise LogTooShortError(
            table,
            "VACUUM LITE cannot delete all eligible files as some files are not referenced by the "
            f"Delta log: it begins at version {log.earliest}, handled is {log.handled}",
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
    """The files that are still there of those that the log removed before the cutoff.

    Rows of a listing: LISTING_SCHEMA, of such files only as a walk would show as candidates. One
    that is younger than the cutoff stays, as in any mode.
    """
    return snapshot.then(partial(_removed, log=log, walk=walk, cutoff_ms=cutoff_ms))


def _removed(
    snapshot: Iterable[pa.RecordBatch], *, log: ExpiredLog, walk: Walk, cutoff_ms: int
) -> Iterator[pa.RecordBatch]:
    entered = Entered(walk)
    for batch in snapshot:
        gone = batch.filter(_is_due(batch, log, cutoff_ms))
        inside = gone.filter(gone["inside"])
        yield _there(inside["path"], entered)
        yield _there(gone["dv_path"].filter(are_inside(gone["dv_path"])), entered)


def _is_due(batch: pa.RecordBatch, log: ExpiredLog, cutoff_ms: int) -> pa.Array:
    """Whether a row is a removal, or change data, of an expired version not handled yet."""
    action = batch["action"]
    removed = pc.and_(pc.equal(action, "remove"), pc.less(batch["deletion_ms"], cutoff_ms))
    either = pc.or_kleene(removed, pc.equal(action, "cdc"))
    expired = pc.less_equal(pc.fill_null(batch["commit_ms"], 0), cutoff_ms)
    fresh = pc.greater(pc.fill_null(batch["version"], log.handled + 1), log.handled)
    return pc.fill_null(pc.and_(either, pc.and_(expired, fresh)), fill_value=False)


def _there(paths: pa.Array, entered: Entered) -> pa.RecordBatch:
    """The files of some paths, each with what Hadoop keeps beside it, as far as they are there."""
    shown = [path for path in pc.unique(paths).to_pylist() if entered.shows_file(path)]
    beside = [hadoop_checksum(path) for path in shown]
    rows = [
        (path, path.rpartition("/")[0], *found, False, False, False)
        for path in dict.fromkeys((*shown, *beside))
        if (found := read.size_and_mtime(entered.walk.location, path)) is not None and found[0] >= 0
    ]
    return batch_of(rows, _ARROW)
