"""Parse file names: files of ``_delta_log``, names hidden from VACUUM, Hadoop checksums."""

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
    """Kinds of versioned files directly below ``_delta_log``."""

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
"""The suffix of the checksum files that Hadoop's local file system keeps."""

_HADOOP_CHECKSUM = re.compile(r"\.(?P<name>[^/]+)\.crc")

_DIGITS = 20

_PLAIN = {
    "json": LogFileKind.COMMIT,
    "crc": LogFileKind.CHECKSUM,
    "checkpoint.parquet": LogFileKind.CHECKPOINT,
}
"""Suffixes of most log files: a fast path before the regular expressions."""

_FORMAT_RANKS = {
    LogFileKind.CHECKPOINT: 0,
    LogFileKind.CHECKPOINT_PART: 1,
    LogFileKind.CHECKPOINT_V2: 2,
}


class LogFile(msgspec.Struct, frozen=True):
    """A file of ``_delta_log``, parsed from its name.

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
        """Parse a file name; None if the protocol does not define it."""
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
        """Precedence among checkpoints of one version, higher wins; -1 for other kinds."""
        return _FORMAT_RANKS.get(self.kind, -1)


@dataclass(frozen=True, slots=True)
class Exemption:
    """A prefix of names that stay visible to VACUUM although they start with ``_``."""

    prefix: str
    reason: str


EXEMPTIONS = (
    Exemption("_change_data", "change data files are removed by age"),
    Exemption("_delta_index", "bloom filter indexes are removed by age"),
)


def is_log_name(name: str) -> bool:
    """Whether a file has the name of a Delta log file, wherever it lies.

    A log may contain a link to it.
    """
    return name[:_DIGITS].isdigit() and LogFile.parse(name) is not None


def commit_name(version: int) -> str:
    """File name of the published commit of ``version``."""
    return f"{version:020d}.json"


def checksum_name(version: int) -> str:
    """File name of the version checksum of ``version``."""
    return f"{version:020d}.crc"


def staged_version(name: str) -> int | None:
    """The version of a staged commit by its file name; None if it is not one."""
    match = _STAGED.fullmatch(name)
    return int(match["version"]) if match and int(match["version"]) <= _MAX_VERSION else None


def is_temporary(name: str) -> bool:
    """Whether the name is that of a temporary file, which a writer renames when complete."""
    return _TEMPORARY.fullmatch(name) is not None


def hadoop_checksum(path: str) -> str:
    """Path of the ``.crc`` file that Hadoop's local file system keeps for a file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"


def checked_name(name: str) -> str | None:
    """The name of the file that a Hadoop ``.crc`` file belongs to; None if it is not one."""
    match = _HADOOP_CHECKSUM.fullmatch(name)
    return match["name"] if match else None


def checked_path(path: str) -> str | None:
    """The path of the file that a Hadoop ``.crc`` file belongs to; None if it is not one."""
    directory, slash, name = path.rpartition("/")
    checked = checked_name(name)
    return None if checked is None else f"{directory}{slash}{checked}"


def is_hidden(name: str, partition_columns: Collection[str], *, iceberg: bool) -> bool:
    """Whether VACUUM ignores files and directories of this name, at any depth.

    ``name`` is one path component. ``partition_columns`` are the current logical names. With
    ``iceberg`` (UniForm writes Iceberg metadata), exactly ``metadata`` is hidden too.
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
    """Whether versions fit 64 bits and a log compaction spans at least two versions."""
    end = numbers.get("end_version", numbers["version"] + 1)
    return numbers["version"] < end and max(numbers.values()) <= _MAX_VERSION
