"""Hashes of 64 bits that stand for what an action says: what a checkpoint and commits agree on.

Writers of checkpoints encode paths anew and spell values in their own ways: equal meanings have
equal hashes.
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
from maint_assets.snapshot.resolved_paths import placed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from maint_assets.delta.schema import Type
    from maint_assets.storage.location import Location

    Spelled = tuple[tuple[str, str | None], ...]

Hashes = npt.NDArray[np.uint64]

UNKNOWN, NONE, SOME = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
"""Statistics that may be any, that are not there, and that are there but may be spelled anew."""

_FIRST_ROWS = 2
_ODD = np.uint64(0x9E3779B97F4A7C15)
_TEXT = Primitive("string")
_JSON = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Table:
    """A table to compare actions of: ``kinds`` are the types of its partition columns, if known."""

    location: Location
    kinds: Mapping[str, Type]

    @property
    def root(self) -> TableRoot:
        """Where paths of the log begin."""
        return TableRoot.of(self.location.path)


def key_hashes(table: Table, keys: pa.Array, vectors: pa.Array) -> tuple[Hashes, Hashes]:
    """Of each file its decoded path and its replay key, both with the deletion vector.

    ``keys`` are canonical (``delta.paths.canonical_key``), so that equal keys have equal paths.
    """
    paths, _, _ = placed(keys, table.root)
    found = _with_vectors(keys, vectors)
    return (found if paths.equals(keys) else _with_vectors(paths, vectors)), found


def file_hashes(
    table: Table, places: Hashes, *, sizes: pa.Array, values: Iterable[Spelled]
) -> Hashes:
    """What each live file is: its path and vector, its size, its partition values; never 0."""
    bytes_ = pc.fill_null(sizes, 0).to_numpy().astype(np.uint64)
    found = places * (bytes_ * np.uint64(2) + np.uint64(1))
    return (found + _value_hashes(values, table.kinds) * _ODD) | np.uint64(1)


def value_hash(value: object) -> int:
    """What an action that is not of a file says; never 0."""
    text = _JSON.encode(value).decode()
    return int((text_hashes(pa.array([text])) | np.uint64(1))[0])


def statistics(
    texts: Sequence[str | None], *, of_commit: bool, are_texts: bool = True
) -> tuple[Hashes, Hashes]:
    """The number of rows of each file, and its bounds.

    What a checkpoint leaves out is UNKNOWN, what a commit leaves out is NONE: no writer of
    checkpoints makes statistics up. Bounds that were parsed and printed again (not ``are_texts``)
    are SOME.
    """
    rows = np.full(len(texts), NONE if of_commit else UNKNOWN)
    bounds = rows.copy()
    known: list[str] = []
    at_known: list[int] = []
    for at, text in enumerate(texts):
        told = _decoded(text)
        if told is None:
            rows[at] = bounds[at] = UNKNOWN
            continue
        count = told.numRecords
        if type(count) is int and 0 <= count < 2**63:
            rows[at] = count + _FIRST_ROWS
        found = _known(told.minValues), _known(told.maxValues), _known(told.nullCount)
        if found != _NO_BOUNDS:
            known.append(_JSON.encode(found).decode() if are_texts else "")
            at_known.append(at)
    if at_known:
        bounds[at_known] = text_hashes(pa.array(known)) | np.uint64(1) if are_texts else SOME
    return rows, bounds


def contradict(found: Hashes, made: Hashes) -> npt.NDArray[np.bool_]:
    """Which statistics of a checkpoint are other than those of the commits."""
    is_other = (found != made) & (found != UNKNOWN) & (made != UNKNOWN)
    return is_other & ((found != SOME) & (made != SOME) | (made == NONE))


def _with_vectors(texts: pa.Array, vectors: pa.Array) -> Hashes:
    return text_hashes(pc.binary_join_element_wise(texts, vectors, "\0"))


def _value_hashes(values: Iterable[Spelled], kinds: Mapping[str, Type]) -> Hashes:
    """One hash of the partition values of each file, however they are spelled; null is absent."""
    known: dict[Spelled, int] = {}
    at = [known.setdefault(spelled, len(known)) for spelled in values]
    texts = [_values_text(spelled, kinds) for spelled in known]
    return text_hashes(pa.array(texts, pa.string()))[at] if at else np.zeros(0, np.uint64)


def _values_text(values: Spelled, kinds: Mapping[str, Type]) -> str:
    told = {name: canonical(text, kinds.get(name, _TEXT)) for name, text in values}
    return _JSON.encode({name: text for name, text in told.items() if text is not None}).decode()


class _Statistics(msgspec.Struct, frozen=True):
    """What statistics say, whatever it is."""

    numRecords: Any = None  # noqa: N815  (the log's own keys)
    minValues: Any = None  # noqa: N815
    maxValues: Any = None  # noqa: N815
    nullCount: Any = None  # noqa: N815


_STATISTICS = msgspec.json.Decoder(_Statistics)
_EMPTY = _Statistics()
_NO_BOUNDS = (None, None, None)
_PLAIN = {str, int, bool}


def _decoded(text: str | None) -> _Statistics | None:
    """Statistics; empty where there are none, None where nobody knows what others read of them."""
    if not text or text.strip() == "null":
        return _EMPTY
    try:
        return _STATISTICS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _known(value: Any) -> Any:
    """What is known of bounds: without nulls and empty structs, a number by its value."""
    if isinstance(value, dict):
        if set(map(type, value.values())) <= _PLAIN:
            return value or None
        told = {name: _known(each) for name, each in value.items()}
        return {name: each for name, each in told.items() if each is not None} or None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
