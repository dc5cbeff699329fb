"""Which names mean what: files of ``_delta_log``, hidden names, and files that are not data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Self

_MAX_VERSION = 2**63 - 1


class LogFileKind(Enum):
    """The kinds of versioned files directly below ``_delta_log``."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_PART = "checkpoint part"
    CHECKPOINT_V2 = "v2 checkpoint"
    COMPACTION = "compaction"


_GRAMMAR: tuple[tuple[LogFileKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(r"(?P<version>[0-9]+)\." + rest))
    for kind, rest in (
        (LogFileKind.COMMIT, r"json"),
        (LogFileKind.CHECKSUM, r"crc"),
        (LogFileKind.CHECKPOINT, r"checkpoint\.parquet"),
        (
            LogFileKind.CHECKPOINT_PART,
            r"checkpoint\.(?P<part>[0-9]+)\.(?P<parts>[0-9]+)\.parquet",
        ),
        (LogFileKind.CHECKPOINT_V2, r"checkpoint\.[^./]+\.(?:json|parquet)"),
        (LogFileKind.COMPACTION, r"(?P<end_version>[0-9]+)\.compacted\.json"),
    )
)

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_STAGED = re.compile(r"(?P<version>[0-9]+)\.[^./]+\.json")
_TEMPORARY = re.compile(rf"\.[^/]+\.{_UUID}\.tmp|_commit_{_UUID}\.json\.tmp")
CHECKSUM_END = ".crc"
"""How names of checksums end that Hadoop's local file system keeps."""

_HADOOP_CHECKSUM = re.compile(r"\.(?P<name>[^/]+)\.crc")

_DIGITS = 20

_PLAIN = {
    "json": LogFileKind.COMMIT,
    "crc": LogFileKind.CHECKSUM,
    "checkpoint.parquet": LogFileKind.CHECKPOINT,
}
"""What most names are, for a look that costs little: they are in the grammar too."""

_FORMAT_RANKS = {
    LogFileKind.CHECKPOINT: 0,
    LogFileKind.CHECKPOINT_PART: 1,
    LogFileKind.CHECKPOINT_V2: 2,
}


class LogFile(msgspec.Struct, frozen=True):
    """One file of ``_delta_log`` whose name says what it is.

    A msgspec struct as the actions are: a log has many.

    ``part`` (from 1) and ``parts`` are set for checkpoint parts, ``end_version`` for compactions.
    """

    version: int
    kind: LogFileKind
    name: str
    part: int = 0
    parts: int = 0
    end_version: int = 0

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The log file of that bare name, or None for a name the protocol does not define."""
        digits, _, rest = name.partition(".")
        plain = _PLAIN.get(rest)
        if plain is not None and digits.isascii() and digits.isdigit():
            version = int(digits)
            return cls(version, plain, name) if version <= _MAX_VERSION else None
        for kind, pattern in _GRAMMAR:
            if match := pattern.fullmatch(name):
                numbers = {key: int(digits) for key, digits in match.groupdict().items()}
                return cls(kind=kind, name=name, **numbers) if _sound(numbers) else None
        return None

    @property
    def format_rank(self) -> int:
        """The preference among checkpoints of one version, higher wins; -1 for other files."""
        return _FORMAT_RANKS.get(self.kind, -1)


@dataclass(frozen=True, slots=True)
class Exemption:
    """A prefix that keeps a name visible although it starts with ``_``."""

    prefix: str
    reason: str


EXEMPTIONS = (
    Exemption("_change_data", "change data files are removed by age"),
    Exemption("_delta_index", "bloom filter indexes are removed by age"),
)


def is_log_name(name: str) -> bool:
    """Whether a file of this name, wherever it lies, may be one of a Delta log.

    A link may lead from a log to it.
    """
    return name[:_DIGITS].isdigit() and LogFile.parse(name) is not None


def commit_name(version: int) -> str:
    """The bare name of the published commit of ``version``."""
    return f"{version:020d}.json"


def checksum_name(version: int) -> str:
    """The bare name of the version checksum of ``version``."""
    return f"{version:020d}.crc"


def staged_version(name: str) -> int | None:
    """The version of a file of ``_staged_commits``; None for a name that no catalog gives."""
    match = _STAGED.fullmatch(name)
    return int(match["version"]) if match and int(match["version"]) <= _MAX_VERSION else None


def is_temporary(name: str) -> bool:
    """Whether a file of the log is one that a writer gives another name when it is whole."""
    return _TEMPORARY.fullmatch(name) is not None


def hadoop_checksum(path: str) -> str:
    """The path at which Hadoop's local file system keeps the checksum of a file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"


def checked_name(name: str) -> str | None:
    """The name of the file of which Hadoop keeps a checksum in one of this name, if it does."""
    match = _HADOOP_CHECKSUM.fullmatch(name)
    return match["name"] if match else None


def checked_path(path: str) -> str | None:
    """The path of the file of which Hadoop keeps a checksum at this path, if it does."""
    directory, slash, name = path.rpartition("/")
    checked = checked_name(name)
    return None if checked is None else f"{directory}{slash}{checked}"


def is_hidden(name: str, partition_columns: Collection[str], *, iceberg: bool) -> bool:
    """Whether VACUUM never looks at a file or directory of this name, at any depth.

    ``name`` is one path component; ``iceberg`` says that UniForm writes Iceberg metadata, which
    makes exactly ``metadata`` hidden. Partition columns are the current logical names.
    """
    if iceberg and name == "metadata":
        return True
    if not name.startswith((".", "_")):
        return False
    visible = (*(row.prefix for row in EXEMPTIONS), *(f"{c}=" for c in partition_columns))
    return not name.startswith(visible)


def is_hidden_path(path: str, partition_columns: Collection[str], *, iceberg: bool) -> bool:
    """Whether any component of a relative path is hidden."""
    return any(is_hidden(name, partition_columns, iceberg=iceberg) for name in path.split("/"))


def _sound(numbers: dict[str, int]) -> bool:
    """Versions fit a long, and a compaction spans at least two of them."""
    end = numbers.get("end_version", numbers["version"] + 1)
    return numbers["version"] < end and max(numbers.values()) <= _MAX_VERSION
