"""Check, while planning, whether an anchor checkpoint may be written from commits alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.features import Operation, unsupported
from maint_assets.delta.names import commit_name
from maint_assets.errors import MaintError
from maint_assets.log_cleanup.log_directory import CHECKPOINT_KINDS
from maint_assets.snapshot.checkpoint_shape import CheckpointShape
from maint_assets.snapshot.control_state import non_file_actions
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG
from maint_assets.snapshot.replay import key_texts
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.snapshot.whole.actions import full_actions_of
from maint_assets.storage import read

if TYPE_CHECKING:
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location


def anchor_refusal(log: LogDirectory, version: int) -> str | None:
    """Why no checkpoint of a version can be written from the commits since 0; None if it can.

    All these commits are read. The caller knows that no checkpoint up to the version is sound.
    """
    same = log.of(*CHECKPOINT_KINDS)
    same = same.filter(pc.equal(same["version"], version))["path"].to_pylist()
    if same:
        return f"{min(same).rpartition('/')[2]} exists already"
    if not log.has_commits(0, version):
        return "commits before it are gone"
    if not read.may_write(log.location, LOG):
        return f"{LOG} cannot be written to"
    try:
        return _unwritable(log, version)
    except MaintError as error:
        return error.found


def _unwritable(log: LogDirectory, version: int) -> str | None:
    """The same, from the table's state at the version. Raises the errors of the write itself."""
    head = table_head(log.location, version)
    refused = unsupported(head.protocol, Operation.CHECKPOINT)
    if refused:
        return "; ".join(refused)
    base = head.segment.checkpoint
    if base is not None:
        return f"it would be made from checkpoint {base.version}, which is not sound"
    CheckpointShape.of(head)
    non_file_actions(head, now_ms=None)
    return _added_and_removed(log.location, log.commits_between(0, version))


def _added_and_removed(location: Location, commits: list[LogEntry]) -> str | None:
    """The fault of a commit that adds and removes a file with no later action on it, else None.

    Readers differ in which of the two actions wins.
    """
    both: dict[str, int] = {}
    for entry in commits:
        unit = LogUnit(path=entry.path, version=entry.file.version, size=entry.size)
        adds, removes = [pa.array([], pa.string())], [pa.array([], pa.string())]
        for batch in full_actions_of(location, [unit]):
            (removes if batch["add"].null_count else adds).append(key_texts(batch))
        added, removed = pa.chunked_array(adds), pa.chunked_array(removes)
        for key in _among([*both], added) | _among([*both], removed):
            del both[key]
        found = added.filter(pc.is_in(added, value_set=removed.combine_chunks()))
        both |= dict.fromkeys(found.to_pylist(), entry.file.version)
    if not both:
        return None
    key, version = next(iter(both.items()))
    path = key.partition("\0")[0]
    return f"{commit_name(version)} both adds and removes {path}, which readers see differently"


def _among(keys: list[str], known: pa.ChunkedArray) -> set[str]:
    wanted = pa.array(keys, pa.string())
    return set(wanted.filter(pc.is_in(wanted, value_set=known.combine_chunks())).to_pylist())
