"""What a version holds: live files as a sum in any order, all other actions one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.actions import DomainMetadata, Metadata, Protocol, Txn
from maint_assets.errors import CorruptLogError
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.other_actions import RESTORE
from maint_assets.snapshot.replay import key_texts
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.storage.parts import text_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from maint_assets.storage.location import Location

    Others = Mapping[tuple[str, str], object]

Hashes = npt.NDArray[np.uint64]

NOTHING: Hashes = np.zeros(0, np.uint64)

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """Live files in any order: how many, and the sum of a hash of path, vector and size of each."""

    count: int = 0
    total: int = 0

    @classmethod
    def of(cls, hashes: Hashes) -> Self:
        """The files of these hashes."""
        return cls(len(hashes), int(hashes.sum(dtype=np.uint64)))

    def __add__(self, other: LiveFiles) -> LiveFiles:
        return LiveFiles(self.count + other.count, (self.total + other.total) & _MASK)


@dataclass(frozen=True, slots=True)
class Content:
    """The live files of a version, and its other actions by kind and name."""

    files: LiveFiles
    others: Others


def live_files(
    location: Location, paths: Iterable[str], *, version: int, apart_from: Hashes = NOTHING
) -> LiveFiles:
    """The live files in the files of a checkpoint, without those of some keys, which are sorted.

    Eight bytes a file are held. Raises CorruptLogError for files that are there twice, or cannot
    be read, and LogGapError.
    """
    read = [LogUnit(path=path, version=version, size=0, removes=False) for path in paths]
    found, every = LiveFiles(), [NOTHING]
    for batch in actions_of(location.path, read):
        keys, hashes = file_hashes(batch)
        every.append(keys)
        found += LiveFiles.of(hashes[~_are_among(keys, apart_from)])
    keys = np.concatenate(every)
    every.clear()
    keys.sort()
    twice = int((keys[1:] == keys[:-1]).sum())
    if twice:
        what = f"checkpoint {version} holds {twice} of its {keys.size} live files twice"
        raise CorruptLogError(location.uri, what, RESTORE)
    return found


def file_hashes(actions: pa.RecordBatch) -> tuple[Hashes, Hashes]:
    """Of each file action of ACTION_ARROW: a hash of its replay key, and one of what it says.

    The second one is of the decoded path: writers of checkpoints encode paths anew.
    """
    keys = text_hashes(key_texts(actions))
    at = actions.schema.get_field_index("log_key")
    files = keys
    if not actions["path"].equals(actions["log_key"]):
        files = text_hashes(key_texts(actions.set_column(at, "log_key", actions["path"])))
    sizes = pc.fill_null(actions["size"], 0).to_numpy().astype(np.uint64)
    return keys, files * (sizes * np.uint64(2) + np.uint64(1))


def other_action(value: Any) -> tuple[tuple[str, str], object]:
    """Kind and name of an action that is not of a file, and what it says; None if it removes it.

    Texts that writers spell in several ways are equal here.
    """
    match value:
        case Protocol():
            features = value.reader_features or [], value.writer_features or []
            versions = value.min_reader_version, value.min_writer_version
            return ("protocol", ""), (*versions, *map(sorted, features))
        case Metadata():
            columns = tuple(value.partition_columns)
            told = {name: text for name, text in value.configuration.items() if text is not None}
            return ("metaData", ""), (value.id, _schema(value.schema_string), columns, told)
        case Txn():
            return ("txn", value.app_id), value.version
        case DomainMetadata():
            told = None if value.removed else value.configuration or ""
            return ("domainMetadata", value.domain), told
        case _:
            raise TypeError(f"{type(value).__name__} is no action that is kept")


def _schema(text: str | None) -> object:
    """A schema whatever its JSON is spaced like; the text itself where it is none."""
    try:
        return msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return text


def _are_among(keys: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Which keys are among known ones, which are sorted."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    at = np.minimum(np.searchsorted(known, keys), known.size - 1)
    return known[at] == keys
