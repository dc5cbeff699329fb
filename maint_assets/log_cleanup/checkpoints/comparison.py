"""Compare checkpoints with the replay of the commits, key by key; the result is counts.

The same function compares all rows in one task, or each bucket of ``place`` in a task of its own:
the counts of the buckets add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maint_assets.log_cleanup.checkpoints.compared_rows import (
    BROKEN,
    COMMITS,
    COMPARED_ARROW,
    EXPIRES,
    FILE,
    NEVER,
    OTHER,
)
from maint_assets.log_cleanup.checkpoints.hashes import contradicting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Self

    from maint_assets.log_cleanup.checkpoints.hashes import Hashes

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_Ordered = TypeVar("_Ordered", int, str)

_COUNTS = ("found", "made", "others", "rows", "bounds", "twice", "removed")


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of a checkpoint with the replay of a start and the commits after it.

    ``checkpoint`` and ``start`` are numbers of checkpoints; ``start`` None is the empty table
    before version 0. A checkpoint that is its own start is only checked for live files that it
    holds twice or also as removed.
    """

    checkpoint: int
    version: int
    start: int | None = None
    start_version: int = -1


class Difference(msgspec.Struct, frozen=True):
    """The difference between a checkpoint and the replay, in counts of live files.

    ``found`` counts those of the checkpoint, ``made`` those of the replay, ``others`` those that
    only one side has, ``rows`` and ``bounds`` those with contradicting statistics (counted only
    where ``others`` is 0). ``twice`` and ``removed`` count live files that the checkpoint holds
    twice, or also as removed. ``action`` is the first action not of a file that differs. Of the
    transaction identifiers that only the replay has, ``left_out`` is the one updated last, at
    ``updated_ms``: they may have expired, if that is ``expires_ms`` or more before the checkpoint
    was written (the shortest retention in the metadata; None: they never expire).
    """

    found: int = 0
    made: int = 0
    others: int = 0
    rows: int = 0
    bounds: int = 0
    twice: int = 0
    removed: int = 0
    action: str | None = None
    left_out: str | None = None
    updated_ms: int = NEVER
    expires_ms: int | None = None

    def plus(self, more: Difference) -> Difference:
        """The sum of the differences of two disjoint sets of keys."""
        counts = {name: getattr(self, name) + getattr(more, name) for name in _COUNTS}
        left_out = [each for each in (self, more) if each.left_out is not None]
        last = max(left_out, key=lambda each: (each.updated_ms, each.left_out), default=self)
        return Difference(
            **counts,
            action=_least(self.action, more.action),
            left_out=last.left_out,
            updated_ms=last.updated_ms,
            expires_ms=_least(self.expires_ms, more.expires_ms),
        )


class Broken(msgspec.Struct, frozen=True):
    """A log file that cannot be read: number of its checkpoint or COMMITS, and the reason."""

    of: int
    version: int
    found: str


class Differences(msgspec.Struct, frozen=True):
    """The difference of each comparison, in their order, and the log files that cannot be read."""

    of_each: list[Difference]
    broken: list[Broken]

    @classmethod
    def total(cls, some: Iterable[Self], comparisons: int) -> Self:
        """The sum over disjoint sets of keys."""
        found, broken = [Difference()] * comparisons, list[Broken]()
        for each in some:
            found = [one.plus(more) for one, more in zip(found, each.of_each, strict=True)]
            broken += each.broken
        return cls(found, broken)


def differences(rows: Iterable[pa.RecordBatch], comparisons: Sequence[Comparison]) -> Differences:
    """The difference of each comparison over batches of COMPARED_ARROW.

    All rows of a key must be among them.
    """
    table = pa.Table.from_batches(rows, COMPARED_ARROW)
    kinds = table["kind"].to_numpy()
    files, others, expires = (
        _Rows.of_table(table.filter(pa.array(kinds == kind))) for kind in (FILE, OTHER, EXPIRES)
    )
    unread = table.filter(pa.array(kinds == BROKEN)).select(["of", "ord", "name"]).to_pylist()
    names = _names(table.filter(pa.array(kinds == OTHER)))
    found = [
        _files(files, each)
        .plus(_actions(others, each, names))
        .plus(Difference(expires_ms=_expires_ms(expires, each)))
        for each in comparisons
    ]
    return Differences(found, [Broken(row["of"], row["ord"], row["name"]) for row in unread])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Actions as arrays, sorted by key and order; the sort keeps the order within a commit."""

    key: Numbers
    value: Numbers
    rows: Hashes
    bounds: Hashes
    order: Numbers
    of: Numbers

    @classmethod
    def of_table(cls, table: pa.Table) -> Self:
        columns = [
            table[name].to_numpy() for name in ("key", "value", "rows", "bounds", "ord", "of")
        ]
        key, value, rows, bounds, order, of = columns
        every = cls(key, value, rows.view(np.uint64), bounds.view(np.uint64), order, of)
        return every.taken(np.lexsort((order, key)))

    def taken(self, at: npt.NDArray[Any]) -> Self:
        """The rows at the given positions, or where a mask holds."""
        rows, bounds = self.rows[at], self.bounds[at]
        key, value, order, of = self.key[at], self.value[at], self.order[at], self.of[at]
        return type(self)(key, value, rows, bounds, order, of)

    @property
    def is_last(self) -> Mask:
        """Mask of the newest row of each key."""
        found = np.ones(self.key.size, np.bool_)
        found[:-1] = self.key[1:] != self.key[:-1]
        return found


def _files(rows: _Rows, comparison: Comparison) -> Difference:
    """The difference in live files."""
    own = rows.taken(rows.of == comparison.checkpoint)
    is_live = own.value != 0
    found, made = own.taken(is_live), _newest(rows.taken(_is_replayed(rows, comparison)))
    twice = int((~found.is_last).sum())
    removed = int(np.isin(found.key, own.key[~is_live]).sum())
    sizes = Difference(found=found.key.size, made=made.key.size, twice=twice, removed=removed)
    return msgspec.structs.replace(sizes, **_other(_by_value(found), _by_value(made)))


def _newest(rows: _Rows) -> _Rows:
    """The newest row of each key, without those that are removes."""
    return rows.taken(rows.is_last & (rows.value != 0))


def _is_replayed(rows: _Rows, comparison: Comparison) -> Mask:
    """Mask of the replayed rows: live ones of the start, and the commits after it."""
    # In units of ``ord``: the start holds all actions up to its version.
    first, last = 2 * comparison.start_version + 1, 2 * comparison.version + 1
    is_start = (
        (rows.of == comparison.start) & (rows.value != 0) if comparison.start is not None else False
    )
    return is_start | ((rows.of == COMMITS) & (rows.order > first) & (rows.order <= last))


def _by_value(files: _Rows) -> _Rows:
    return files.taken(np.lexsort((files.bounds, files.rows, files.value)))


def _other(found: _Rows, made: _Rows) -> dict[str, int]:
    """Count of the files that differ; if none does, counts of contradicting statistics."""
    if not np.array_equal(found.value, made.value):
        # Equal sets may differ in how often they hold a value.
        return {"others": max(np.setxor1d(found.value, made.value).size, 1)}
    return {
        "rows": int(contradicting(found.rows, made.rows).sum()),
        "bounds": int(contradicting(found.bounds, made.bounds).sum()),
    }


def _actions(rows: _Rows, comparison: Comparison, names: Mapping[int, str]) -> Difference:
    """The difference in the actions that are not of files."""
    found = _values(_newest(rows.taken(rows.of == comparison.checkpoint)))
    replayed = _newest(rows.taken(_is_replayed(rows, comparison)))
    made = _values(replayed)
    other = {key for key in found.keys() | made.keys() if found.get(key) != made.get(key)}
    left_out = {key for key in other - found.keys() if names[key].startswith("txn")}
    action = min((names[key] for key in other - left_out), default=None)
    if not left_out:
        return Difference(action=action)
    times = zip(replayed.key.tolist(), replayed.rows.view(np.int64).tolist(), strict=True)
    updated_ms, name = max((time, names[key]) for key, time in times if key in left_out)
    return Difference(action=action, left_out=name, updated_ms=updated_ms)


def _values(rows: _Rows) -> dict[int, int]:
    return dict(zip(rows.key.tolist(), rows.value.tolist(), strict=True))


def _names(others: pa.Table) -> dict[int, str]:
    """The names of actions by key."""
    keys, at = np.unique(others["key"].to_numpy(), return_index=True)
    return dict(zip(keys.tolist(), others["name"].take(pa.array(at)).to_pylist(), strict=True))


def _expires_ms(rows: _Rows, comparison: Comparison) -> int | None:
    """The shortest retention of transaction identifiers in any metadata of a comparison."""
    is_mine = _is_replayed(rows, comparison) | (rows.of == comparison.checkpoint)
    return min(rows.value[is_mine].tolist(), default=None)


def _least(one: _Ordered | None, other: _Ordered | None) -> _Ordered | None:
    return min((each for each in (one, other) if each is not None), default=None)
