"""What a run of commits makes of the version before it, to compare a checkpoint with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maint_assets.delta.actions import may_hold, parse_action
from maint_assets.log_cleanup.content import (
    NOTHING,
    Content,
    Hashes,
    LiveFiles,
    file_hashes,
    other_action,
)
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.other_actions import log_lines
from maint_assets.snapshot.schemas import LogUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maint_assets.log_cleanup.content import Others
    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location

_HELD_ACTIONS = 1_000_000
_OTHERS = (b"txn", b"domainMetadata", b"metaData", b"protocol")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What commits say last of all that they name.

    ``keys`` are those of files, sorted, ``files`` the live ones of them. Other actions are None
    where they were removed.
    """

    keys: Hashes
    files: LiveFiles
    others: Others

    def after(self, base: Content) -> Content:
        """What a version is after these commits; of ``base`` the files of ``keys`` are left out."""
        others = {**base.others, **self.others}
        left = {name: told for name, told in others.items() if told is not None}
        return Content(base.files + self.files, left)


def replayed(location: Location, commits: Sequence[LogEntry]) -> Replayed:
    """What commits say, oldest first; 24 bytes for each file that they name are held.

    Raises CorruptLogError and LogGapError.
    """
    read = [LogUnit(path=each.path, version=each.file.version, size=each.size) for each in commits]
    newest, held = [_Actions(NOTHING, NOTHING, NOTHING)], 0
    for batch in actions_of(location.path, read):
        keys, hashes = file_hashes(batch)
        newest.append(_Actions(keys, batch["ord"].to_numpy().astype(np.uint64), hashes))
        held += keys.size
        if held > _HELD_ACTIONS:
            newest, held = [_newest(newest)], 0
    last = _newest(newest)
    live = last.hashes[last.order % 2 == 1]
    return Replayed(last.keys, LiveFiles.of(live), _others(location, commits))


@dataclass(frozen=True, slots=True)
class _Actions:
    """File actions by column: keys, the order of commits (odd for an add), what each says."""

    keys: Hashes
    order: Hashes
    hashes: Hashes


def _newest(some: Sequence[_Actions]) -> _Actions:
    """The newest action of each key, by key."""
    keys = np.concatenate([each.keys for each in some])
    order = np.concatenate([each.order for each in some])
    hashes = np.concatenate([each.hashes for each in some])
    rank = np.lexsort((order, keys))
    is_last = np.ones(keys.size, np.bool_)
    is_last[:-1] = keys[rank[1:]] != keys[rank[:-1]]
    kept = rank[is_last]
    return _Actions(keys[kept], order[kept], hashes[kept])


def _others(location: Location, commits: Sequence[LogEntry]) -> Others:
    """The newest of each action that is not of a file; only lines that can hold one are parsed."""
    found: dict[tuple[str, str], object] = {}
    for entry in commits:
        for line in log_lines(location, entry):
            if may_hold(line, *_OTHERS):
                action = parse_action(line, table=location.uri, file=entry.file.name)
                told = (action.txn, action.domainMetadata, action.metaData, action.protocol)
                found.update(other_action(value) for value in told if value is not None)
    return found
