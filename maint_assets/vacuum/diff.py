"""The plan of a VACUUM: files and directories that are old enough, visible and not valid.

The rows of the snapshot, the valid files and the listing become facts about paths (FACT_SCHEMA).
All facts about a path meet in one task, which decides whether the path may be deleted: a small
table has one such task, a large one a hash bucket of paths per task.
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
        "version of the commit that removed it, if the log still has it",
        nullable=True,
    ),
    column("removed_by", "string", "operation of that commit", nullable=True),
    column("removed_ms", "bigint", "time of that commit, or of the tombstone, ms", nullable=True),
])

KINDS = ("orphan", "removed", "dv", "cdc", "index", "checksum", "directory")

MISSING, HELD, LINKED, LOST, UNLISTED = "missing", "held", "linked", "lost", "unlisted"
"""Kinds of rows that are measured but not planned: active files missing from the storage, removed
files that exist and stay (most are too young), valid files or directories of such that are symbolic
links, existing files that the checkpoint lacks although a commit before it added them, and active
files that exist but were not listed: by that name, or at all."""

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
    "unlisted_files": Measure("count", where=pc.field("kind") == UNLISTED),
    "held_version": Measure("min", "removed_in_version", where=pc.field("kind") == HELD),
    **{f"kind_{name}": Measure("count", where=pc.field("kind") == name) for name in KINDS},
    **{f"bytes_{name}": Measure("sum", "size", where=pc.field("kind") == name) for name in KINDS},
}

FACTS = (
    "candidate", "found", "kept", "valid", "active", "removed", "checksum", "named", "link", "lost"
)  # fmt: skip
"""The kinds of facts about a path.

``candidate``: listed, visible and older than the cutoff. ``found``: listed, but stays. ``kept``: a
directory with something below it that stays. ``valid``, ``active``: a valid file, of a retained or
of the planned version. ``removed``: has a tombstone. ``link``: a symbolic link. ``lost``: missing
from the checkpoint. Two are about the file that a Hadoop checksum (``.<name>.crc``) belongs to:
``checksum``: its checksum exists and is old enough; ``named``: the log itself names the checksum.
"""

FACT_SCHEMA = T.StructType([
    column("path", "string"),
    column("fact", "bigint", "kind of the fact: its index in FACTS"),
    column("is_dir", "boolean", nullable=True),
    column("size", "bigint", nullable=True),
    column("modified_ms", "bigint", nullable=True),
    column("version", "bigint", nullable=True),
    column("operation", "string", nullable=True),
    column("removed_ms", "bigint", nullable=True),
])

Paths = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

Mask = Callable[[pa.Array], pa.Array]
"""A mask of paths from a check on the storage."""

_READ = {
    "snapshot": ["action", "path", "dv_path", "deletion_ms", "version", "operation", "commit_ms"],
    "valid_files": ["path", "reason"],
    "listing": ["path", "parent", "size", "modified_ms", "is_dir", "hidden"],
}
_CHECKSUM = r"(?s)^(.*/)?\.([^/]+)\.crc$"
_HEADER = 8
_NONE = -1
_BY_AGE = ("removed_ms", "version")
_FACT_ARROW = arrow_schema(FACT_SCHEMA)
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
class StorageChecks:
    """Checks on the storage of what the listing does not show.

    ``are_missing``: of active files that were not listed; None if only some files were.
    ``are_linked``: of valid files, which are links or behind one; None if the listing shows links.
    """

    are_missing: Mask | None = None
    are_linked: Mask | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """The datasets of the three stages from which a plan is made."""

    snapshot: list[Part]
    valid_files: list[Part]
    listing: list[Part]


def diff(
    spark: SparkSession,
    sources: Sources,
    *,
    cutoff_ms: int,
    checks: StorageChecks,
    parallelism: int,
    scratch: str,
) -> Rows:
    """Files that VACUUM may delete, and directories with nothing left below them: DIFF_SCHEMA.

    Planned files were last modified before the cutoff; one exactly at it stays. Rows of the kinds
    MISSING, HELD, LINKED, LOST and UNLISTED are not part of the plan.
    """
    read = [
        *slices(sources.snapshot, "snapshot"),
        *slices(sources.valid_files, "valid_files"),
        *slices(sources.listing, "listing"),
    ]
    facts = partial(path_facts, cutoff_ms=cutoff_ms, are_linked=checks.are_linked)
    every = path_rows(spark, read, facts, parallelism=parallelism, scratch=scratch)
    return every.then(partial(planned_rows, are_missing=checks.are_missing))


def path_facts(
    read: Iterable[PartSlice], *, cutoff_ms: int, are_linked: Mask | None = None
) -> Iterator[pa.RecordBatch]:
    """Facts about paths from slices of the three sources: FACT_SCHEMA."""
    kept: set[str] = set()
    for part in read:
        for batch in slice_batches(part, _READ[part.source]):
            if part.source == "snapshot":
                yield from _removed(batch)
            elif part.source == "valid_files":
                yield from _valid(batch, are_linked)
                yield _kept_above(pc.unique(directories_of(batch["path"])), kept)
            else:
                yield from _listed(batch, cutoff_ms, kept)


def planned_rows(
    every: Iterable[pa.RecordBatch], *, are_missing: Mask | None
) -> Iterator[pa.RecordBatch]:
    """The plan and the measured rows, from all facts about some paths: DIFF_SCHEMA.

    A candidate is planned when it is not valid, a directory when nothing below keeps it. The
    Hadoop checksum of a file is planned with the file, or alone when that file does not exist.
    """
    facts = _Facts(pa.Table.from_batches(every, _FACT_ARROW).combine_chunks())
    rows, found, active = facts.rows, facts.each("found"), facts.each("active")
    candidate = facts.first("candidate")
    listed = (candidate != _NONE) & ~found
    is_dir = listed & pc.fill_null(rows["is_dir"], fill_value=False).to_numpy()[candidate]
    named = active | facts.each("valid")
    goes = listed & ~is_dir & ~named & ~facts.each("kept")
    yield from _files(rows.take(candidate[goes]), rows.take(_rows_at(facts.newest_removal()[goes])))
    checksum, there = facts.first("checksum"), (candidate != _NONE) | found | named
    alone = (checksum != _NONE) & (goes | ~there) & ~facts.each("named")
    yield from _checksums(rows.take(checksum[alone]))
    yield from _planned(rows.take(candidate[is_dir & ~named & ~facts.each("kept")]), "directory")
    held = rows.take(facts.rows_of("removed", found))
    yield from _planned(held, HELD, version=pc.fill_null(held["version"], 0))
    leads = facts.each("link") & (named | facts.each("kept"))
    yield from _planned(rows.take(facts.first("link")[leads]), LINKED)
    lost = facts.each("lost") & ~active & (listed | found)
    yield from _planned(rows.take(facts.first("lost")[lost]), LOST)
    if are_missing is None:
        return
    unlisted = rows.take(facts.first("active")[active & ~listed & ~found])
    gone = are_missing(_array(unlisted["path"]))
    yield from _planned(unlisted.filter(gone), MISSING)
    yield from _planned(unlisted.filter(pc.invert(gone)), UNLISTED)


class _Facts:
    """All facts about some paths. Masks and row numbers have one element per distinct path."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        paths = _array(rows["path"]).dictionary_encode()
        self._number, self._paths = paths.indices.to_numpy(), len(paths.dictionary)
        self._kinds = rows["fact"].to_numpy()

    def rows_of(self, fact: str, mask: Paths | None = None) -> Numbers:
        """Numbers of the rows with the fact, of all paths or of those where the mask holds."""
        rows = np.flatnonzero(self._kinds == FACTS.index(fact))
        return rows if mask is None else rows[mask[self._number[rows]]]

    def each(self, fact: str) -> Paths:
        """Mask of the paths that have the fact."""
        holds = np.zeros(self._paths, np.bool_)
        holds[self._number[self.rows_of(fact)]] = True
        return holds

    def first(self, fact: str) -> Numbers:
        """Number of the first row with the fact for each path, or _NONE."""
        return self._last(self.rows_of(fact)[::-1])

    def newest_removal(self) -> Numbers:
        """Number of the row with the newest commit that removed each path, or _NONE."""
        rows = self.rows_of("removed")
        keys = (pc.fill_null(self.rows[name], _NONE).to_numpy()[rows] for name in _BY_AGE)
        return self._last(rows[np.lexsort(tuple(keys))])

    def _last(self, rows: Numbers) -> Numbers:
        last = np.full(self._paths, _NONE, np.int64)
        last[self._number[rows]] = rows
        return last


def _listed(batch: pa.RecordBatch, cutoff_ms: int, kept: set[str]) -> Iterator[pa.RecordBatch]:
    """Facts from the listing: old visible entries are candidates, all others keep their parents.

    Hadoop's local file system writes a checksum file ``.<name>.crc`` beside a file. It is deleted
    with its file and keeps no directory by itself. A file that has only the name of a checksum,
    not the size, stays.
    """
    has_name = pc.and_not(pc.match_substring_regex(batch["path"], _CHECKSUM), batch["is_dir"])
    old = pc.and_(pc.invert(batch["hidden"]), pc.less(batch["modified_ms"], cutoff_ms))
    old = pc.and_(old, pc.or_(pc.invert(has_name), _has_size_of_checksum(batch)))
    is_checksum = pc.and_(old, has_name)
    checksums = batch.filter(is_checksum)
    yield _facts(
        "checksum",
        pc.replace_substring_regex(checksums["path"], _CHECKSUM, r"\1\2"),
        is_dir=checksums["is_dir"],
        size=checksums["size"],
        modified_ms=checksums["modified_ms"],
    )
    candidates = batch.filter(pc.and_not(old, is_checksum))
    stays = batch.filter(pc.invert(old))
    yield _facts(
        "candidate",
        candidates["path"],
        is_dir=candidates["is_dir"],
        size=candidates["size"],
        modified_ms=candidates["modified_ms"],
    )
    yield _facts("found", stays["path"])
    yield _facts("link", stays["path"].filter(pc.equal(stays["size"], LINK_SIZE)))
    yield _facts("kept", stays["path"].filter(stays["is_dir"]))
    yield _kept_above(pc.unique(stays["parent"]), kept)


def _valid(batch: pa.RecordBatch, are_linked: Mask | None) -> Iterator[pa.RecordBatch]:
    paths, active = batch["path"], pc.starts_with(batch["reason"], "active")
    kind = pc.if_else(active, FACTS.index("active"), FACTS.index("valid"))
    yield _facts(pc.cast(kind, pa.int64()), paths)
    yield _facts("lost", paths.filter(pc.starts_with(batch["reason"], "lost")))
    if are_linked is not None:
        yield _facts("link", paths.filter(are_linked(paths)))
    checksums = paths.filter(pc.match_substring_regex(paths, _CHECKSUM))
    yield _facts("named", pc.replace_substring_regex(checksums, _CHECKSUM, r"\1\2"))


def _has_size_of_checksum(batch: pa.RecordBatch) -> pa.Array:
    """Mask of the sizes of a Hadoop checksum file: an 8-byte header, then 4-byte CRCs."""
    whole = pc.equal(pc.bit_wise_and(batch["size"], 3), 0)
    return pc.and_(whole, pc.greater_equal(batch["size"], _HEADER))


def _removed(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Facts from tombstones: the commit that removed each data file and deletion vector."""
    tombstones = batch.filter(pc.equal(batch["action"], "remove"))
    time = tombstones["deletion_ms"]
    # A deletionTimestamp of 0 or less is a writer's default, not a time to show.
    time = pc.coalesce(tombstones["commit_ms"], pc.if_else(pc.greater(time, 0), time, None))
    for name in ("path", "dv_path"):
        there = pc.is_valid(tombstones[name])
        yield _facts(
            "removed",
            tombstones[name].filter(there),
            version=tombstones["version"].filter(there),
            operation=tombstones["operation"].filter(there),
            removed_ms=time.filter(there),
        )


def _kept_above(directories: pa.Array, kept: set[str]) -> pa.RecordBatch:
    """Facts that keep the directories and all their parents; ``kept`` holds those already given."""
    found: set[str] = set()
    for directory in directories.to_pylist():
        if directory and directory not in kept:
            found.update((directory, *parents(directory)))
    found -= kept
    kept |= found
    return _facts("kept", pa.array(sorted(found), pa.string()))


def _facts(fact: str | pa.Array, paths: pa.Array, **values: pa.Array) -> pa.RecordBatch:
    """A batch of FACT_SCHEMA: one kind of fact, or an index in FACTS per path."""
    kinds = _constant(FACTS.index(fact), len(paths)) if isinstance(fact, str) else fact
    columns = {"path": paths, "fact": kinds, **values}
    return pa.RecordBatch.from_arrays(
        [columns.get(f.name, pa.nulls(len(paths), f.type)) for f in _FACT_ARROW], schema=_FACT_ARROW
    )


def _files(files: pa.Table, by: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of planned files with their kinds; ``by`` has the newest commit that removed each."""
    kind = pc.if_else(pc.is_valid(by["path"]), "removed", "orphan")
    for name, pattern in reversed(_KIND_OF_NAME):
        kind = pc.if_else(pc.match_substring_regex(files["path"], pattern), name, kind)
    removal = {name: by[name] for name in ("version", "operation", "removed_ms")}
    yield from _planned(files, kind, **removal)


def _planned(
    rows: pa.Table, kind: str | pa.ChunkedArray, **values: pa.ChunkedArray
) -> Iterator[pa.RecordBatch]:
    """Rows of DIFF_SCHEMA of a kind; ``values`` replace columns of the same name."""
    count = rows.num_rows
    kinds = pa.repeat(pa.scalar(kind), count) if isinstance(kind, str) else kind
    columns = [
        rows["path"],
        kinds,
        pc.fill_null(rows["size"], 0),
        pc.fill_null(rows["modified_ms"], 0),
    ]
    columns += [values.get(name, rows[name]) for name in ("version", "operation", "removed_ms")]
    yield from pa.Table.from_arrays(columns, schema=_ARROW).to_batches()


def _checksums(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of planned checksums, by their own paths: the facts name the files they belong to."""
    path = pc.replace_substring_regex(rows["path"], r"(?s)^(.*/)?([^/]+)$", r"\1.\2.crc")
    yield from _planned(_with_paths(rows, path), "checksum")


def _rows_at(numbers: Numbers) -> pa.Array:
    """Row numbers for ``take``: null, so a row of nulls, for _NONE."""
    return pa.array(numbers, mask=numbers == _NONE)


def _with_paths(rows: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("path"), _FACT_ARROW.field("path"), paths)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _constant(value: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), rows)
