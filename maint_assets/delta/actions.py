"""The actions of the log, decoded from the lines of a commit (PROTOCOL, "Actions").

msgspec structs rather than dataclasses: the decoder skips unknown fields and checks types in C.
Only the fields that maintenance reads; what only a writer must set (``dataChange``) is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from maint_assets.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

Line = TypeVar("Line")

_REMEDY = "restore the file from a backup or a replica; nothing is changed on a broken log"

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A signed 64-bit integer. Strings and fractions are rejected."""


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Common settings of all action structs: camelCase names, immutable."""


class DeletionVector(_Value, frozen=True):
    """Descriptor of a deletion vector: which rows of one data file are deleted. Sizes in bytes."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Long
    cardinality: Long
    offset: Long | None = None

    @property
    def unique_id(self) -> str:
        """The deletion vector's part of the replay key (path, unique id)."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{at}"


class _Statistics(_Value, frozen=True):
    """The fields of a file's statistics that are read."""

    num_records: Long | None = None


class Add(_Value, frozen=True):
    """A live file. ``path`` is as in the log: URI-encoded, relative or absolute."""

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
        """Rows in the file, including deleted ones; None without statistics."""
        try:
            return None if self.stats is None else _STATISTICS.decode(self.stats).num_records
        except msgspec.DecodeError:
            return None

    @property
    def live_records(self) -> int | None:
        """Rows that the deletion vector leaves; None without statistics."""
        rows, vector = self.num_records, self.deletion_vector
        return rows if rows is None or vector is None else rows - vector.cardinality


class Remove(_Value, frozen=True):
    """A tombstone. Delta treats a missing ``deletion_timestamp`` (ms) as 0."""

    path: str
    deletion_timestamp: Long | None = None
    size: Long | None = None
    partition_values: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class Cdc(_Value, frozen=True):
    """A change data file of a commit; not part of the table state."""

    path: str
    size: Long | None = None


class Protocol(_Value, frozen=True):
    """Protocol versions and, from reader 3 / writer 7 on, the table features by name."""

    min_reader_version: Long
    min_writer_version: Long
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(_Value, frozen=True):
    """The format of data files: always ``parquet``."""

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
    """Provenance of a commit. Only ``in_commit_timestamp`` (ms) affects the table.

    Other fields of an unexpected type are read as None.
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
    """Configuration of one metadata domain; ``removed`` deletes the domain."""

    domain: str
    configuration: str | None = None
    removed: bool = False


class Txn(_Value, frozen=True):
    """The last transaction (``setTransaction``) of an application; ``last_updated`` in ms."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class Sidecar(_Value, frozen=True):
    """A sidecar file of a V2 checkpoint. ``path`` is URI-encoded, relative to ``_sidecars``."""

    path: str
    size_in_bytes: Long
    modification_time: Long = 0


class CheckpointMetadata(_Value, frozen=True):
    """Marks a checkpoint as V2."""

    version: Long


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log. The field that is not None holds the action; all None if unknown.

    ``checkpoint`` (preview of adaptive metadata) is only checked for presence.
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
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_STATISTICS = msgspec.json.Decoder(_Statistics)
_KEYED = msgspec.json.Decoder(dict[str, Any])
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ACTION = re.compile(rb'\s*\{\s*"[^"]+"\s*:\s*\{\s*"')
_ADD = re.compile(rb'\s*\{\s*"add"\s*:\s*\{')


def parse_action(line: bytes, *, table: str, file: str) -> Action:
    """Decode one line. Raises CorruptLogError; an invalid line is never skipped."""
    return decoded_line(line, _LINE, table=table, file=file)


def decoded_line(
    line: bytes, decoder: msgspec.json.Decoder[Line], *, table: str, file: str
) -> Line:
    """Decode one line with a given decoder. Raises CorruptLogError.

    Lines that only delta-spark accepts are read as it reads them: ``commitInfo`` fields of an
    unexpected type are dropped, null fields of an add are absent, and ``stats`` that is not a
    string is kept as its JSON text.
    """
    try:
        return decoder.decode(line)
    except _UNDECODABLE as error:
        try:
            return msgspec.convert(_mended(line), decoder.type)
        except _UNDECODABLE:
            raise CorruptLogError(table, f"{file} has an invalid line: {error}", _REMEDY) from error


def holds_action(line: bytes) -> bool:
    """Whether a line holds any action, known or not; True also if it is not a JSON object."""
    if _ACTION.match(line):
        return True
    try:
        return any(bytes(value) != b"null" for value in _RAW.decode(line).values())
    except _UNDECODABLE:
        return True  # the parser raises CorruptLogError with the details


def may_hold(line: bytes, *names: bytes) -> bool:
    """Cheap test before parsing: False only if the line holds none of the named actions.

    Keys may be written with ``\\u`` escapes, so such lines always pass.
    """
    return b"\\u" in line or any(b'"' + name + b'"' in line for name in names)


def is_only_add(line: bytes) -> bool:
    """Cheap test before parsing: True only if the line certainly holds just an add."""
    # Written out instead of calling may_hold: this runs for every line of old commits.
    is_other = b'"remove"' in line or b'"cdc"' in line or b"\\u" in line
    return not is_other and _ADD.match(line) is not None


def actions(content: bytes, *, table: str, file: str) -> Iterator[Action]:
    """Decode the actions of a whole commit, in order, skipping blank lines."""
    for line in content.split(b"\n"):
        if stripped := line.strip():
            yield parse_action(stripped, table=table, file=file)


def _mended(line: bytes) -> dict[str, Any]:
    """Parse a line, dropping or converting the fields that delta-spark reads leniently."""
    found = _KEYED.decode(line)
    if (provenance := found.get("commitInfo")) is not None:
        fields = msgspec.convert(provenance, dict[str, Any]).items()
        found["commitInfo"] = {key: value for key, value in fields if _fits(key, value)}
    if (add := found.get("add")) is not None:
        fields = msgspec.convert(add, dict[str, Any]).items()
        found["add"] = {key: value for key, value in fields if value is not None}
        if not isinstance(found["add"].get("stats", ""), str):
            raw = _RAW.decode(_RAW.decode(line)["add"])["stats"]
            found["add"]["stats"] = bytes(raw).decode()
    return found


def _fits(key: str, value: object) -> bool:
    if key == "inCommitTimestamp":
        return True
    try:
        msgspec.convert({key: value}, CommitInfo)
    except msgspec.ValidationError:
        return False
    return True
