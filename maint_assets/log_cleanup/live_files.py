"""The live files of a version as numbers to compare: what a checkpoint and the commits say of each.

Hashes of 64 bits stand for texts. 32 bytes a file are held: a sum of all files would do for paths,
but not for statistics, which one side may lack, and removes name files by their keys alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.partitions import canonical
from maint_assets.delta.paths import TableRoot
from maint_assets.delta.schema import Primitive
from maint_assets.errors import CorruptLogError
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.full_actions import full_actions_of
from maint_assets.snapshot.other_actions import RESTORE
from maint_assets.snapshot.parsed_stats import PARSED, lacks_texts
from maint_assets.snapshot.places import placed
from maint_assets.snapshot.replay import key_texts
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.storage import read
from maint_assets.storage.parts import text_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Self

    from maint_assets.delta.schema import Type
    from maint_assets.storage.location import Location

    Kinds = Mapping[str, Type]

Hashes = npt.NDArray[np.uint64]

NOTHING: Hashes = np.zeros(0, np.uint64)
_TEXT = Primitive("string")
_BOUNDS = ("minValues", "maxValues", "nullCount")
_JSON = msgspec.json.Encoder(order="sorted")
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """Files by replay key: what each is, its number of rows and its bounds; 0 where unknown.

    What a file is: its decoded path, vector, size and partition values. Writers of checkpoints
    encode paths anew and spell values in their own ways. Rows are counted from 1.
    """

    keys: Hashes
    files: Hashes
    rows: Hashes
    bounds: Hashes

    @classmethod
    def joined(cls, some: Sequence[Self]) -> Self:
        """The files of several together, by key."""
        found = cls.together(some)
        return found.taken(np.argsort(found.keys, kind="stable"))

    @classmethod
    def together(cls, some: Sequence[Self]) -> Self:
        """The files of several, one after another."""
        return cls(
            np.concatenate([NOTHING, *(each.keys for each in some)]),
            np.concatenate([NOTHING, *(each.files for each in some)]),
            np.concatenate([NOTHING, *(each.rows for each in some)]),
            np.concatenate([NOTHING, *(each.bounds for each in some)]),
        )

    def taken(self, at: npt.NDArray[Any]) -> Self:
        """The files at some positions, or where a mask says so."""
        return type(self)(self.keys[at], self.files[at], self.rows[at], self.bounds[at])

    def difference(self, made: LiveFiles) -> str | None:
        """What is other than in the files that commits make; statistics where both have them."""
        if self.keys.size != made.keys.size:
            return f"{self.keys.size} live files, not {made.keys.size}"
        mine, theirs = np.argsort(self.files), np.argsort(made.files)
        if not np.array_equal(self.files[mine], made.files[theirs]):
            return "other live files, or other partition values or sizes of them"
        for what, found, expected in (
            ("numbers of rows", self.rows[mine], made.rows[theirs]),
            ("bounds", self.bounds[mine], made.bounds[theirs]),
        ):
            other = int(((found != expected) & (found != 0) & (expected != 0)).sum())
            if other:
                return f"other {what} in the statistics of {other} live files"
        return None


def live_files(
    location: Location, paths: Iterable[str], kinds: Kinds, *, version: int
) -> LiveFiles:
    """The live files in the files of a checkpoint.

    ``kinds`` are the types of partition columns, as far as they are known. Raises CorruptLogError
    for files that are there twice, or removed as well, or cannot be read, and LogGapError.
    """
    units = [LogUnit(path=path, version=version, size=0, removes=False) for path in paths]
    found = [
        add_hashes(batch, kinds, location, has_bounds=_has_texts(location, unit))
        for unit in units
        for batch in full_actions_of(location.path, [unit])
    ]
    every = LiveFiles.joined(found)
    found.clear()
    twice = int((every.keys[1:] == every.keys[:-1]).sum())
    if twice:
        what = f"checkpoint {version} holds {twice} of its {every.keys.size} live files twice"
        raise CorruptLogError(location.uri, what, RESTORE)
    removed = 0
    tombstones = [msgspec.structs.replace(unit, adds=False, removes=True) for unit in units]
    for batch in actions_of(location.path, tombstones):
        files = batch.filter(pc.equal(batch["what"], "file"))
        removed += int(are_among(text_hashes(key_texts(files)), every.keys).sum())
    if removed:
        what = f"checkpoint {version} holds {removed} of its live files as removed, too"
        raise CorruptLogError(location.uri, what, RESTORE)
    return every


def add_hashes(
    actions: pa.RecordBatch, kinds: Kinds, location: Location, *, has_bounds: bool = True
) -> LiveFiles:
    """The adds in actions of FULL_ARROW that are all adds, in their order."""
    adds = actions["add"]
    path, keys = _hashed_paths(pc.struct_field(adds, "path"), actions["dv_id"], location)
    sizes = pc.fill_null(pc.struct_field(adds, "size"), 0).to_numpy().astype(np.uint64)
    values = _value_hashes(pc.struct_field(adds, "partitionValues"), kinds)
    files = path * (sizes * np.uint64(2) + np.uint64(1)) + values * _ODD
    rows, bounds = _statistics(pc.struct_field(adds, "stats"), has_bounds=has_bounds)
    return LiveFiles(keys, files, rows, bounds)


def key_hashes(paths: pa.Array, vectors: pa.Array, location: Location) -> Hashes:
    """A hash of the replay key of each file action."""
    return _hashed_paths(paths, vectors, location)[1]


def are_among(keys: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Which keys are among known ones, which are sorted."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    at = np.minimum(np.searchsorted(known, keys), known.size - 1)
    return known[at] == keys


def _has_texts(location: Location, unit: LogUnit) -> bool:
    """Whether what a file of a checkpoint says of bounds is the text that a commit had.

    Of parsed statistics the text is made anew, in which moments are cut.
    """
    if not unit.path.endswith(".parquet"):
        return True
    with read.parquet(location, unit.path) as file:
        schema = file.schema_arrow
        if "add" not in schema.names or not pa.types.is_struct(schema.field("add").type):
            return True
        names = {field.name for field in schema.field("add").type}
        return PARSED not in names or not lacks_texts(file)


def _hashed_paths(paths: pa.Array, vectors: pa.Array, location: Location) -> tuple[Hashes, Hashes]:
    """Hashes of the decoded path and of the replay key, each with the vector."""
    path, key, _ = placed(paths, TableRoot.of(location.path))
    keys = text_hashes(pc.binary_join_element_wise(key, vectors, "\0"))
    if path.equals(key):
        return keys, keys
    return text_hashes(pc.binary_join_element_wise(path, vectors, "\0")), keys


def _value_hashes(values: pa.MapArray, kinds: Kinds) -> Hashes:
    """One hash of the partition values of each file, however they are spelled; null is absent."""
    if not len(values.items):
        return np.zeros(len(values), np.uint64)
    known: dict[tuple[tuple[str, str | None], ...], str] = {}
    texts: list[str] = []
    for row in cast("Iterable[list[tuple[str, str | None]] | None]", values.to_pylist()):
        spelled = tuple(row or ())
        if spelled not in known:
            known[spelled] = _values_text(spelled, kinds)
        texts.append(known[spelled])
    return text_hashes(pa.array(texts, pa.string()))


def _values_text(values: Iterable[tuple[str, str | None]], kinds: Kinds) -> str:
    told = {name: canonical(text, kinds.get(name, _TEXT)) for name, text in values}
    return _JSON.encode({name: text for name, text in told.items() if text is not None}).decode()


def _statistics(texts: pa.Array, *, has_bounds: bool) -> tuple[Hashes, Hashes]:
    """The number of rows of each file and a hash of its bounds; 0 where there are none."""
    rows = np.zeros(len(texts), np.uint64)
    bounds: list[str | None] = [None] * len(texts)
    for at, text in enumerate(texts.to_pylist()):
        told = _decoded(text)
        count = told.get("numRecords")
        if type(count) is int and count >= 0:
            rows[at] = count + 1
        if has_bounds and (known := _known({name: told.get(name) for name in _BOUNDS})):
            bounds[at] = _JSON.encode(known).decode()
    found = pa.array(bounds, pa.string())
    hashes = text_hashes(pc.fill_null(found, "")) | np.uint64(1)
    return rows, np.where(found.is_valid().to_numpy(zero_copy_only=False), hashes, np.uint64(0))


def _decoded(text: str | None) -> dict[str, Any]:
    """Statistics; none where the text says none, as readers have it."""
    try:
        told = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _known(value: Any) -> Any:
    """What is known of bounds: without nulls and empty structs, a number by its value."""
    if isinstance(value, dict):
        told = {name: _known(each) for name, each in value.items()}
        return {name: each for name, each in told.items() if each is not None} or None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
