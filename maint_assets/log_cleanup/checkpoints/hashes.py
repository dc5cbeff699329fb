"""64-bit hashes of the content of actions, to compare a checkpoint with the commits.

Writers of checkpoints encode paths again and print values in their own ways, so paths and values
are normalised before hashing: equal content has equal hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.parts import text_hashes
from maint_assets.delta.partitions import canonical
from maint_assets.delta.paths import TableRoot
from maint_assets.delta.schema import Primitive
from maint_assets.snapshot.resolved_paths import resolved_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from maint_assets.delta.schema import Type
    from maint_assets.storage.location import Location

    Spelled = tuple[tuple[str, str | None], ...]

Hashes = npt.NDArray[np.uint64]

UNKNOWN, NONE, SOME = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
"""Statistics that cannot be compared, that are absent, and that are present but were printed again
(only their presence can be compared)."""

NUMBERS = (
    ("size",),
    ("modificationTime",),
    ("deletionVector", "sizeInBytes"),
    ("deletionVector", "cardinality"),
    ("baseRowId",),
    ("defaultRowCommitVersion",),
)
"""The compared numbers of an add, by field."""

_ROW_IDS = 2
"""How many of them, the last, are of row tracking."""

_FIRST_ROWS = 2
_UNREADABLE = np.uint64(1 << 63)
_ODD, _ODD_NUMBERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_TEXT = Primitive("string")
_JSON = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Table:
    """The compared table.

    ``kinds`` has the types of its partition columns, if known; ``row_ids`` is whether its features
    include row tracking, so that the row ids of files must not be lost.
    """

    location: Location
    kinds: Mapping[str, Type]
    row_ids: bool = False

    @property
    def root(self) -> TableRoot:
        """The root that relative paths of the log refer to."""
        return TableRoot.of(self.location.uri)


def key_hashes(table: Table, keys: pa.Array, vectors: pa.Array) -> tuple[Hashes, Hashes]:
    """Hashes of each file's decoded path and of its replay key, both with the deletion vector.

    ``keys`` are canonical (``delta.paths.canonical_key``), so that equal keys have equal paths. For
    the replay key see PROTOCOL.md, "Action Reconciliation".
    """
    paths, _, _ = resolved_columns(keys, table.root)
    found = _with_vectors(keys, vectors)
    return (found if paths.equals(keys) else _with_vectors(paths, vectors)), found


def file_hashes(
    table: Table, keys: Hashes, *, numbers: Sequence[pa.Array], values: Iterable[Spelled]
) -> Hashes:
    """Hashes of replay key, NUMBERS and partition values of each live file; never 0.

    The row ids among NUMBERS count with row tracking only.
    """
    compared = numbers if table.row_ids else numbers[:-_ROW_IDS]
    texts = [pc.fill_null(pc.cast(each, pa.string()), "") for each in compared]
    found = keys + text_hashes(pc.binary_join_element_wise(*texts, "\0")) * _ODD_NUMBERS
    return (found + _value_hashes(values, table.kinds) * _ODD) | np.uint64(1)


def value_hash(value: object) -> int:
    """Hash of the content of an action that is not of a file; never 0."""
    text = _JSON.encode(value).decode()
    return int((text_hashes(pa.array([text])) | np.uint64(1))[0])


def statistics(
    texts: Sequence[str | None], *, of_commit: bool, are_texts: bool = True
) -> tuple[Hashes, Hashes]:
    """The number of rows of each file, plus 2, and a hash of its bounds and whether they are tight.

    Absent statistics are UNKNOWN for a checkpoint, which may leave them out, and NONE for a commit:
    no writer of checkpoints adds statistics. Of a text that is not valid JSON, on which readers
    differ, both are a hash with the bit _UNREADABLE; so are rows that are not a number. Bounds that
    were parsed and printed again (not ``are_texts``) are SOME.
    """
    rows = np.full(len(texts), NONE if of_commit else UNKNOWN)
    bounds = rows.copy()
    known: list[str] = []
    at_known: list[int] = []
    for at, text in enumerate(texts):
        stats = _decoded(text)
        if stats is None:
            rows[at] = bounds[at] = value_hash(text) | _UNREADABLE
            continue
        count = stats.numRecords
        if type(count) is int and 0 <= count < 2**63:
            rows[at] = count + _FIRST_ROWS
        elif count is not None:
            rows[at] = value_hash(count) | _UNREADABLE
        found = (
            _normal(stats.minValues),
            _normal(stats.maxValues),
            _normal(stats.nullCount),
            stats.tightBounds is False or None,
        )
        if found != _NO_BOUNDS:
            known.append(_JSON.encode(found).decode() if are_texts else "")
            at_known.append(at)
    if at_known:
        hashes = (text_hashes(pa.array(known)) | np.uint64(1)) & ~_UNREADABLE
        bounds[at_known] = hashes if are_texts else SOME
    return rows, bounds


def contradicting(found: Hashes, made: Hashes) -> npt.NDArray[np.bool_]:
    """Mask of the statistics of a checkpoint (``found``) that contradict the commits (``made``).

    A writer of checkpoints may have read more into a text than we.
    """
    is_other = (found != made) & (found != UNKNOWN) & (made != UNKNOWN)
    is_other &= (found & _UNREADABLE != 0) | (made & _UNREADABLE == 0)
    return is_other & ((found != SOME) & (made != SOME) | (made == NONE))


def _with_vectors(texts: pa.Array, vectors: pa.Array) -> Hashes:
    return text_hashes(pc.binary_join_element_wise(texts, vectors, "\0"))


def _value_hashes(values: Iterable[Spelled], kinds: Mapping[str, Type]) -> Hashes:
    """A hash of each file's partition values in canonical form; a null equals an absent value."""
    known: dict[Spelled, int] = {}
    at = [known.setdefault(spelled, len(known)) for spelled in values]
    texts = [_values_text(spelled, kinds) for spelled in known]
    return text_hashes(pa.array(texts, pa.string()))[at] if at else np.zeros(0, np.uint64)


def _values_text(values: Spelled, kinds: Mapping[str, Type]) -> str:
    found = {name: canonical(text, kinds.get(name, _TEXT)) for name, text in values}
    return _JSON.encode({name: text for name, text in found.items() if text is not None}).decode()


class _Statistics(msgspec.Struct, frozen=True):
    """The compared fields of statistics, of any type: a writer may have written nonsense."""

    numRecords: Any = None  # noqa: N815  (the log's own keys)
    minValues: Any = None  # noqa: N815
    maxValues: Any = None  # noqa: N815
    nullCount: Any = None  # noqa: N815
    tightBounds: Any = None  # noqa: N815


_STATISTICS = msgspec.json.Decoder(_Statistics)
_EMPTY = _Statistics()
_NO_BOUNDS = (None, None, None, None)
_PLAIN = {str, int, bool}


def _decoded(text: str | None) -> _Statistics | None:
    """The statistics; empty if absent, None if not valid JSON: readers differ on such a text."""
    if not text or text.strip() == "null":
        return _EMPTY
    try:
        return _STATISTICS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _normal(value: Any) -> Any:
    """Bounds in normal form: without nulls and empty structs, and with 1.0 as 1."""
    if isinstance(value, dict):
        if set(map(type, value.values())) <= _PLAIN:
            return value or None
        found = {name: _normal(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each is not None} or None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
