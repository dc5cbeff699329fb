"""What checkpoints hold against what commits make: a replay by key, told in counts.

The one rule of the comparison: over all rows in one task, or over each bucket of ``place`` on its
own, as counts of buckets add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maint_assets.log_cleanup.compared_rows import (
    BROKEN,
    COMMITS,
    COMPARED_ARROW,
    EXPIRES,
    FILE,
    OTHER,
)
from maint_assets.log_cleanup.hashes import contradict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Self

    from maint_assets.log_cleanup.hashes import Hashes

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_COUNTS = ("found", "made", "others", "rows", "bounds", "twice", "removed")


class Comparison(msgspec.Struct, frozen=True):
    """A checkpoint, by number, with what the one of ``start`` and the commits after that make.

    ``start`` None is the beginning, before version 0. One that starts from itself is only looked at
    for what it holds twice, or as removed too.
    """

    checkpoint: int
    version: int
    start: int | None = None
    start_version: int = -1


class Difference(msgspec.Struct, frozen=True):
    """What is other in a checkpoint, in numbers of live files.

    ``found`` and ``made`` count all, ``others`` those that only one side has, ``rows`` and
    ``bounds`` those with other statistics where all are the same. ``action`` is the first other
    action that differs, ``left_out`` the first application that only one side has: it may have
    expired, where a version ``expires`` them.
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
    expires: bool = False

    def plus(self, more: Difference) -> Difference:
        """The differences of two sets of keys together."""
        counts = {name: getattr(self, name) + getattr(more, name) for name in _COUNTS}
        return Difference(
            **counts,
            action=_first(self.action, more.action),
            left_out=_first(self.left_out, more.left_out),
            expires=self.expires or more.expires,
        )


class Broken(msgspec.Struct, frozen=True):
    """A log file that cannot be read: of which checkpoint or of COMMITS, and why."""

    of: int
    version: int
    found: str


class Differences(msgspec.Struct, frozen=True):
    """The difference of each comparison, in their order, and what could not be read."""

    of_each: list[Difference]
    broken: list[Broken]

    @classmethod
    def total(cls, some: Iterable[Self], comparisons: int) -> Self:
        """Those of several sets of keys together."""
        found, broken = [Difference()] * comparisons, list[Broken]()
        for each in some:
            found = [one.plus(more) for one, more in zip(found, each.of_each, strict=True)]
            broken += each.broken
        return cls(found, broken)


def differences(rows: Iterable[pa.RecordBatch], comparisons: Sequence[Comparison]) -> Differences:
    """The differences among rows of COMPARED_ARROW that hold whole keys."""
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
        .plus(Difference(expires=_lets_expire(expires, each)))
        for each in comparisons
    ]
    return Differences(found, [Broken(row["of"], row["ord"], row["name"]) for row in unread])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Actions by key and order, in arrays; those of one commit and key in its order."""

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
        """The rows at some positions, or where a mask says so."""
        rows, bounds = self.rows[at], self.bounds[at]
        key, value, order, of = self.key[at], self.value[at], self.order[at], self.of[at]
        return type(self)(key, value, rows, bounds, order, of)

    @property
    def is_last(self) -> Mask:
        """Whether a row is the newest of its key."""
        found = np.ones(self.key.size, np.bool_)
        found[:-1] = self.key[1:] != self.key[:-1]
        return found


def _files(rows: _Rows, asked: Comparison) -> Difference:
    """The difference in live files."""
    held = rows.taken(rows.of == asked.checkpoint)
    is_live = held.value != 0
    found, made = held.taken(is_live), _newest(rows.taken(_counts_for(rows, asked)))
    twice = int((~found.is_last).sum())
    removed = int(np.isin(found.key, held.key[~is_live]).sum())
    sizes = Difference(found=found.key.size, made=made.key.size, twice=twice, removed=removed)
    return msgspec.structs.replace(sizes, **_other(_by_value(found), _by_value(made)))


def _newest(rows: _Rows) -> _Rows:
    """The newest row of each key, unless it removes it."""
    return rows.taken(rows.is_last & (rows.value != 0))


def _counts_for(rows: _Rows, asked: Comparison) -> Mask:
    """The rows that make the version: what the start holds, and the commits after it."""
    first, last = 2 * asked.start_version + 1, 2 * asked.version + 1
    is_start = (rows.of == asked.start) & (rows.value != 0) if asked.start is not None else False
    return is_start | ((rows.of == COMMITS) & (rows.order > first) & (rows.order <= last))


def _by_value(files: _Rows) -> _Rows:
    return files.taken(np.lexsort((files.bounds, files.rows, files.value)))


def _other(found: _Rows, made: _Rows) -> dict[str, int]:
    """How many files are others; where none is, how many have other statistics."""
    if not np.array_equal(found.value, made.value):
        return {"others": max(np.setxor1d(found.value, made.value).size, 1)}
    return {
        "rows": int(contradict(found.rows, made.rows).sum()),
        "bounds": int(contradict(found.bounds, made.bounds).sum()),
    }


def _actions(rows: _Rows, asked: Comparison, names: Mapping[int, str]) -> Difference:
    """The difference in all other actions."""
    found = _said(_newest(rows.taken(rows.of == asked.checkpoint)))
    made = _said(_newest(rows.taken(_counts_for(rows, asked))))
    other = [key for key in found.keys() | made.keys() if found.get(key) != made.get(key)]
    one_sided = {key for key in other if not (key in found and key in made)}
    left_out = [names[key] for key in one_sided if names[key].startswith("txn")]
    return Difference(
        action=min((names[key] for key in other if names[key] not in left_out), default=None),
        left_out=min(left_out, default=None),
    )


def _said(rows: _Rows) -> dict[int, int]:
    return dict(zip(rows.key.tolist(), rows.value.tolist(), strict=True))


def _names(others: pa.Table) -> dict[int, str]:
    """The name of each key."""
    keys, at = np.unique(others["key"].to_numpy(), return_index=True)
    return dict(zip(keys.tolist(), others["name"].take(pa.array(at)).to_pylist(), strict=True))


def _lets_expire(rows: _Rows, asked: Comparison) -> bool:
    """Whether some version of a comparison lets applications expire."""
    return bool(np.any(_counts_for(rows, asked) | (rows.of == asked.checkpoint)))


def _first(one: str | None, other: str | None) -> str | None:
    both = [name for name in (one, other) if name is not None]
    return min(both) if both else None
