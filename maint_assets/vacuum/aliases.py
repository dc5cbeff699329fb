"""Planned files that the log also names by a path outside of the table root, or behind a link.

The log of a table that was moved, or that is mounted twice, may name its files by absolute paths of
the other location. Deleting such a planned file would delete a live one. Two paths are taken for
the same file when device and inode are equal; on two devices (an overlay shows the files of another
under its own) when name, size and modification time are; where the log's path does not exist on
this machine, when the file names are equal.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, batch_of, column
from maint_assets.datasets.exchange import path_rows
from maint_assets.datasets.parts import slice_batches
from maint_assets.datasets.rows import encode_result, slices
from maint_assets.delta.paths import TableRoot
from maint_assets.snapshot.resolved_paths import are_inside, directories_of, is_behind_links
from maint_assets.storage import read
from maint_assets.storage.location import Location
from maint_assets.vacuum.valid_files import protects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.datasets.parts import Part, PartSlice
    from maint_assets.vacuum.valid_files import Retained

_MARKS_SCHEMA = T.StructType([
    column("path", "string", "mark: see identity_marks"),
    column("name", "string", "path of the file in the plan or in the log"),
    column("planned", "boolean"),
    column("missing", "boolean", "a live file that does not exist"),
])
_MARKS_ARROW = arrow_schema(_MARKS_SCHEMA)
_READ = {
    "diff": ["path", "kind"],
    "snapshot": ["action", "path", "log_path", "inside", "dv_path", "deletion_ms", "commit_ms"],
}

_LOCAL = ("/", "file://")
_FILE = re.compile("file:/+")

Mark = tuple[str, str, bool, bool]
"""A row of marks: mark, path, planned, missing."""


class Aliases(msgspec.Struct, frozen=True):
    """Counts and examples of aliased files.

    ``same`` counts the planned files that the log also names elsewhere, ``missing`` the live files
    outside of the root that do not exist.
    """

    same: int
    same_example: str | None
    missing: int
    missing_example: str | None

    def plus(self, other: Aliases) -> Aliases:
        """The sum of two counts over different files; the first example of each is kept."""
        return Aliases(
            self.same + other.same,
            self.same_example or other.same_example,
            self.missing + other.missing,
            self.missing_example or other.missing_example,
        )


NO_ALIASES = Aliases(0, None, 0, None)


def aliases(  # noqa: PLR0913
    spark: SparkSession,
    plan: list[Part],
    snapshot: list[Part],
    *,
    location: Location,
    retained: Retained,
    everywhere: bool,
    parallelism: int,
    scratch: str,
) -> Aliases:
    """Compare the planned files with the retained files outside of the root or behind links.

    ``plan`` and ``snapshot`` are the datasets of those stages. With ``everywhere``, or with a mount
    below the root, all retained files are compared: a bind mount, or a file system that does not
    distinguish names by case, gives a file a second path.
    """
    parts = [*slices(plan, "diff"), *slices(snapshot, "snapshot")]
    # On a store a file has one key: only names can show that a table was moved.
    everywhere = location.is_local and (everywhere or read.has_mounts(location))
    mark = partial(_marks, location=location, retained=retained, everywhere=everywhere)
    rows = path_rows(spark, parts, mark, parallelism=parallelism, scratch=scratch)
    total = NO_ALIASES
    for found in rows.then(_matched).values(Aliases):
        total = total.plus(found)
    return total


def identity_marks(location: Location, path: str) -> tuple[str, ...]:
    """Marks of a retained file: its identities if it exists, else its name.

    ``path`` is absolute or a URI, as in the snapshot. On the device of the table, device and inode
    show whether two files are one.
    """
    found = read.file_id(_FILE.sub("/", path)) if location.is_local else None
    if found is None:
        return (_name(path),)
    is_near = found.device == read.device(location)
    return _identities(path, found)[: 1 if is_near else 2]


def planned_marks(location: Location, path: str) -> tuple[str, ...]:
    """The marks that another path has if it is the same file as ``path`` below the root."""
    found = read.file_id(f"{location.path}/{path}") if location.is_local else None
    return (_name(path), *(() if found is None else _identities(path, found)))


def are_linked(paths: pa.Array, *, location: Location) -> pa.Array:
    """Mask of the paths below the root that are symbolic links, or behind one."""
    root = TableRoot.of(location.uri)
    pairs = zip(paths.to_pylist(), directories_of(paths).to_pylist(), strict=True)
    found = [
        read.is_link(location, path) or is_behind_links(directory, root)
        for path, directory in pairs
    ]
    return pa.array(found, pa.bool_())


def _identities(path: str, found: read.FileId) -> tuple[str, str]:
    """The identity of a file on its device, and one that also holds where an overlay shows it."""
    shown = f"{_name(path)}, {found.size} bytes, {found.modified_ns} ns"
    return f"inode {found.device}:{found.inode}", shown


def _name(path: str) -> str:
    return f"name {path.rpartition('/')[2]}"


def _marks(
    some: Iterable[PartSlice], *, location: Location, retained: Retained, everywhere: bool
) -> Iterator[pa.RecordBatch]:
    for part in some:
        for batch in slice_batches(part, _READ[part.source]):
            if part.source == "diff":
                found = _planned(batch, location)
            else:
                kept = batch.filter(protects(batch, retained))
                found = _retained(kept, location, everywhere=everywhere)
            yield batch_of(found, _MARKS_ARROW)


def _planned(batch: pa.RecordBatch, location: Location) -> Iterator[Mark]:
    paths = batch["path"].filter(pc.not_equal(batch["kind"], "directory"))
    for path in paths.to_pylist():
        yield from ((mark, path, True, False) for mark in planned_marks(location, path))


def _retained(kept: pa.RecordBatch, location: Location, *, everywhere: bool) -> Iterator[Mark]:
    """Marks of the retained files outside of the root and of links inside, or of all."""
    vectors = kept.filter(pc.is_valid(kept["dv_path"]))
    far = pc.invert(are_inside(vectors["dv_path"]))
    for paths in (kept["path"].filter(kept["inside"]), vectors["dv_path"].filter(pc.invert(far))):
        there = paths if everywhere else paths.filter(are_linked(paths, location=location))
        for path in there.to_pylist():
            for mark in identity_marks(location, f"{location.path}/{path}"):
                yield mark, path, False, False
    outside, vectors = kept.filter(pc.invert(kept["inside"])), vectors.filter(far)
    for rows, name in ((outside, "path"), (outside, "log_path"), (vectors, "dv_path")):
        for action, path in zip(rows["action"].to_pylist(), rows[name].to_pylist(), strict=True):
            marks = identity_marks(location, path)
            is_lost = action == "add" and marks == (_name(path),) and path.startswith(_LOCAL)
            missing = is_lost and name != "log_path"
            # A lost file counts once, by its only mark.
            yield from ((mark, path, False, missing) for mark in marks)


def _matched(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row: the Aliases of all marks of a bucket."""
    marks = pa.Table.from_batches(rows, _MARKS_ARROW)
    planned = marks.filter(marks["planned"])
    others = marks.filter(pc.invert(marks["planned"]))
    same = planned.filter(pc.is_in(planned["path"], others["path"].combine_chunks()))
    names = pc.unique(same["name"])
    missing = others.filter(others["missing"])
    yield encode_result(
        Aliases(
            len(names), pc.min(names).as_py(), missing.num_rows, pc.min(missing["name"]).as_py()
        )
    )
