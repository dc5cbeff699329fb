"""What a run of commits makes of the version before it, to compare a checkpoint with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.actions import may_hold, parse_action
from maint_assets.log_cleanup.content import Content, lets_expire, other_action
from maint_assets.log_cleanup.live_files import (
    NOTHING,
    Hashes,
    LiveFiles,
    add_hashes,
    are_among,
    key_hashes,
)
from maint_assets.snapshot.full_actions import full_actions_of
from maint_assets.snapshot.other_actions import log_lines
from maint_assets.snapshot.schemas import LogUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maint_assets.log_cleanup.content import Others
    from maint_assets.log_cleanup.live_files import Kinds
    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location

_HELD_ACTIONS = 1_000_000
_OTHERS = (b"txn", b"domainMetadata", b"metaData", b"protocol")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a version is by the commits up to it; ``expires``: some version let applications expire.

    Its writers may then have left out an application for ever, which commits still name.
    """

    content: Content
    expires: bool = False


BEGINNING = Replayed(Content(LiveFiles.together([]), {}))
"""What a table is before its first commit."""


def replayed(
    base: Replayed, location: Location, commits: Sequence[LogEntry], *, kinds: Kinds
) -> Replayed:
    """What a version is after commits, oldest first; 40 bytes for each file they name are held.

    Raises CorruptLogError and LogGapError.
    """
    newest: list[_Actions] = []
    held = 0
    for each in commits:
        unit = LogUnit(path=each.path, version=each.file.version, size=each.size)
        for batch in full_actions_of(location.path, [unit]):
            newest.append(_actions(batch, kinds, location))
            held += len(batch)
        if held > _HELD_ACTIONS:
            newest, held = [_newest(newest)], 0
    last = _newest(newest)
    kept = base.content.files.taken(~are_among(base.content.files.keys, last.files.keys))
    files = LiveFiles.joined([kept, last.files.taken(last.order % 2 == 1)])
    named, expires = _others(location, commits)
    others = {**base.content.others, **named}
    left = {name: told for name, told in others.items() if told is not None}
    return Replayed(Content(files, left), base.expires or expires)


@dataclass(frozen=True, slots=True)
class _Actions:
    """File actions: what is known of each, and their order by commit (odd for an add)."""

    files: LiveFiles
    order: Hashes


def _actions(batch: pa.RecordBatch, kinds: Kinds, location: Location) -> _Actions:
    """The actions of a batch of one kind: adds or removes."""
    order = batch["ord"].to_numpy().astype(np.uint64)
    if batch["add"].null_count == 0:
        return _Actions(add_hashes(batch, kinds, location), order)
    keys = key_hashes(pc.struct_field(batch["remove"], "path"), batch["dv_id"], location)
    nothing = np.zeros(keys.size, np.uint64)
    return _Actions(LiveFiles(keys, nothing, nothing, nothing), order)


def _newest(some: Sequence[_Actions]) -> _Actions:
    """The newest action of each key, by key."""
    every = LiveFiles.together([each.files for each in some])
    order = np.concatenate([NOTHING, *(each.order for each in some)])
    rank = np.lexsort((order, every.keys))
    is_last = np.ones(every.keys.size, np.bool_)
    is_last[:-1] = every.keys[rank[1:]] != every.keys[rank[:-1]]
    kept = rank[is_last]
    return _Actions(every.taken(kept), order[kept])


def _others(location: Location, commits: Sequence[LogEntry]) -> tuple[Others, bool]:
    """The newest of each action that is not of a file, and whether applications could expire.

    Only lines that can hold one are parsed.
    """
    found: dict[tuple[str, str], object] = {}
    expires = False
    for entry in commits:
        for line in log_lines(location, entry):
            if may_hold(line, *_OTHERS):
                action = parse_action(line, table=location.uri, file=entry.file.name)
                told = (action.txn, action.domainMetadata, action.metaData, action.protocol)
                found.update(other_action(value) for value in told if value is not None)
                expires |= action.metaData is not None and lets_expire(found["metaData", ""])
    return found, expires
