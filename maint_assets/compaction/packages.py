"""Which bins of a plan one task rewrites: small ones together, a large one alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import types as T

from maint_assets.storage.columns import arrow_schema, batch_of, column, runs
from maint_assets.storage.parts import PartSlice, slice_batches
from maint_assets.storage.rows import packed, units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from maint_assets.storage.parts import Part

PACKAGE_BYTES = 64 * 1024 * 1024
"""A task takes further bins up to so many bytes: less than that is not worth another task."""

PACKAGE_FILES = 5_000
"""Files of a task, if they are of several bins."""

MOST_FILES = 20_000
"""One commit removes at most about so many files: its text is made on the driver."""

_SCHEMA = T.StructType([
    column("path", "string"),
    column("first", "bigint"),
    column("rows", "bigint"),
    column("bytes", "bigint"),
    column("bins", "bigint"),
])
_ARROW = arrow_schema(_SCHEMA)


class Package(msgspec.Struct, frozen=True):
    """Whole bins that lie together in a plan: where they lie, how many bytes and bins they are."""

    part: PartSlice
    bytes: int
    bins: int


def packages(
    spark: SparkSession, parts: Iterable[Part], *, max_bytes: int, parallelism: int
) -> list[Package]:
    """The packages of a plan in its order; of several bins none has more than ``max_bytes``."""
    most = min(PACKAGE_BYTES, max_bytes)

    def cut(some: list[PartSlice]) -> Iterator[pa.RecordBatch]:
        for part in some:
            yield batch_of(_packages_of(part, most), _ARROW)

    whole = [PartSlice(part.path, "", 0, part.rows) for part in parts]
    if not whole:
        return []
    tasks = packed(whole, parallelism, weight=lambda part: part.rows)
    found = units(spark, tasks, cut, kind=PartSlice).as_frame(_SCHEMA).collect()
    made = [
        Package(PartSlice(row["path"], "", row["first"], row["rows"]), row["bytes"], row["bins"])
        for row in found
    ]
    order = {part.path: at for at, part in enumerate(whole)}
    return sorted(made, key=lambda package: (order[package.part.path], package.part.first))


def commit_batches(found: Iterable[Package], *, max_bytes: int) -> Iterator[list[Package]]:
    """The packages of each commit, in their order: up to so many bytes and MOST_FILES files."""
    batch: list[Package] = []
    for package in found:
        size = sum(each.bytes for each in batch) + package.bytes
        files = sum(each.part.rows for each in batch) + package.part.rows
        if batch and (size > max_bytes or files > MOST_FILES):
            yield batch
            batch = []
        batch.append(package)
    if batch:
        yield batch


def _packages_of(part: PartSlice, most: int) -> Iterator[tuple[str, int, int, int, int]]:
    """The packages of a part; its files of one bin lie together."""
    first, at, load, bins = 0, 0, 0, 0
    last = None
    for batch in slice_batches(part, ["bin", "size"]):
        names, sizes = batch["bin"], batch["size"].to_numpy()
        for start, end in runs(names):
            size, name = int(sizes[start:end].sum()), names[start].as_py()
            full = load + size > most or at + end - start - first > PACKAGE_FILES
            if name != last and load and full:
                yield part.path, first, at - first, load, bins
                first, load, bins = at, 0, 0
            load, bins, at = load + size, bins + (name != last), at + end - start
            last = name
    if at > first:
        yield part.path, first, at - first, load, bins
