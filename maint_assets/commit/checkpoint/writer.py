"""Write the checkpoint of a version: computed on executors, read back, then put in place whole.

A classic single-file checkpoint (PROTOCOL, "V1 Spec"), or a V2 checkpoint with a JSON top file and
the file actions in sidecars ("V2 Spec") where ``delta.checkpointPolicy`` is ``v2``.
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
    schema_json,
    v2_members,
    write_hint,
)
from maint_assets.commit.checkpoint.parts import Counts, merge_parts, read_counts, write_parts
from maint_assets.commit.whole_files import put_file_if_absent
from maint_assets.delta.features import Operation, feature_names, refuse_unsupported
from maint_assets.errors import ChecksumMismatchError, CommitError, one_line
from maint_assets.snapshot.checkpoint_shape import CheckpointShape
from maint_assets.snapshot.control_state import non_file_actions
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG, SIDECARS, complete_checkpoints, log_files
from maint_assets.snapshot.summary import checksum_agreement
from maint_assets.snapshot.whole.live_adds import file_state
from maint_assets.storage import read
from maint_assets.storage.write import put_if_absent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from maint_assets.commit.checkpoint.parts import StatePart
    from maint_assets.snapshot.head import TableHead
    from maint_assets.snapshot.log import Checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A checkpoint of a version; sizes in bytes, ``files`` below the table root, top file first.

    If the version had a checkpoint already, ``made`` is False and all numbers are 0.
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
    """Write the checkpoint of the head's version, unless it has one, and update the hint.

    With ``now_ms``, tombstones and ``txn`` actions older than the table's retentions are left out.
    Without it (a version before the newest) all are kept, since the newest version may have longer
    retentions. The hint moves only to a checkpoint that was read back, never to an older version.
    Raises UnsupportedFeatureError, ChecksumMismatchError, CommitError, CorruptLogError or
    LogGapError.
    """
    refuse_unsupported(head.protocol, Operation.CHECKPOINT, table=head.table)
    if _has_one(head):
        return WrittenCheckpoint(head.version, made=False)
    made = str(Path(scratch) / str(uuid.uuid4()))
    others = non_file_actions(head, now_ms=now_ms).rows()
    shape = CheckpointShape.of(head)
    retention_ms = head.properties.deleted_file_retention_ms
    kept_after_ms = None if now_ms is None else now_ms - retention_ms
    state = file_state(
        spark, head, kept_after_ms=kept_after_ms, parallelism=parallelism, scratch=f"{made}/keys"
    )
    parts = write_parts(state, shape, directory=made)
    held = reduce(add, (part.counts for part in parts), Counts())
    # A wrong replay must not become a checkpoint: readers would trust it above the commits.
    _refuse_mismatch(head, held)
    try:
        if _is_v2(head):
            done = _put_v2(head, others, parts, shape=shape)
        else:
            file = merge_parts(spark, parts, others, shape=shape, directory=made)
            done = _put_classic(head, file, held, shape=shape, others=len(others))
    except OSError as error:
        found = f"checkpoint {head.version} cannot be written ({one_line(error)})"
        raise CommitError(head.table, found, "make room, or allow writing") from error
    if done is None:  # another writer was faster
        if not _has_one(head):
            found = f"{head.version:020d}.checkpoint.parquet exists already and cannot be read"
            raise CommitError(head.table, found, "remove it, and run again")
        return WrittenCheckpoint(head.version, made=False)
    return _with_hint(head, *done)


def _put_classic(
    head: TableHead, file: Path, held: Counts, *, shape: CheckpointShape, others: int
) -> tuple[WrittenCheckpoint, Members] | None:
    """Put a single-file checkpoint in place; None if a file of its name is there already."""
    path = f"{LOG}/{head.version:020d}.checkpoint.parquet"
    whole = held + Counts(rows=others, protocols=1, metadata=1)
    if not put_file_if_absent(head.location, path, file, check=partial(_check, head, whole)):
        return None
    return _written(head, (path,), held, actions=whole.rows), classic_members(shape.classic_schema)


def _put_v2(
    head: TableHead, others: list[Members], parts: list[StatePart], *, shape: CheckpointShape
) -> tuple[WrittenCheckpoint, Members]:
    """Put a V2 checkpoint in place: the sidecars first, so that no top file names absent ones."""
    named = f"{head.version:020d}.checkpoint"
    paths = [
        f"{SIDECARS}/{named}.{number:010d}.{len(parts):010d}.{uuid.uuid4()}.parquet"
        for number in range(1, len(parts) + 1)
    ]
    for part, path in zip(parts, paths, strict=True):
        check = partial(_check, head, part.counts)
        if not put_file_if_absent(head.location, path, Path(part.path), check=check):
            raise CommitError(head.table, f"{path} exists already", "run again")
    held = reduce(add, (part.counts for part in parts), Counts())
    sidecars = [_sidecar(head, path) for path in paths]
    tags = _tags(held, sidecars, schema_json(shape.schema))
    mark = {"checkpointMetadata": {"version": head.version, "tags": tags}}
    rows = [mark, *map(_present, others)]
    top = f"{LOG}/{named}.{uuid.uuid4()}.json"
    body = "".join(map(_line, [*rows, *({"sidecar": each} for each in sidecars)])).encode()
    if not put_if_absent(head.location, top, body) or read.content(head.location, top) != body:
        raise CommitError(
            head.table, f"{top} does not hold what was written", "remove that file, and run again"
        )
    actions = held.rows + len(rows) + len(sidecars)
    hint = v2_members(_sidecar(head, top), others=rows, sidecars=sidecars)
    return _written(head, (top, *paths), held, actions=actions), hint


def _tags(held: Counts, sidecars: list[Members], schema: str | None) -> dict[str, str]:
    """Tags of ``checkpointMetadata`` that summarise the sidecars, as delta-spark writes them."""
    tags = {
        "sidecarNumActions": str(held.rows),
        "sidecarSizeInBytes": str(sum(each["sizeInBytes"] for each in sidecars)),
        "numOfAddFiles": str(held.adds),
    }
    return tags if schema is None else {**tags, "sidecarFileSchema": schema}


def _check(head: TableHead, expected: Counts, copy: Path) -> None:
    """Raise CommitError if a file, read back, has other counts than what was written into it."""
    try:
        found = read_counts(copy)
    except (OSError, pa.ArrowException) as error:
        found = one_line(error)
    if found != expected:
        raise CommitError(
            head.table,
            f"checkpoint {head.version} was not written correctly: found {found}, not {expected}",
            "check the disk, and run again",
        )


def _refuse_mismatch(head: TableHead, held: Counts) -> None:
    metrics = {"live_files": held.adds, "live_bytes": held.live_bytes}
    agreement = checksum_agreement(head, metrics)
    if agreement not in {"agrees", "absent"}:
        raise ChecksumMismatchError(
            head.table, agreement, "find out which of the two is wrong before anything is written"
        )


def _has_one(head: TableHead) -> bool:
    """Whether the version has a checkpoint.

    Raises CommitError if the one that readers prefer cannot be read: they would not take another.
    """
    complete = complete_checkpoints(log_files(head.location, since=head.version))
    preferred = next((each for each in complete if each.version == head.version), None)
    if preferred is None:
        return False
    if not _is_read(preferred, head) and not _is_read(
        preferred, table_head(head.location, head.version)
    ):
        found = f"{preferred.entries[0].file.name} exists already and cannot be read"
        raise CommitError(head.table, found, "remove it, and run again")
    return True


def _is_read(checkpoint: Checkpoint, head: TableHead) -> bool:
    """Whether the head was read from this checkpoint."""
    used = () if head.segment.checkpoint is None else head.segment.checkpoint.entries
    return [entry.file for entry in used] == [entry.file for entry in checkpoint.entries]


def _is_v2(head: TableHead) -> bool:
    has_feature = "v2Checkpoint" in feature_names(head.protocol)
    return has_feature and head.properties.checkpoint_policy == "v2"


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
    """Move the hint to the checkpoint, unless it points to a newer one.

    Raises CommitError if the hint cannot be written; the checkpoint is in place by then.
    """
    numbers = {
        "version": placed.version,
        "size": placed.actions,
        "sizeInBytes": placed.size,
        "numOfAddFiles": placed.adds,
    }
    try:
        moved = write_hint(head, {**numbers, **members})
    except OSError as error:
        found = (
            f"checkpoint {head.version} is written, "
            f"but _last_checkpoint cannot be ({one_line(error)})"
        )
        raise CommitError(
            head.table,
            found,
            "make room, or allow writing; readers find the checkpoint by listing",
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
    """An action as the log writes it: without the fields that are None."""
    return {
        name: {key: value for key, value in fields.items() if value is not None}
        for name, fields in row.items()
    }


def _line(row: Members) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"
