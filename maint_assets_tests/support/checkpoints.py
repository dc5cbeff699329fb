"""Checkpoints written by hand, in the columns that delta-spark writes and reads."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]

_STRINGS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


_VECTOR = _struct(
    storageType=pa.string(),
    pathOrInlineDv=pa.string(),
    offset=pa.int32(),
    sizeInBytes=pa.int32(),
    cardinality=pa.int64(),
    maxRowIndex=pa.int64(),
)
ADD = _struct(
    path=pa.string(),
    partitionValues=_STRINGS,
    size=pa.int64(),
    modificationTime=pa.int64(),
    dataChange=pa.bool_(),
    tags=_STRINGS,
    deletionVector=_VECTOR,
    baseRowId=pa.int64(),
    defaultRowCommitVersion=pa.int64(),
    clusteringProvider=pa.string(),
    stats=pa.string(),
)
REMOVE = _struct(
    path=pa.string(),
    deletionTimestamp=pa.int64(),
    dataChange=pa.bool_(),
    extendedFileMetadata=pa.bool_(),
    partitionValues=_STRINGS,
    size=pa.int64(),
    deletionVector=_VECTOR,
    baseRowId=pa.int64(),
    defaultRowCommitVersion=pa.int64(),
)
METADATA = _struct(
    id=pa.string(),
    name=pa.string(),
    description=pa.string(),
    format=_struct(provider=pa.string(), options=_STRINGS),
    schemaString=pa.string(),
    partitionColumns=_LIST,
    configuration=_STRINGS,
    createdTime=pa.int64(),
)
PROTOCOL = _struct(
    minReaderVersion=pa.int32(),
    minWriterVersion=pa.int32(),
    readerFeatures=_LIST,
    writerFeatures=_LIST,
)
TXN = _struct(appId=pa.string(), version=pa.int64(), lastUpdated=pa.int64())
DOMAIN = _struct(domain=pa.string(), configuration=pa.string(), removed=pa.bool_())
MARK = _struct(version=pa.int64(), tags=_STRINGS)
SIDECAR = _struct(
    path=pa.string(), sizeInBytes=pa.int64(), modificationTime=pa.int64(), tags=_STRINGS
)
_FILES = [("add", ADD), ("remove", REMOVE)]
_OVERVIEW = [
    ("txn", TXN),
    ("metaData", METADATA),
    ("protocol", PROTOCOL),
    ("domainMetadata", DOMAIN),
]
CLASSIC = pa.schema([*_OVERVIEW, *_FILES])
V2_TOP = pa.schema([*_OVERVIEW, *_FILES, ("checkpointMetadata", MARK), ("sidecar", SIDECAR)])
V2_SIDECAR = pa.schema(_FILES)


@dataclass(frozen=True)
class State:
    """A table's state: the actions that each checkpoint contains once, and the file actions."""

    version: int
    overview: Sequence[Action]
    files: Sequence[Action]


def write(log: Path, state: State, kind: str, *, parts: int, uuids: Sequence[str]) -> list[Path]:
    """Write a checkpoint and return its files; kinds as in ``TableBuilder.checkpoint``."""
    if kind == "classic":
        return list(_classic(log, state, parts))
    suffix = {"v2-json": "json", "v2-parquet": "parquet"}[kind]
    sidecars = list(_sidecars(log, state, uuids[1:]))
    top = log / f"{state.version:020}.checkpoint.{uuids[0]}.{suffix}"
    mark = {"checkpointMetadata": {"version": state.version}}
    files = [_sidecar(file) for file in sidecars] if parts else state.files
    actions = [mark, *state.overview, *files]
    if suffix == "json":
        top.write_text("".join(json.dumps(action) + "\n" for action in actions))
    else:
        _write(top, actions, V2_TOP)
    return [*sidecars, top]


def _classic(log: Path, state: State, parts: int) -> Iterator[Path]:
    for part in range(parts):
        numbers = f".{part + 1:010}.{parts:010}" if parts > 1 else ""
        overview = state.overview if part == 0 else []
        file = log / f"{state.version:020}.checkpoint{numbers}.parquet"
        yield _write(file, [*overview, *state.files[part::parts]], CLASSIC)


def _sidecars(log: Path, state: State, uuids: Sequence[str]) -> Iterator[Path]:
    (log / "_sidecars").mkdir(exist_ok=True)
    for part, uuid in enumerate(uuids):
        file = log / "_sidecars" / f"{uuid}.parquet"
        yield _write(file, state.files[part :: len(uuids)], V2_SIDECAR)


def _sidecar(file: Path) -> Action:
    found = file.stat()
    return {
        "sidecar": {
            "path": file.name,
            "sizeInBytes": found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
        }
    }


def _write(file: Path, actions: Sequence[Action], schema: pa.Schema) -> Path:
    pq.write_table(pa.Table.from_pylist(list(actions), schema), file)
    return file
