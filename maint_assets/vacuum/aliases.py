"""Files that the log names outside of the table's root, and that lie below it nevertheless.

The log of a table that was moved or that is mounted twice may name its files by absolute paths of
another place. A planned file that is one of those is told by its device and inode; where the path
of the log leads to nothing that we can look at, by its name.
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
from maint_assets.datasets.rows import slices, told
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
    column("path", "string", "what two names of one file have in common"),
    column("name", "string", "the file as the plan or the log names it"),
    column("planned", "boolean"),
    column("missing", "boolean", "a live file that is not there"),
])
_MARKS_ARROW = arrow_schema(_MARKS_SCHEMA)
_READ = {
    "diff": ["path", "kind"],
    "snapshot": ["action", "path", "log_path", "inside", "dv_path", "deletion_ms", "commit_ms"],
}

_LOCAL = ("/", "file://")
_FILE = re.compile("file:/+")

Mark = tuple[str, str, bool, bool]


class Aliases(msgspec.Struct, frozen=True):
    """Planned files that are files outside by the log, and live files outside that are missing."""

    same: int
    same_example: str | None
    missing: int
    missing_example: str | None

    def plus(self, other: Aliases) -> Aliases:
        """These and those of another share of the files."""
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
    """What planned files have in common with retained files elsewhere, or behind links."""
    parts = [*slices(plan, "diff"), *slices(snapshot, "snapshot")]
    mark = partial(_marks, location=Location(table, table), retained=retained)
    rows = path_rows(spark, parts, mark, parallelism=parallelism, scratch=scratch)
    total = NO_ALIASES
    for found in rows.then(_met).values(Aliases):
        total = total.plus(found)
    return total


def outside_mark(path: str) -> str:
    """What tells a file outside of the table from others: itself where it is there, else its name.

    ``path`` is absolute or a URI, as the snapshot gives it.
    """
    local = _FILE.sub("/", path)
    return read.file_id(local) or _name(path)


def planned_marks(location: Location, path: str) -> tuple[str, ...]:
    """The marks that a file outside may have and be this file below the root."""
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
    """The marks of retained files outside, and of links inside; of all where mounts are."""
    for path in kept["path"].filter(kept["inside"]).to_pylist():
        if is_twice or read.is_link(location, path):
            yield outside_mark(f"{location.path}/{path}"), path, False, False
    outside = kept.filter(pc.invert(kept["inside"]))
    vectors = kept.filter(
        pc.and_(pc.is_valid(kept["dv_path"]), pc.invert(are_inside(kept["dv_path"])))
    )
    for rows, name in ((outside, "path"), (outside, "log_path"), (vectors, "dv_path")):
        for action, path in zip(rows["action"].to_pylist(), rows[name].to_pylist(), strict=True):
            mark = outside_mark(path)
            is_lost = action == "add" and mark == _name(path) and path.startswith(_LOCAL)
            missing = is_lost and name != "log_path"
            yield mark, path, False, missing


def _met(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    marks = pa.Table.from_batches(rows, _MARKS_ARROW)
    planned = marks.filter(marks["planned"])
    others = marks.filter(pc.invert(marks["planned"]))
    same = planned.filter(pc.is_in(planned["path"], others["path"].combine_chunks()))
    names = pc.unique(same["name"])
    missing = others.filter(others["missing"])
    yield told(
        Aliases(
            len(names), pc.min(names).as_py(), missing.num_rows, pc.min(missing["name"]).as_py()
        )
    )
