"""The actions of the log, as far as maintenance reads them, from lines of a commit.

They are msgspec structs, not dataclasses: the decoder skips unknown fields and checks types in C.
They are made for reading: what the protocol demands of a writer (``dataChange``) is not in them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from maint_assets.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMEDY = "restore the file from a backup or a replica; nothing is changed on a broken log"

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number as the log's writers hold it: 64 bits, never a text or a fraction."""


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The ways of all action structs."""


class DeletionVector(_Value, frozen=True):
    """The descriptor of the rows of one data file that are gone; sizes in bytes."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Long
    cardinality: Long
    offset: Long | None = None

    @property
    def unique_id(self) -> str:
        """The part of the replay key beside the path: equal for the same vector only."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{at}"


class _Statistics(_Value, frozen=True):
    """What is read of the statistics of a file."""

    num_records: Long | None = None


class Add(_Value, frozen=True):
    """A live file; ``path`` is as in the log: URI-encoded, relative or absolute."""

    path: str
    size: Long
    partition_values: dict[str, str | None] = {}
    modification_time: Long = 0
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    @property
    def num_records(self) -> int | None:
        """The rows in the file, deleted ones included; None where its statistics do not say."""
        try:
            return None if self.stats is None else _STATISTICS.decode(self.stats).num_records
        except msgspec.DecodeError:
            return None

    @property
    def live_records(self) -> int | None:
        """The rows that its deletion vector leaves; None where the statistics do not say."""
        rows, vector = self.num_records, self.deletion_vector
        return rows if rows is None or vector is None else rows - vector.cardinality


class Remove(_Value, frozen=True):
    """A tombstone; a missing ``deletion_timestamp`` (ms) counts as 0 in Delta."""

    path: str
    deletion_timestamp: Long | None = None
    size: Long | None = None
    partition_values: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class Cdc(_Value, frozen=True):
    """A change data file of the commit; never part of the state."""

    path: str
    size: Long | None = None


class Protocol(_Value, frozen=True):
    """The versions and, from reader 3 and writer 7 on, the named features of the table."""

    min_reader_version: Long
    min_writer_version: Long
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(_Value, frozen=True):
    """The encoding of the data files: always ``parquet`` in Delta."""

    provider: str = "parquet"
    options: dict[str, str | None] | None = None


class Metadata(_Value, frozen=True):
    """The table's id, schema (JSON text), partition columns (logical names) and properties."""

    id: str
    schema_string: str | None = None
    partition_columns: list[str] = []
    configuration: dict[str, str | None] = {}
    created_time: Long | None = None
    name: str | None = None
    description: str | None = None
    format: Format | None = None


class CommitInfo(_Value, frozen=True):
    """The provenance of a commit; only ``in_commit_timestamp`` (ms) carries meaning.

    Any other field of a type that Delta does not write is read as None.
    """

    timestamp: Long | None = None
    in_commit_timestamp: Long | None = None
    operation: str | None = None
    operation_parameters: dict[str, Any] | None = None
    txn_id: str | None = None
    engine_info: str | None = None
    read_version: Long | None = None
    is_blind_append: bool | None = None


class DomainMetadata(_Value, frozen=True):
    """The configuration of one domain; ``removed`` deletes the domain."""

    domain: str
    configuration: str | None = None
    removed: bool = False


class Txn(_Value, frozen=True):
    """The last transaction of a streaming application; ``last_updated`` in ms."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class Sidecar(_Value, frozen=True):
    """A file of ``_sidecars`` that a V2 checkpoint uses; ``path`` is URI-encoded."""

    path: str
    size_in_bytes: Long
    modification_time: Long = 0


class CheckpointMetadata(_Value, frozen=True):
    """The mark of a V2 checkpoint."""

    version: Long


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log: the field that is not None is its action, none for an unknown one.

    ``checkpoint`` (the preview of adaptive metadata) is only told from its absence.
    """

    add: Add | None = None
    remove: Remove | None = None
    cdc: Cdc | None = None
    protocol: Protocol | None = None
    metaData: Metadata | None = None  # noqa: N815  (the log's own keys)
    commitInfo: CommitInfo | None = None  # noqa: N815
    domainMetadata: DomainMetadata | None = None  # noqa: N815
    txn: Txn | None = None
    sidecar: Sidecar | None = None
    checkpointMetadata: CheckpointMetadata | None = None  # noqa: N815
    checkpoint: Any = None


_LINE = msgspec.json.Decoder(Action)
_STATISTICS = msgspec.json.Decoder(_Statistics)
_KEYED = msgspec.json.Decoder(dict[str, Any])
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ACTION = re.compile(rb'\s*\{\s*"[^"]+"\s*:\s*\{\s*"')
_ADD = re.compile(rb'\s*\{\s*"add"\s*:\s*\{')


def parse_action(line: bytes, *, table: str, file: str) -> Action:
    """The action of one line; a line that is not one is an error, never skipped."""
    try:
        return _LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            return _without_odd_provenance(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise CorruptLogError(table, f"{file} has an invalid line: {error}", _REMEDY) from error


def holds_action(line: bytes) -> bool:
    """Whether a line holds an action, known or not; True for one that is no JSON object."""
    if _ACTION.match(line):
        return True
    try:
        return any(bytes(value) != b"null" for value in _RAW.decode(line).values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True  # whoever parses it says what is wrong with it


def may_hold(line: bytes, *names: bytes) -> bool:
    """Whether a line may hold one of some actions: a look that costs less than parsing it.

    JSON may write any character of a key as an escape.
    """
    return b"\\u" in line or any(b'"' + name + b'"' in line for name in names)


def is_only_add(line: bytes) -> bool:
    """Whether a line surely holds an add and nothing else."""
    # Spelled out: a log has many such lines.
    is_other = b'"remove"' in line or b'"cdc"' in line or b"\\u" in line
    return not is_other and _ADD.match(line) is not None


def actions(content: bytes, *, table: str, file: str) -> Iterator[Action]:
    """The actions of a whole commit, in its order; blank lines are none."""
    for line in content.split(b"\n"):
        if stripped := line.strip():
            yield parse_action(stripped, table=table, file=file)


def _without_odd_provenance(line: bytes) -> Action:
    """The action whose ``commitInfo`` has lost the fields of other types, but for the ICT."""
    found = _KEYED.decode(line)
    provenance = msgspec.convert(found.get("commitInfo") or {}, dict[str, Any])
    fitting = {key: value for key, value in provenance.items() if _fits(key, value)}
    return msgspec.convert({**found, "commitInfo": fitting}, Action)


def _fits(key: str, value: object) -> bool:
    if key == "inCommitTimestamp":
        return True
    try:
        msgspec.convert({key: value}, CommitInfo)
    except msgspec.ValidationError:
        return False
    return True
