"""Checkpoints: the state of a version in one place, put there whole, and read back before use.

Single-file checkpoints as PROTOCOL's "V1 Spec" names them, V2 ones where the table's policy asks
for them: a top file in JSON, file actions in sidecars (logs.md 15).
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.commit.checkpoint.last_checkpoint import (
    Members,
    classic_members,
    moved_hint,
    schema_json,
    v2_members,
)
from maint_assets.commit.checkpoint.parts import Counts, counts, joined, state_parts
from maint_assets.commit.whole_files import put_file_if_absent
from maint_assets.delta.features import Operation, feature_names, refuse_unsupported
from maint_assets.errors import ChecksumMismatchError, CommitError, one_line
from maint_assets.snapshot.checkpoint_shape import CheckpointShape
from maint_assets.snapshot.control_state import overview
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG, SIDECARS
from maint_assets.snapshot.summary import checksum_agreement
from maint_assets.snapshot.whole.live_adds import file_state
from maint_assets.storage import read
from maint_assets.storage.write import put_if_absent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from maint_assets.commit.checkpoint.parts import StatePart
    from maint_assets.snapshot.head import TableHead

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A checkpoint of a version; sizes in bytes, ``files`` below the table root, top file first.

    Where one was there already, ``made`` is False and the numbers are those of none.
    """

    version: int
    made: bool
    files: tuple[str, ...] = ()
    actions: int = 0
    adds: int = 0
    tombstones: int = 0
    live_bytes: int = 0
    size: int = 0
    hint_moved: bool = False


def write_checkpoint(
    spark: SparkSession, head: TableHead, *, parallelism: int, scratch: str, now_ms: int | None
) -> WrittenCheckpoint:
    """The checkpoint of the head's version, written unless it has one.

    Tombstones and applications stay that are within the table's own retentions, all of them without
    a time: newer versions may have longer ones. Raises
    UnsupportedFeatureError, ChecksumMismatchError, CommitError, CorruptLogError or LogGapError;
    the hint moves only to what was read back, and never to an older version.
    """
    refuse_unsupported(head.protocol, Operation.CHECKPOINT, table=head.table)
    if _has_one(head):
        return WrittenCheckpoint(head.version, made=False)
    made = str(Path(scratch) / str(uuid.uuid4()))
    others = overview(head, now_ms=now_ms).rows()
    shape = CheckpointShape.of(head)
    retention_ms = head.properties.deleted_file_retention_ms
    kept_after_ms = None if now_ms is None else now_ms - retention_ms
    state = file_state(
        spark, head, kept_after_ms=kept_after_ms, parallelism=parallelism, scratch=f"{made}/keys"
    )
    parts = state_parts(state, shape, directory=made)
    held = reduce(add, (part.counts for part in parts), Counts())
    _refuse_mismatch(head, held)
    try:
        if _is_v2(head):
            done = _v2(head, others, parts, shape=shape)
        else:
            file = joined(spark, parts, others, shape=shape, directory=made)
            done = _classic(head, file, held, shape=shape, others=len(others))
    except OSError as error:
        found = f"checkpoint {head.version} cannot be written ({one_line(error)})"
        raise CommitError(head.table, found, "make room, or allow writing") from error
    if done is None:
        return _others(head)
    return _with_hint(head, *done)


def _classic(
    head: TableHead, file: Path, held: Counts, *, shape: CheckpointShape, others: int
) -> tuple[WrittenCheckpoint, Members] | None:
    """The single file, put, and what the hint says of it; None when another one has its name."""
    path = f"{LOG}/{head.version:020d}.checkpoint.parquet"
    whole = held + Counts(rows=others, protocols=1, metadata=1)
    if not put_file_if_absent(head.location, path, file, check=partial(_check, head, whole)):
        return None
    return _written(head, (path,), held, actions=whole.rows), classic_members(shape.classic_schema)


def _v2(
    head: TableHead, others: list[Members], parts: list[StatePart], *, shape: CheckpointShape
) -> tuple[WrittenCheckpoint, Members]:
    """Sidecars, then the top file that names them; and what the hint says of them."""
    named = f"{head.version:020d}.checkpoint"
    paths = [
        f"{SIDECARS}/{named}.{number:010d}.{len(parts):010d}.{uuid.uuid4()}.parquet"
        for number in range(1, len(parts) + 1)
    ]
    for part, path in zip(parts, paths, strict=True):
        check = partial(_check, head, part.counts)
        if not put_file_if_absent(head.location, path, Path(part.path), check=check):
            raise CommitError(head.table, f"{path} is there already", "run again")
    held = reduce(add, (part.counts for part in parts), Counts())
    sidecars = [_sidecar(head, path) for path in paths]
    tags = _tags(held, sidecars, schema_json(shape.schema))
    mark = {"checkpointMetadata": {"version": head.version, "tags": tags}}
    rows = [mark, *map(_present, others)]
    top = f"{LOG}/{named}.{uuid.uuid4()}.json"
    body = "".join(map(_line, [*rows, *({"sidecar": each} for each in sidecars)])).encode()
    if not put_if_absent(head.location, top, body) or read.content(head.location, top) != body:
        raise CommitError(head.table, f"{top} is not what was written", "remove that file")
    actions = held.rows + len(rows) + len(sidecars)
    hint = v2_members(_sidecar(head, top), others=rows, sidecars=sidecars)
    return _written(head, (top, *paths), held, actions=actions), hint


def _tags(held: Counts, sidecars: list[Members], schema: str | None) -> dict[str, str]:
    """What a V2 checkpoint tells of its sidecars, as Delta does."""
    tags = {
        "sidecarNumActions": str(held.rows),
        "sidecarSizeInBytes": str(sum(each["sizeInBytes"] for each in sidecars)),
        "numOfAddFiles": str(held.adds),
    }
    return tags if schema is None else {**tags, "sidecarFileSchema": schema}


def _check(head: TableHead, expected: Counts, copy: Path) -> None:
    """CommitError when a file does not hold what was written into it."""
    try:
        found = counts(copy)
    except (OSError, pa.ArrowException) as error:
        found = one_line(error)
    if found != expected:
        raise CommitError(
            head.table,
            f"checkpoint {head.version} was written wrongly: {found}, not {expected}",
            "check the disk, and run again",
        )


def _refuse_mismatch(head: TableHead, held: Counts) -> None:
    metrics = {"live_files": held.adds, "live_bytes": held.live_bytes}
    agreement = checksum_agreement(head, metrics)
    if agreement not in {"agrees", "absent"}:
        raise ChecksumMismatchError(
            head.table, agreement, "find out which of both is wrong before anything is written"
        )


def _has_one(head: TableHead) -> bool:
    checkpoint = head.segment.checkpoint
    return checkpoint is not None and checkpoint.version == head.version


def _is_v2(head: TableHead) -> bool:
    has_feature = "v2Checkpoint" in feature_names(head.protocol)
    return has_feature and head.properties.checkpoint_policy == "v2"


def _others(head: TableHead) -> WrittenCheckpoint:
    """The checkpoint that somebody else has put there; CommitError when it cannot be read."""
    if not _has_one(table_head(head.location, head.version)):
        found = f"{head.version:020d}.checkpoint.parquet is there already and cannot be read"
        raise CommitError(head.table, found, "remove that file, and run again")
    return WrittenCheckpoint(head.version, made=False)


def _written(
    head: TableHead, files: tuple[str, ...], held: Counts, *, actions: int
) -> WrittenCheckpoint:
    return WrittenCheckpoint(
        version=head.version,
        made=True,
        files=files,
        actions=actions,
        adds=held.adds,
        tombstones=held.removes,
        live_bytes=held.live_bytes,
        size=sum(_size_and_mtime(head, path)[0] for path in files),
    )


def _with_hint(head: TableHead, placed: WrittenCheckpoint, members: Members) -> WrittenCheckpoint:
    """The checkpoint, with the hint moved to it unless that points to a newer one.

    Raises CommitError where it cannot be moved: the checkpoint is in place.
    """
    numbers = {
        "version": placed.version,
        "size": placed.actions,
        "sizeInBytes": placed.size,
        "numOfAddFiles": placed.adds,
    }
    try:
        moved = moved_hint(head, {**numbers, **members})
    except OSError as error:
        found = f"checkpoint {head.version} is there, _last_checkpoint not ({one_line(error)})"
        raise CommitError(
            head.table, found, "make room, or allow writing: readers find it by its name"
        ) from error
    logger.info("%s: checkpoint %s of %s actions", head.table, head.version, placed.actions)
    return changed(placed, hint_moved=moved)


def _sidecar(head: TableHead, path: str) -> Members:
    size, modified_ms = _size_and_mtime(head, path)
    name = path.rpartition("/")[2]
    return {"path": name, "sizeInBytes": size, "modificationTime": modified_ms}


def _size_and_mtime(head: TableHead, path: str) -> tuple[int, int]:
    found = read.size_and_mtime(head.location, path)
    if found is None:
        raise CommitError(head.table, f"{path} vanished after it was written", "run again")
    return found


def _present(row: Members) -> Members:
    """One action as the log has it: what is None is left out."""
    return {
        name: {key: value for key, value in fields.items() if value is not None}
        for name, fields in row.items()
    }


def _line(row: Members) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"
