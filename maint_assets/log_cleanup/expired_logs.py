"""The plan of a log cleanup: the log files that no retained version needs.

The log is kept from its anchor on: the newest sound checkpoint whose version is not above the
newest commit at or before the cutoff (PROTOCOL.md, "Metadata Cleanup").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.parts import Measure
from maint_assets.delta.names import is_temporary
from maint_assets.errors import CorruptLogError, LogGapError
from maint_assets.log_cleanup.boundary import NOTHING_PROVEN, Boundary, boundary
from maint_assets.log_cleanup.checkpoints.sidecars import referenced_sidecars
from maint_assets.log_cleanup.commit_times import CommitTimes
from maint_assets.log_cleanup.delta_spark_mode import expired_by_files, hinted_version
from maint_assets.log_cleanup.log_directory import (
    CHECKPOINT_KINDS,
    LogDirectory,
    is_in,
    log_directory,
)
from maint_assets.log_cleanup.readable import (
    earliest_readable,
    missing_versions,
    readable_versions,
)
from maint_assets.storage import read

if TYPE_CHECKING:
    from maint_assets.log_cleanup.boundary import Proven
    from maint_assets.log_cleanup.plan import Terms
    from maint_assets.storage.location import Location

EXPIRED_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root"),
    column("kind", "string", "kind of log file, such as commit or v2_checkpoint"),
    column("version", "bigint", "version of the log file", nullable=True),
    column("size", "bigint", "bytes"),
    column("modified_ms", "bigint", "last modification, ms"),
    column("commit_ms", "bigint", "time of the commit if known, ms", nullable=True),
    column("reason", "string", "why no retained version needs it"),
])

ORDER = (
    "compaction",
    "temporary",
    *CHECKPOINT_KINDS,
    "commit",
    "checksum",
    "staged_commit",
    "sidecar",
    "hadoop_checksum",
)
"""The kinds in the order of their deletion: wherever it stops, every kept version stays readable.

Checkpoints are deleted before the commits, the newest first. Otherwise an interrupted run could
leave a wrong old checkpoint as the only one with which the next run compares the anchor.
"""

EXPIRED_MEASURES = {
    "bytes": Measure("sum", "size"),
    **{f"kind_{kind}": Measure("count", where=pc.field("kind") == kind) for kind in ORDER},
    **{f"bytes_{kind}": Measure("sum", "size", where=pc.field("kind") == kind) for kind in ORDER},
}

_BELOW_ANCHOR = ("commit", "checksum", *CHECKPOINT_KINDS)
_UP_TO_ANCHOR = ("compaction", "staged_commit")
_ARROW = arrow_schema(EXPIRED_SCHEMA)


class Findings(msgspec.Struct, frozen=True):
    """The facts behind a plan; sizes in bytes.

    ``anchor_version`` is None when nothing is planned; ``stop_reason`` then is a key of
    STOP_REASONS. ``cutoff_version`` is the newest commit at or before the cutoff. ``rejected`` has
    a sentence per checkpoint that cannot be the anchor, ``notes`` other remarks for the user.
    ``ending`` are the versions that are readable before the cleanup but not after it, as (first,
    last) pairs. The ``log_`` fields count the log before the cleanup.
    """

    anchor_version: int | None
    stop_reason: str | None
    cutoff_version: int | None
    creates_anchor: bool
    rejected: list[str]
    notes: list[str]
    earliest_before: int | None
    earliest_after: int | None
    ending: list[tuple[int, int]]
    log_files: int
    log_bytes: int
    log_commits: int
    log_checkpoints: int


def expired_logs(
    location: Location, terms: Terms, proven: Proven = NOTHING_PROVEN
) -> tuple[pa.Table, Findings]:
    """The expired log files in the order of their deletion (EXPIRED_SCHEMA), and the findings.

    ``proven`` is the result of ``proven_anchors`` for a large log. Raises StorageError, and
    CorruptLogError for a commit without a required in-commit timestamp.
    """
    log = log_directory(location)
    times = CommitTimes(log, terms.in_commit)
    if not terms.enabled:
        found, paths = Boundary(None, "disabled"), set[str]()
    elif terms.mode == "spark":
        found, paths = _by_files(log, times, terms)
    else:
        found = boundary(log, times, terms, proven=proven)
        paths = _paths(log, found, terms)
    rows = _rows(log, times, paths)
    if found.stop_reason is None and not rows.num_rows:
        found = replace(found, anchor=None, stop_reason="nothing_to_delete", creates=False)
    if log.links:
        found = _with_links(log, found)
    return rows, _findings(log, found, paths)


def _with_links(log: LogDirectory, found: Boundary) -> Boundary:
    """The boundary with a note about symbolic links; they become the stop reason if they are it."""
    first = min(log.links, key=lambda file: file.version)
    note = f"symbolic links in the log are left alone: {len(log.links)}, such as {first.name}"
    linked, commits = log.linked_commits, log.commit_versions
    is_reason = {
        "no_expired_commit": bool(linked) and linked[0] < int(commits.min(initial=linked[0] + 1)),
        "gap": any(version > (found.cutoff or 0) for version in linked),
        "no_checkpoint_before_cutoff": bool(log.unreadable_checkpoints),
    }
    reason = "links" if is_reason.get(found.stop_reason or "") else found.stop_reason
    return replace(found, stop_reason=reason, notes=[*found.notes, note])


def _paths(log: LogDirectory, found: Boundary, terms: Terms) -> set[str]:
    """Paths of the files to delete when the log begins with the anchor."""
    if found.anchor is None:
        return set()
    files, anchor = log.files, found.anchor
    version, kind = files["version"], files["kind"]
    old = pc.less(files["modified_ms"], terms.left_over_ms)
    below = pc.and_(pc.less(version, anchor), _is_of(kind, _BELOW_ANCHOR))
    # A compaction is deleted by the version that it begins with, as PROTOCOL.md has it.
    covered = pc.and_(pc.less_equal(version, anchor), _is_of(kind, _UP_TO_ANCHOR))
    left_over = pc.and_(_is_of(kind, ("temporary",)), old)
    expired = pc.or_kleene(pc.or_kleene(below, covered), left_over)
    paths = set(files["path"].filter(pc.fill_null(expired, fill_value=False)).to_pylist())
    try:
        paths |= _unneeded_sidecars(log.without(paths), before_ms=terms.left_over_ms)
    except (CorruptLogError, LogGapError) as error:
        found.notes.append(f"no sidecar is planned: {error.found}")
    return paths | _forgotten_checksums(log, anchor, before_ms=terms.left_over_ms)


def _unneeded_sidecars(kept: LogDirectory, *, before_ms: int) -> set[str]:
    """Sidecars older than ``before_ms`` that no kept checkpoint names."""
    rows = kept.of("sidecar").to_pylist()
    sidecars = {row["path"] for row in rows if row["modified_ms"] < before_ms}
    return sidecars - referenced_sidecars(kept) if sidecars else set()


def _forgotten_checksums(log: LogDirectory, anchor: int, *, before_ms: int) -> set[str]:
    """Hadoop checksums (``.<name>.crc``) whose file was deleted without them."""
    return {
        row["path"]
        for row in log.of("hadoop_checksum").to_pylist()
        if row["modified_ms"] < before_ms
        and (_is_below(row["version"], anchor) or is_temporary(row["checked"].rpartition("/")[2]))
        and not read.exists(log.location, row["checked"])
    }


def _is_below(version: int | None, anchor: int) -> bool:
    return version is not None and version < anchor


def _by_files(log: LogDirectory, times: CommitTimes, terms: Terms) -> tuple[Boundary, set[str]]:
    """The boundary and the paths of mode ``spark``; the anchor is the oldest version left."""
    cutoff = times.newest_until(terms.cutoff_ms)
    hinted = hinted_version(log)
    if hinted is None:
        return Boundary(None, "no_hint", cutoff), set()
    paths, forbidden = expired_by_files(log, terms, hinted=hinted)
    if forbidden:
        return Boundary(None, "checkpoint_protection", cutoff), set()
    deleted = log.commits.filter(is_in(log.commits, paths))["version"].to_pylist()
    left = log.without(paths).commits["version"]
    return Boundary(max(deleted) + 1 if deleted else pc.min(left).as_py(), None, cutoff), paths


def _rows(log: LogDirectory, times: CommitTimes, paths: set[str]) -> pa.Table:
    """Rows of the planned files and their Hadoop checksums, in the order of their deletion."""
    files = log.files
    planned = files.filter(pc.or_(is_in(files, paths), is_in(files, paths, "checked")))
    planned = _in_order(planned)
    columns = {
        **{name: planned[name] for name in ("path", "kind", "version", "size", "modified_ms")},
        "commit_ms": _commit_ms(log, times, planned),
        "reason": pa.array(_reasons(log, planned), pa.string()),
    }
    return pa.table([columns[name] for name in _ARROW.names], schema=_ARROW)


def _in_order(planned: pa.Table) -> pa.Table:
    """The files in the order of their deletion.

    Of several checkpoints of a version the one that readers prefer is deleted last.
    """
    kind, version = planned["kind"], planned["version"]
    rank, is_checkpoint = pc.index_in(kind, pa.array(ORDER)), _is_of(kind, CHECKPOINT_KINDS)
    keys = {
        "class": pc.if_else(is_checkpoint, ORDER.index(CHECKPOINT_KINDS[0]), rank),
        "place": pc.if_else(is_checkpoint, pc.negate(version), version),
        "rank": rank,
    }
    for name, values in keys.items():
        planned = planned.append_column(name, values)
    return planned.sort_by([(name, "ascending") for name in (*keys, "path")])


def _commit_ms(log: LogDirectory, times: CommitTimes, planned: pa.Table) -> pa.Array:
    """Commit time of the version of each file, null if unknown.

    Reading an in-commit timestamp means opening a file, so only the times that the search for the
    cutoff has read are known.
    """
    versions = pa.array(log.commit_versions)
    if times.has_in_commit:
        known = pa.array([times.asked.get(v) for v in versions.to_pylist()], pa.int64())
    else:
        known = pa.array(times.by_file)
    index = pc.index_in(planned["version"], versions)
    return known.take(index.combine_chunks() if isinstance(index, pa.ChunkedArray) else index)


def _reasons(log: LogDirectory, planned: pa.Table) -> list[str]:
    """The value of the column ``reason`` for each planned file."""
    complete = {entry.path for each in log.checkpoints for entry in each.entries}
    return [
        _REASONS.get(kind, "before_anchor")
        if kind not in CHECKPOINT_KINDS or path in complete
        else "incomplete"
        for path, kind in zip(planned["path"].to_pylist(), planned["kind"].to_pylist(), strict=True)
    ]


_REASONS = {
    "compaction": "covered_by_anchor",
    "temporary": "left_over",
    "staged_commit": "published",
    "sidecar": "unreferenced",
    "hadoop_checksum": "of_a_file_that_goes",
}


def _findings(log: LogDirectory, found: Boundary, paths: set[str]) -> Findings:
    before = readable_versions(log)
    earliest, after = before[0][0] if before else None, before
    earliest_after = earliest
    if found.creates and found.anchor is not None:
        earliest_after, after = found.anchor, [(found.anchor, int(log.commit_versions[-1]))]
    elif paths:
        left = log.without(paths)
        earliest_after, after = earliest_readable(left), readable_versions(left)
    return Findings(
        anchor_version=found.anchor,
        stop_reason=found.stop_reason,
        cutoff_version=found.cutoff,
        creates_anchor=found.creates,
        rejected=found.rejected,
        notes=found.notes,
        earliest_before=earliest,
        earliest_after=earliest_after,
        ending=missing_versions(before, after),
        log_files=log.file_count,
        log_bytes=log.bytes,
        log_commits=log.commits.num_rows + len(log.linked_commits),
        log_checkpoints=len(log.checkpoints),
    )


def _is_of(kinds: pa.ChunkedArray, wanted: tuple[str, ...]) -> pa.ChunkedArray:
    return pc.is_in(kinds, pa.array(wanted))
