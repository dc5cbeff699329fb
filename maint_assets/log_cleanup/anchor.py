"""Whether a checkpoint can be what a log begins with: opened, counted, compared (logs.md 14.5)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.delta.actions import parse_action
from maint_assets.delta.checksum import VersionChecksum
from maint_assets.delta.names import checksum_name
from maint_assets.errors import CorruptLogError, LogGapError, one_line
from maint_assets.snapshot.checkpoint_parts import counts
from maint_assets.snapshot.head import sidecar_file
from maint_assets.snapshot.log import LOG
from maint_assets.snapshot.other_actions import log_lines, other_rows
from maint_assets.storage import read

if TYPE_CHECKING:
    from maint_assets.snapshot.head import SidecarFile
    from maint_assets.snapshot.log import Checkpoint, LogEntry
    from maint_assets.storage.location import Location

_ONCE = ("protocol", "metaData")
_NAMES = (*_ONCE, "sidecar", "checkpointMetadata")


def fault(location: Location, checkpoint: Checkpoint) -> str | None:
    """Why a complete checkpoint cannot be the first thing of a log; None when it can.

    Every file is opened: one protocol, one metadata, sidecars of the recorded sizes, file actions
    that the version's checksum counts too, where there is one.
    """
    try:
        found, sidecars = _told(location, checkpoint)
        if (wrong := _wrong_shape(checkpoint, found)) is not None:
            return wrong
        files = [entry.path for entry in checkpoint.entries] + [each.path for each in sidecars]
        return _miscounted(location, checkpoint, files)
    except (CorruptLogError, LogGapError) as error:
        return error.found


def _told(location: Location, checkpoint: Checkpoint) -> tuple[Counter[str], list[SidecarFile]]:
    """How many actions of each kind there are beside file actions, and the sidecars."""
    found = Counter[str]()
    sidecars: list[SidecarFile] = []
    for entry in checkpoint.entries:
        for row in other_rows(location, entry, _NAMES):
            found.update(name for name in _NAMES if row.get(name))
            if row.get("sidecar"):
                sidecars.append(sidecar_file(row["sidecar"], location, entry))
            if row.get("checkpointMetadata") and _version(row) != checkpoint.version:
                found["other version"] += 1
    return found, sidecars


def _version(row: dict[str, object]) -> object:
    told = row["checkpointMetadata"]
    return told["version"] if isinstance(told, dict) else getattr(told, "version", None)


def _wrong_shape(checkpoint: Checkpoint, found: Counter[str]) -> str | None:
    name = checkpoint.entries[0].file.name
    for action in _ONCE:
        if found[action] != 1:
            return f"checkpoint {name} holds {found[action]} {action} actions, not 1"
    is_v2 = checkpoint.entries[0].file.format_rank == 2  # noqa: PLR2004
    if found["checkpointMetadata"] > 1 or (
        (is_v2 or found["sidecar"]) and not found["checkpointMetadata"]
    ):
        return f"checkpoint {name} holds {found['checkpointMetadata']} checkpointMetadata actions"
    return f"checkpoint {name} is of another version" if found["other version"] else None


def _miscounted(location: Location, checkpoint: Checkpoint, files: list[str]) -> str | None:
    """What the file actions of a checkpoint tell otherwise than its version's checksum."""
    adds = live_bytes = 0
    for path in files:
        if path.endswith(".json"):
            entry = next(each for each in checkpoint.entries if each.path == path)
            more = _in_json(location, entry)
        else:
            more = _in_parquet(location, path)
        adds, live_bytes = adds + more[0], live_bytes + more[1]
    recorded = _checksum(location, checkpoint.version)
    if recorded is None:
        return None
    if (recorded.num_files, recorded.table_size_bytes) != (adds, live_bytes):
        return (
            f"checkpoint {checkpoint.version} holds {adds} files of {live_bytes} bytes, its "
            f"checksum says {recorded.num_files} of {recorded.table_size_bytes}"
        )
    return None


def _in_parquet(location: Location, path: str) -> tuple[int, int]:
    try:
        found = counts(location.file(path))
    except (OSError, pa.ArrowException) as error:
        name = path.rpartition("/")[2]
        raise CorruptLogError(location.uri, f"{name} cannot be read ({one_line(error)})") from error
    return found.adds, found.live_bytes


def _in_json(location: Location, entry: LogEntry) -> tuple[int, int]:
    adds = live_bytes = 0
    for line in log_lines(location, entry):
        if line.startswith(b'{"add"'):
            add = parse_action(line, table=location.uri, file=entry.file.name).add
            adds, live_bytes = adds + 1, live_bytes + (add.size if add else 0)
    return adds, live_bytes


def _checksum(location: Location, version: int) -> VersionChecksum | None:
    try:
        return VersionChecksum.parse(read.content(location, f"{LOG}/{checksum_name(version)}"))
    except OSError:
        return None
