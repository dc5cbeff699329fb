"""Which files and directories may go: old enough, visible, and named by no retained version.

Each source says what it knows of a path. All that is said of one path is judged in one place: in
one task for a small table, else in buckets of paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.exchange import path_rows
from maint_assets.datasets.parts import Measure, slice_batches
from maint_assets.datasets.rows import slices
from maint_assets.delta.paths import parents
from maint_assets.snapshot.resolved_paths import directories_of
from maint_assets.vacuum.listing import LINK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.datasets.parts import Part, PartSlice
    from maint_assets.datasets.rows import Rows

DIFF_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column("kind", "string", "orphan, removed, dv, cdc, index, checksum or directory"),
    column("size", "bigint", "bytes, 0 for directories"),
    column("modified_ms", "bigint", "last modification, ms"),
    column(
        "removed_in_version",
        "bigint",
        "commit that removed it, where the log still knows",
        nullable=True,
    ),
    column("removed_by", "string", "operation of that commit", nullable=True),
    column("removed_ms", "bigint", "time of that commit, or of the tombstone, ms", nullable=True),
])

KINDS = ("orphan", "removed", "dv", "cdc", "index", "checksum", "directory")

MISSING, HELD, LINKED, LOST = "missing", "held", "linked", "lost"
"""Kinds of rows that are measured and no part of a plan: active files that are not there, removed
files that are there and stay, mostly for their age, valid files that are links, and files that are
there and that the checkpoint lacks."""

PLANNED = pc.field("kind").isin(KINDS)

DIFF_MEASURES = {
    "bytes": Measure("sum", "size", where=PLANNED),
    "largest_bytes": Measure("max", "size", where=PLANNED),
    "time_travel_ends_before": Measure("max", "removed_in_version", where=PLANNED),
    "missing_files": Measure("count", where=pc.field("kind") == MISSING),
    "missing_example": Measure("min", "path", where=pc.field("kind") == MISSING),
    "lost_files": Measure("count", where=pc.field("kind") == LOST),
    "lost_example": Measure("min", "path", where=pc.field("kind") == LOST),
    "linked_files": Measure("count", where=pc.field("kind") == LINKED),
    "held_version": Measure("min", "removed_in_version", where=pc.field("kind") == HELD),
    **{f"kind_{name}": Measure("count", where=pc.field("kind") == name) for name in KINDS},
    **{f"bytes_{name}": Measure("sum", "size", where=pc.field("kind") == name) for name in KINDS},
}

SAYINGS = (
    "candidate", "found", "kept", "valid", "active", "removed", "checksum", "named", "link", "lost"
)  # fmt: skip
"""What is said of a path. ``checksum`` is said of the file that it is of: what Hadoop keeps beside
it may go; ``named`` that the log names this checksum itself; ``link`` that it is a link; ``lost``
that the checkpoint should hold it."""

SAID_SCHEMA = T.StructType([
    column("path", "string"),
    column("said", "bigint", "its place in SAYINGS"),
    column("is_dir", "boolean", nullable=True),
    column("size", "bigint", nullable=True),
    column("modified_ms", "bigint", nullable=True),
    column("version", "bigint", nullable=True),
    column("operation", "string", nullable=True),
    column("removed_ms", "bigint", nullable=True),
])

Paths = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

IsMissing = Callable[[pa.Array], pa.Array]
"""Which of some active paths that were not listed are missing from the storage."""

_READ = {
    "snapshot": ["action", "path", "dv_path", "deletion_ms", "version", "operation", "commit_ms"],
    "valid_files": ["path", "reason"],
    "listing": ["path", "parent", "size", "modified_ms", "is_dir", "hidden"],
}
_CHECKSUM = r"(?s)^(.*/)?\.([^/]+)\.crc$"
_HEADER = 8
_NONE = -1
_BY_AGE = ("removed_ms", "version")
_SAID = arrow_schema(SAID_SCHEMA)
_ARROW = arrow_schema(DIFF_SCHEMA)
_KIND_OF_NAME = (
    (
        "dv",
        r"(^|/)deletion_vector_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.bin$",
    ),
    ("cdc", r"(^|/)_change_data"),
    ("index", r"(^|/)_delta_index"),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of the three stages that a plan is made from."""

    snapshot: list[Part]
    valid_files: list[Part]
    listing: list[Part]


def diff(
    spark: SparkSession,
    sources: Sources,
    *,
    cutoff_ms: int,
    is_missing: IsMissing,
    parallelism: int,
    scratch: str,
) -> Rows:
    """Files that VACUUM may delete, and directories that nothing remains beneath: DIFF_SCHEMA.

    Last modified before the cutoff: a file exactly at it stays. Rows of other kinds than KINDS
    are no part of the plan: MISSING are the active files that are not listed, and of those
    ``is_missing``; HELD are removed files that were found and stay, LINKED are valid ones that are
    links, LOST those that were found and that the checkpoint should hold.
    """
    read = [
        *slices(sources.snapshot, "snapshot"),
        *slices(sources.valid_files, "valid_files"),
        *slices(sources.listing, "listing"),
    ]
    saying = partial(said, cutoff_ms=cutoff_ms)
    every = path_rows(spark, read, saying, parallelism=parallelism, scratch=scratch)
    return every.then(partial(judged, is_missing=is_missing))


def said(read: Iterable[PartSlice], *, cutoff_ms: int) -> Iterator[pa.RecordBatch]:
    """What each row of the sources says of a path: SAID_SCHEMA."""
    kept: set[str] = set()
    for part in read:
        for batch in slice_batches(part, _READ[part.source]):
            if part.source == "snapshot":
                yield from _removed(batch)
            elif part.source == "valid_files":
                yield from _valid(batch)
                yield _kept_above(pc.unique(directories_of(batch["path"])), kept)
            else:
                yield from _listed(batch, cutoff_ms, kept)


def nothing_is_missing(paths: pa.Array) -> pa.Array:
    """None of them: the listing looked at no active file."""
    return pa.repeat(pa.scalar(value=False), len(paths))


def judged(every: Iterable[pa.RecordBatch], *, is_missing: IsMissing) -> Iterator[pa.RecordBatch]:
    """The plan, from all that is said of some paths: DIFF_SCHEMA, and the missing active files.

    A candidate goes that is not valid; a directory goes that nothing beneath keeps; the checksum of
    a file goes with it, and where there is none.
    """
    said_of = _Said(pa.Table.from_batches(every, _SAID).combine_chunks())
    rows, found, active = said_of.rows, said_of.each("found"), said_of.each("active")
    candidate = said_of.first("candidate")
    listed = (candidate != _NONE) & ~found
    is_dir = listed & pc.fill_null(rows["is_dir"], fill_value=False).to_numpy()[candidate]
    named = active | said_of.each("valid")
    goes = listed & ~is_dir & ~named & ~said_of.each("kept")
    yield from _files(
        rows.take(candidate[goes]), rows.take(_rows_at(said_of.newest_removal()[goes]))
    )
    checksum, there = said_of.first("checksum"), (candidate != _NONE) | found | named
    alone = (checksum != _NONE) & (goes | ~there) & ~said_of.each("named")
    yield from _checksums(rows.take(checksum[alone]))
    yield from _planned(rows.take(candidate[is_dir & ~named & ~said_of.each("kept")]), "directory")
    held = rows.take(said_of.rows_of("removed", found))
    yield from _planned(held, HELD, version=pc.fill_null(held["version"], 0))
    yield from _planned(rows.take(said_of.first("link")[named & said_of.each("link")]), LINKED)
    lost = said_of.each("lost") & ~active & (listed | found)
    yield from _planned(rows.take(said_of.first("lost")[lost]), LOST)
    unlisted = rows.take(said_of.first("active")[active & ~listed & ~found])
    yield from _planned(unlisted.filter(is_missing(_array(unlisted["path"]))), MISSING)


class _Said:
    """All that is said of some paths, each path known by its number."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        paths = _array(rows["path"]).dictionary_encode()
        self._number, self._paths = paths.indices.to_numpy(), len(paths.dictionary)
        self._said = rows["said"].to_numpy()

    def rows_of(self, what: str, some: Paths | None = None) -> Numbers:
        """The rows that say it, of all paths or of some."""
        rows = np.flatnonzero(self._said == SAYINGS.index(what))
        return rows if some is None else rows[some[self._number[rows]]]

    def each(self, what: str) -> Paths:
        """Whether it is said of each path."""
        told = np.zeros(self._paths, np.bool_)
        told[self._number[self.rows_of(what)]] = True
        return told

    def first(self, what: str) -> Numbers:
        """The first row of each path that says it, or _NONE."""
        return self._last(self.rows_of(what)[::-1])

    def newest_removal(self) -> Numbers:
        """The row of each path with the newest commit that removed it, or _NONE."""
        rows = self.rows_of("removed")
        of = (pc.fill_null(self.rows[name], _NONE).to_numpy()[rows] for name in _BY_AGE)
        return self._last(rows[np.lexsort(tuple(of))])

    def _last(self, rows: Numbers) -> Numbers:
        last = np.full(self._paths, _NONE, np.int64)
        last[self._number[rows]] = rows
        return last


def _listed(batch: pa.RecordBatch, cutoff_ms: int, kept: set[str]) -> Iterator[pa.RecordBatch]:
    """Old visible entries are candidates; all others stay and keep every directory above.

    The checksum that Hadoop keeps beside a file goes with it, and keeps no directory by itself.
    What only has the name of one stays.
    """
    named = pc.and_not(pc.match_substring_regex(batch["path"], _CHECKSUM), batch["is_dir"])
    old = pc.and_(pc.invert(batch["hidden"]), pc.less(batch["modified_ms"], cutoff_ms))
    old = pc.and_(old, pc.or_(pc.invert(named), _has_size_of_checksum(batch)))
    beside = pc.and_(old, named)
    checksums = batch.filter(beside)
    yield _saying(
        "checksum",
        pc.replace_substring_regex(checksums["path"], _CHECKSUM, r"\1\2"),
        is_dir=checksums["is_dir"],
        size=checksums["size"],
        modified_ms=checksums["modified_ms"],
    )
    candidates = batch.filter(pc.and_not(old, beside))
    stays = batch.filter(pc.invert(old))
    yield _saying(
        "candidate",
        candidates["path"],
        is_dir=candidates["is_dir"],
        size=candidates["size"],
        modified_ms=candidates["modified_ms"],
    )
    yield _saying("found", stays["path"])
    yield _saying("link", stays["path"].filter(pc.equal(stays["size"], LINK_SIZE)))
    yield _saying("kept", stays["path"].filter(stays["is_dir"]))
    yield _kept_above(pc.unique(stays["parent"]), kept)


def _valid(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    paths, active = batch["path"], pc.starts_with(batch["reason"], "active")
    said = pc.if_else(active, SAYINGS.index("active"), SAYINGS.index("valid"))
    yield _saying(pc.cast(said, pa.int64()), paths)
    yield _saying("lost", paths.filter(pc.starts_with(batch["reason"], "lost")))
    checksums = paths.filter(pc.match_substring_regex(paths, _CHECKSUM))
    yield _saying("named", pc.replace_substring_regex(checksums, _CHECKSUM, r"\1\2"))


def _has_size_of_checksum(batch: pa.RecordBatch) -> pa.Array:
    """Whether each file has a header of eight bytes, and four bytes for each part of another."""
    whole = pc.equal(pc.bit_wise_and(batch["size"], 3), 0)
    return pc.and_(whole, pc.greater_equal(batch["size"], _HEADER))


def _removed(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """What tombstones say of their files and of their vectors: which commit removed them."""
    tombstones = batch.filter(pc.equal(batch["action"], "remove"))
    time = tombstones["deletion_ms"]
    time = pc.coalesce(tombstones["commit_ms"], pc.if_else(pc.greater(time, 0), time, None))
    for name in ("path", "dv_path"):
        there = pc.is_valid(tombstones[name])
        yield _saying(
            "removed",
            tombstones[name].filter(there),
            version=tombstones["version"].filter(there),
            operation=tombstones["operation"].filter(there),
            removed_ms=time.filter(there),
        )


def _kept_above(directories: pa.Array, kept: set[str]) -> pa.RecordBatch:
    """The directories and all above them, those not said before."""
    found: set[str] = set()
    for directory in directories.to_pylist():
        if directory and directory not in kept:
            found.update((directory, *parents(directory)))
    found -= kept
    kept |= found
    return _saying("kept", pa.array(sorted(found), pa.string()))


def _saying(what: str | pa.Array, paths: pa.Array, **told: pa.Array) -> pa.RecordBatch:
    saying = _constant(SAYINGS.index(what), len(paths)) if isinstance(what, str) else what
    columns = {"path": paths, "said": saying, **told}
    return pa.RecordBatch.from_arrays(
        [columns.get(f.name, pa.nulls(len(paths), f.type)) for f in _SAID], schema=_SAID
    )


def _files(files: pa.Table, by: pa.Table) -> Iterator[pa.RecordBatch]:
    """Planned files by kind, each with the newest commit that removed it, if one did."""
    kind = pc.if_else(pc.is_valid(by["path"]), "removed", "orphan")
    for name, pattern in reversed(_KIND_OF_NAME):
        kind = pc.if_else(pc.match_substring_regex(files["path"], pattern), name, kind)
    told = {name: by[name] for name in ("version", "operation", "removed_ms")}
    yield from _planned(files, kind, **told)


def _planned(
    rows: pa.Table, kind: str | pa.ChunkedArray, **told: pa.ChunkedArray
) -> Iterator[pa.RecordBatch]:
    count = rows.num_rows
    kinds = pa.repeat(pa.scalar(kind), count) if isinstance(kind, str) else kind
    columns = [
        rows["path"],
        kinds,
        pc.fill_null(rows["size"], 0),
        pc.fill_null(rows["modified_ms"], 0),
    ]
    columns += [told.get(name, rows[name]) for name in ("version", "operation", "removed_ms")]
    yield from pa.Table.from_arrays(columns, schema=_ARROW).to_batches()


def _checksums(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Planned checksums, by their own paths: said is the file that each is of."""
    path = pc.replace_substring_regex(rows["path"], r"(?s)^(.*/)?([^/]+)$", r"\1.\2.crc")
    yield from _planned(_with_paths(rows, path), "checksum")


def _rows_at(numbers: Numbers) -> pa.Array:
    """Numbers of rows, null for _NONE."""
    return pa.array(numbers, mask=numbers == _NONE)


def _with_paths(rows: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("path"), _SAID.field("path"), paths)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _constant(value: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), rows)
