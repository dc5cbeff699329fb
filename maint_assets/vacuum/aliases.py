"""Planned files that the log also names by a path outside of the table root, or behind a link.

The log of a table that was moved, or that is mounted twice, may name its files by absolute paths of
the other location. Deleting such a planned file would delete a live one. Two paths are taken for
the same file when device and inode are equal; where the log's path does not exist on this machine,
when the file names are equal.
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
from maint_assets.snapshot.resolved_paths import are_inside
from maint_assets.storage import read
from maint_assets.storage.location import Location
from maint_assets.vacuum.valid_files import protects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.datasets.parts import Part, PartSlice
    from maint_assets.vacuum.valid_files import Retained

_MARKS_SCHEMA = T.StructType([
    column("path", "string", "mark: device and inode, or the file name"),
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
    table: str,
    retained: Retained,
    parallelism: int,
    scratch: str,
) -> Aliases:
    """Compare the planned files with the retained files outside of the root or behind links.

    ``plan`` and ``snapshot`` are the datasets of those stages.
    """
    parts = [*slices(plan, "diff"), *slices(snapshot, "snapshot")]
    mark = partial(_marks, location=Location(table, table), retained=retained)
    rows = path_rows(spark, parts, mark, parallelism=parallelism, scratch=scratch)
    total = NO_ALIASES
    for found in rows.then(_matched).values(Aliases):
        total = total.plus(found)
    return total


def identity_mark(path: str) -> str:
    """Mark of a file: device and inode if it exists, else its name.

    ``path`` is absolute or a URI, as in the snapshot.
    """
    local = _FILE.sub("/", path)
    return read.file_id(local) or _name(path)


def planned_marks(location: Location, path: str) -> tuple[str, ...]:
    """The marks that a path outside of the root has if it is the same file as ``path`` inside."""
    known = read.file_id(f"{location.path}/{path}")
    return (_name(path),) if known is None else (_name(path), known)


def _name(path: str) -> str:
    return f"name {path.rpartition('/')[2]}"


def _marks(
    some: Iterable[PartSlice], *, location: Location, retained: Retained
) -> Iterator[pa.RecordBatch]:
    is_twice = read.has_mounts(location)
    for part in some:
        for batch in slice_batches(part, _READ[part.source]):
            found = (
                _planned(batch, location)
                if part.source == "diff"
                else _retained(batch.filter(protects(batch, retained)), location, is_twice=is_twice)
            )
            yield batch_of(found, _MARKS_ARROW)


def _planned(batch: pa.RecordBatch, location: Location) -> Iterator[Mark]:
    paths = batch["path"].filter(pc.not_equal(batch["kind"], "directory"))
    for path in paths.to_pylist():
        yield from ((mark, path, True, False) for mark in planned_marks(location, path))


def _retained(kept: pa.RecordBatch, location: Location, *, is_twice: bool) -> Iterator[Mark]:
    """Marks of the retained files outside of the root and of links inside.

    With a mount below the root, of all retained files: a bind mount gives a file a second path.
    """
    for path in kept["path"].filter(kept["inside"]).to_pylist():
        if is_twice or read.is_link(location, path):
            yield identity_mark(f"{location.path}/{path}"), path, False, False
    outside = kept.filter(pc.invert(kept["inside"]))
    vectors = kept.filter(
        pc.and_(pc.is_valid(kept["dv_path"]), pc.invert(are_inside(kept["dv_path"])))
    )
    for rows, name in ((outside, "path"), (outside, "log_path"), (vectors, "dv_path")):
        for action, path in zip(rows["action"].to_pylist(), rows[name].to_pylist(), strict=True):
            mark = identity_mark(path)
            is_lost = action == "add" and mark == _name(path) and path.startswith(_LOCAL)
            missing = is_lost and name != "log_path"
            yield mark, path, False, missing


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
