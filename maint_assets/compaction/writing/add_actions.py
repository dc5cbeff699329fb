"""Paths, partition values and add actions of new files."""

from __future__ import annotations

import errno
import uuid
from typing import TYPE_CHECKING, NamedTuple

from maint_assets.compaction.ordering.order import Z_CUBE_TAG
from maint_assets.delta.actions import Add
from maint_assets.delta.partitions import canonical_values, directory, log_path
from maint_assets.storage import read

if TYPE_CHECKING:
    from maint_assets.compaction.writing.target import Rewriting

REWRITES_TAG, MOST_REWRITES = "MAINT_ASSETS_REWRITES", 2
"""Tag of files that we compacted: how many compactions their rows went through, and its maximum.

A rewrite may shrink files so much that its output is small again. Planning by the bytes of
inputs would merge such files in run after run, each time a few of them.
"""

LONGEST_NAME = 255
"""The longest name of a file or directory, in bytes."""


def bin_values(inputs: list[Add], how: Rewriting) -> dict[str, str | None]:
    """The partition values of a bin: as spelled in its files if all agree, else canonical.

    Some writers leave out the key of a null value.
    """
    names = [field.physical_name for field in how.schema.partitions]
    spelled = [{name: add.partition_values.get(name) for name in names} for add in inputs]
    if all(values == spelled[0] for values in spelled):
        return spelled[0]
    return canonical_values(spelled[0], how.schema.partitions)


class Marks(NamedTuple):
    """The tags of an add that tell the order of its rows."""

    tags: dict[str, str | None] | None = None
    provider: str | None = None


def kept_marks(inputs: list[Add]) -> Marks:
    """The tags of a new file that keeps the order of its only input.

    The number of compactions is tagged as well.
    """
    first = inputs[0].tags or {}
    rewrites: dict[str, str | None] = {REWRITES_TAG: str(_rewrites(inputs))}
    if len(inputs) > 1 or not (inputs[0].clustering_provider or Z_CUBE_TAG in first):
        return Marks(rewrites)
    return Marks({**first, **rewrites}, inputs[0].clustering_provider)


def _rewrites(inputs: list[Add]) -> int:
    """One more than that of the most often compacted input, at most MOST_REWRITES."""
    counted = ((add.tags or {}).get(REWRITES_TAG) for add in inputs)
    return 1 if all(each is None for each in counted) else MOST_REWRITES


def output_add(
    path: str, how: Rewriting, *, values: dict[str, str | None], marks: Marks, stats: str
) -> Add:
    """The add action of a new file. Raises FileNotFoundError if it is not there."""
    found = read.size_and_mtime(how.location, path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "the new file is gone", path)
    size, modified_ms = found
    return Add(
        path=log_path(path),
        size=size,
        partition_values=values,
        modification_time=modified_ms,
        stats=stats,
        tags=marks.tags,
        clustering_provider=marks.provider,
    )


def new_path(values: dict[str, str | None], how: Rewriting) -> str:
    """A new unique path: in the directory of the partition values, or in a random one."""
    name = uuid.uuid4()
    where = directory(values, how.schema.partitions) if how.hive_directories else None
    if where is None or not _is_possible(where):
        where = f"{name.hex[: how.properties.random_prefix_length]}/"
    return f"{where}part-00000-{name}-c000.{how.codec}.parquet"


def _is_possible(directory: str) -> bool:
    """Whether file systems accept each name of a path."""
    return "\0" not in directory and all(
        len(name.encode()) <= LONGEST_NAME for name in directory.split("/")
    )
