"""Open a checkpoint in full, to see whether a log could begin with it: its anchor.

Names, sizes and footers do not show a truncated file or a broken page. When the commits before the
anchor are gone, a broken anchor loses all versions up to the next checkpoint, so every column of
every file is read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.actions import (
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
    parse_action,
)
from maint_assets.delta.names import LogFileKind
from maint_assets.errors import CorruptLogError, LogGapError, one_line
from maint_assets.log_cleanup.checkpoints.loadable import (
    lacking,
    lacking_in_json,
    refuse_unloadable,
)
from maint_assets.snapshot.control_actions import RESTORE, log_lines, non_file_rows, to_action
from maint_assets.snapshot.head import SidecarFile, sidecar_file, version_checksum
from maint_assets.snapshot.log import Checkpoint
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location

_KINDS = {
    "protocol": Protocol,
    "metaData": Metadata,
    "checkpointMetadata": CheckpointMetadata,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
}
_BATCH_ROWS = 16_384
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_V2_NAME = re.compile(rf"[0-9]{{20}}\.checkpoint\.{_UUID}\.(json|parquet)")


class Opened(msgspec.Struct, frozen=True):
    """An opened checkpoint: its files, sidecars last, or the fault that rules it out as anchor."""

    checkpoint: Checkpoint
    units: list[LogUnit]
    fault: str | None = None


def open_checkpoint(location: Location, checkpoint: Checkpoint) -> Opened:
    """Read a complete checkpoint and check everything but its content against the commits.

    It must have one protocol and one metadata, sidecars of the recorded sizes, the required fields
    in every file action, the file count of the version checksum if there is one, and file names by
    which every reader finds it (PROTOCOL.md, "Checkpoints").
    """
    try:
        return Opened(checkpoint, _units(location, checkpoint))
    except (CorruptLogError, LogGapError) as error:
        return Opened(checkpoint, [], error.found)


def _units(location: Location, checkpoint: Checkpoint) -> list[LogUnit]:
    """The files of a checkpoint. Raises CorruptLogError and LogGapError for an unsound one."""
    odd = [entry.file.name for entry in checkpoint.entries if not _is_usual(entry)]
    if odd:
        raise _unsound(location, f"checkpoint {odd[0]} has a name that other readers ignore")
    actions = _other_actions(location, checkpoint)
    sidecars = [file.path for file in actions.sidecars]
    wrong = _wrong_shape(checkpoint, actions) or _miscounted(location, checkpoint, sidecars)
    if wrong:
        raise _unsound(location, wrong)
    files = [(entry.path, entry.size) for entry in checkpoint.entries]
    files += [(file.path, file.size) for file in actions.sidecars]
    return [LogUnit(path=path, version=checkpoint.version, size=size) for path, size in files]


@dataclass(slots=True)
class _OtherActions:
    """The actions of a checkpoint that are not of files: counts by kind, sidecars, protocol."""

    found: Counter[str] = field(default_factory=Counter[str])
    sidecars: list[SidecarFile] = field(default_factory=list[SidecarFile])
    protocol: Protocol | None = None


def _unsound(location: Location, what: str) -> CorruptLogError:
    return CorruptLogError(location.uri, what, RESTORE)


def _is_usual(entry: LogEntry) -> bool:
    """Whether the name is the one that writers give (PROTOCOL.md, "Checkpoints")."""
    file = entry.file
    named = f"{file.version:020d}.checkpoint"
    if file.kind is LogFileKind.CHECKPOINT_V2:
        return _V2_NAME.fullmatch(file.name) is not None
    part = f".{file.part:010d}.{file.parts:010d}" if file.parts else ""
    return file.name == f"{named}{part}.parquet"


def _other_actions(location: Location, checkpoint: Checkpoint) -> _OtherActions:
    actions = _OtherActions()
    rows = (
        (entry, name, row[name])
        for entry in checkpoint.entries
        for row in non_file_rows(location, entry, (*_KINDS, "sidecar"))
        for name in (*_KINDS, "sidecar")
        if row.get(name)
    )
    for entry, name, row in rows:
        if name == "sidecar":
            actions.sidecars.append(sidecar_file(row, location, entry))
            continue
        value = to_action(row, _KINDS[name], table=location.uri, file=entry.file.name)
        actions.found[name] += 1
        if isinstance(value, CheckpointMetadata):
            actions.found["other version"] += value.version != checkpoint.version
        elif isinstance(value, Protocol):
            actions.protocol = value
    return actions


def _wrong_shape(checkpoint: Checkpoint, actions: _OtherActions) -> str | None:
    """The fault in the numbers of actions, None if they are right (PROTOCOL.md, "V2 Spec")."""
    entry, found = checkpoint.entries[0], actions.found
    name = entry.file.name
    for action in ("protocol", "metaData"):
        if found[action] != 1:
            return f"checkpoint {name} holds {found[action]} {action} actions, not 1"
    marks = found["checkpointMetadata"]
    is_v2 = entry.file.kind is LogFileKind.CHECKPOINT_V2
    if marks > 1 or ((is_v2 or found["sidecar"]) and not marks):
        return f"checkpoint {name} holds {marks} checkpointMetadata actions, not 1"
    if (is_v2 or marks) and not _has_v2(actions.protocol):
        return f"checkpoint {name} is a V2 one of a table without the feature v2Checkpoint"
    return f"checkpoint {name} is of another version" if found["other version"] else None


def _has_v2(protocol: Protocol | None) -> bool:
    if protocol is None:
        return False
    return "v2Checkpoint" in [*(protocol.reader_features or []), *(protocol.writer_features or [])]


def _miscounted(location: Location, checkpoint: Checkpoint, sidecars: list[str]) -> str | None:
    """The fault if the live files and bytes differ from those in the version checksum, else None.

    Without a version checksum the files are read all the same: a broken one raises.
    """
    adds = live_bytes = 0
    for entry in checkpoint.entries:
        in_json = entry.file.name.endswith(".json")
        rows = _in_json(location, entry) if in_json else _in_parquet(location, entry.path)
        for files, size in rows:
            adds, live_bytes = adds + files, live_bytes + size
    for path in sidecars:
        for files, size in _in_parquet(location, path, is_sidecar=True):
            adds, live_bytes = adds + files, live_bytes + size
    recorded = version_checksum(location, checkpoint.version)
    if recorded is None:
        return None
    if (recorded.num_files, recorded.table_size_bytes) != (adds, live_bytes):
        return (
            f"checkpoint {checkpoint.version} holds {adds} files of {live_bytes} bytes, its "
            f"checksum says {recorded.num_files} files of {recorded.table_size_bytes} bytes"
        )
    return None


def _in_parquet(
    location: Location, path: str, *, is_sidecar: bool = False
) -> Iterator[tuple[int, int]]:
    """Live files and their bytes per batch; all columns are read, to find broken pages."""
    name = path.rpartition("/")[2]
    try:
        with read.parquet(location, path) as file:
            refuse_unloadable(file)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                batch.validate(full=True)
                yield _counted(batch, is_sidecar=is_sidecar)
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        found = f"{name} cannot be read ({one_line(error)})"
        raise CorruptLogError(location.uri, found, RESTORE) from error


def _other_kind(batch: pa.RecordBatch) -> str | None:
    """The fault of a sidecar with actions that are not of files, else None: readers differ then."""
    names = [name for name in batch.schema.names if name not in {"add", "remove"}]
    found = [name for name in names if batch[name].null_count < batch.num_rows]
    return f"it is a sidecar, and holds {found[0]} actions" if found else None


def _counted(batch: pa.RecordBatch, *, is_sidecar: bool) -> tuple[int, int]:
    """Live files and their bytes of a batch.

    Raises ValueError where a required field is missing, and for a sidecar with other actions.
    """
    wrong = lacking(batch) or (_other_kind(batch) if is_sidecar else None)
    if wrong:
        raise ValueError(wrong)
    adds = _values(batch, "add")
    return (len(adds), pc.sum(pc.struct_field(adds, "size")).as_py()) if len(adds) else (0, 0)


def _values(batch: pa.RecordBatch, name: str) -> Any:
    if name not in batch.schema.names:
        return pa.nulls(0)
    return batch[name].drop_null()


def _in_json(location: Location, entry: LogEntry) -> Iterator[tuple[int, int]]:
    for line in log_lines(location, entry):
        add = parse_action(line, table=location.uri, file=entry.file.name).add
        wrong = lacking_in_json(line)
        if wrong:
            raise _unsound(location, f"{entry.file.name} cannot be read ({wrong})")
        if add is not None:
            yield 1, add.size
