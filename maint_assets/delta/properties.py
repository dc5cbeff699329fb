"""Table properties with Delta's defaults. Keys are matched in any case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maint_assets.errors import PropertyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

_DAY_MS = 86_400_000
_INT, _LONG = 2**31, 2**63
# What Spark trims around an interval, and what it takes for white space within.
_TRIMMED = "".join(map(chr, range(33)))
_SPACE = r"[\t-\r\x1c-\x20]"

_GROUP = re.compile(
    rf"(?P<sign>[+-]?){_SPACE}*(?P<whole>[0-9]{{0,40}})(?P<point>\.(?P<digits>[0-9]{{0,9}}))?{_SPACE}+"
    rf"(?P<unit>year|month|week|day|hour|minute|second|millisecond|microsecond)s?(?:{_SPACE}+|\Z)"
)

_UNITS = {
    "year": ("months", 12),
    "month": ("months", 1),
    "week": ("days", 7),
    "day": ("days", 1),
    "hour": ("micros", 3_600_000_000),
    "minute": ("micros", 60_000_000),
    "second": ("micros", 1_000_000),
    "millisecond": ("micros", 1_000),
    "microsecond": ("micros", 1),
}
_LIMITS = {"months": _INT, "days": _INT, "micros": _LONG}


def interval_ms(text: str) -> int | None:
    """Parse an interval in Spark's grammar to ms; None if invalid.

    Truncated to whole ms; may be negative. Months and years must cancel out, as in Delta.
    """
    lowered = text.strip(_TRIMMED).lower()
    rest = lowered.removeprefix("interval ").lstrip(_TRIMMED)
    sums = _sums(rest) if rest else None
    if sums is None or sums["months"]:
        return None
    micros = sums["days"] * _DAY_MS * 1000 + sums["micros"]
    if not -_LONG <= micros < _LONG:
        return None
    return micros // 1000 if micros >= 0 else -(-micros // 1000)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties that affect maintenance; unset or null ones have their default.

    Durations in ms. ``iceberg``: UniForm writes Iceberg metadata. None: the writer may choose.
    ``data_skipping_num_indexed_cols`` -1 means all columns.
    """

    deleted_file_retention_ms: int = 7 * _DAY_MS
    log_retention_ms: int = 30 * _DAY_MS
    set_transaction_retention_ms: int | None = None
    enable_expired_log_cleanup: bool = True
    checkpoint_interval: int = 10
    checkpoint_policy: str = "classic"
    checkpoint_stats_as_json: bool = True
    checkpoint_stats_as_struct: bool = True
    in_commit_timestamps: bool = False
    in_commit_timestamp_enablement_version: int | None = None
    in_commit_timestamp_enablement_timestamp_ms: int | None = None
    require_checkpoint_protection_before_version: int = 0
    append_only: bool = False
    change_data_feed: bool = False
    iceberg: bool = False
    universal_format: bool = False
    symlink_manifest: bool = False
    column_mapping_mode: str = "none"
    data_skipping_num_indexed_cols: int = 32
    data_skipping_stats_columns: str | None = None
    data_skipping_string_prefix_length: int | None = None
    randomize_file_prefixes: bool = False
    random_prefix_length: int = 2
    row_tracking: bool = False
    row_tracking_suspended: bool = False
    materialized_row_id_column: str | None = None
    materialized_row_commit_version_column: str | None = None
    write_partition_columns: bool | None = None
    compression_codec: str | None = None
    variant_shredding: bool = False
    deletion_vectors: bool = False

    @classmethod
    def of(cls, configuration: Mapping[str, str | None], *, table: str) -> Self:
        """Parse the table's configuration. An exact key takes precedence over other spellings.

        Raises PropertyError for a value that Delta rejects.
        """
        folded = {key.lower(): value for key, value in configuration.items()}
        values: dict[str, Any] = {}
        for row in _ROWS:
            text = configuration.get(row.key, folded.get(row.key.lower()))
            if text is not None:
                values[row.field] = _value(row, text, table)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _Row:
    """One property: field, key in the log, its format for messages, and its parser."""

    field: str
    key: str
    expected: str
    read: Callable[[str], object]
    """Returns None for text in another format."""


def _value(row: _Row, text: str, table: str) -> object:
    value = row.read(text)
    if value is None:
        raise PropertyError(
            table,
            f"property {row.key} is {text!r}, expected {row.expected}",
            f"ALTER TABLE ... SET TBLPROPERTIES ('{row.key}' = ...)",
        )
    return value


def _sums(text: str) -> dict[str, int] | None:
    """Sum up months, days and microseconds, within Spark's limits for each."""
    sums = dict.fromkeys(_LIMITS, 0)
    at = 0
    while at < len(text):
        match = _GROUP.match(text, at)
        if match is None or not _is_number(match):
            return None
        slot, amount = _amount(match)
        sums[slot] += amount
        if not -_LIMITS[slot] <= sums[slot] < _LIMITS[slot]:
            return None
        at = match.end()
    return sums


def _is_number(group: re.Match[str]) -> bool:
    """Whether a number is valid in Spark: fractions of seconds only; a sign may stand alone."""
    if group["point"] is None:
        return bool(group["whole"]) and int(group["whole"]) < _LONG
    digits = group["whole"] or group["sign"] or group["digits"]
    return group["unit"] == "second" and bool(digits) and int(group["whole"] or 0) < _LONG


def _amount(group: re.Match[str]) -> tuple[str, int]:
    slot, factor = _UNITS[group["unit"]]
    micros = int((group["digits"] or "").ljust(9, "0")[:6])
    amount = int(group["whole"] or 0) * factor + micros
    return slot, -amount if group["sign"] == "-" else amount


def _duration(text: str) -> int | None:
    found = interval_ms(text)
    return None if found is None or found < 0 else found


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _count(text: str) -> int | None:
    """A non-negative integer."""
    return int(text) if re.fullmatch(r"\+?[0-9]{1,19}", text) else None


def _positive(text: str) -> int | None:
    return _count(text) or None


def _index(text: str) -> int | None:
    """An integer of at least -1."""
    found = int(text) if re.fullmatch(r"[+-]?[0-9]{1,10}", text) else _INT
    return found if -1 <= found < _INT else None


def _text(text: str) -> str:
    return text


def _name(text: str) -> str | None:
    return text or None


def _one_of(*names: str) -> Callable[[str], str | None]:
    return lambda text: text.lower() if text.lower() in names else None


def _is_set(text: str) -> bool:
    return bool(text.strip())


def _names_iceberg(text: str) -> bool:
    return "iceberg" in (name.strip().lower() for name in text.split(","))


_FLAG = "true or false"
_DURATION = "a non-negative interval without months or years, such as 'interval 7 days'"
_NUMBER = "a whole number of at least 0"

_ROWS = (
    _Row("deleted_file_retention_ms", "delta.deletedFileRetentionDuration", _DURATION, _duration),
    _Row("log_retention_ms", "delta.logRetentionDuration", _DURATION, _duration),
    _Row(
        "set_transaction_retention_ms",
        "delta.setTransactionRetentionDuration",
        _DURATION,
        _duration,
    ),
    _Row("enable_expired_log_cleanup", "delta.enableExpiredLogCleanup", _FLAG, _flag),
    _Row(
        "checkpoint_interval", "delta.checkpointInterval", "a whole number of at least 1", _positive
    ),
    _Row("checkpoint_policy", "delta.checkpointPolicy", "classic or v2", _one_of("classic", "v2")),
    _Row("checkpoint_stats_as_json", "delta.checkpoint.writeStatsAsJson", _FLAG, _flag),
    _Row("checkpoint_stats_as_struct", "delta.checkpoint.writeStatsAsStruct", _FLAG, _flag),
    _Row("in_commit_timestamps", "delta.enableInCommitTimestamps", _FLAG, _flag),
    _Row(
        "in_commit_timestamp_enablement_version",
        "delta.inCommitTimestampEnablementVersion",
        _NUMBER,
        _count,
    ),
    _Row(
        "in_commit_timestamp_enablement_timestamp_ms",
        "delta.inCommitTimestampEnablementTimestamp",
        _NUMBER,
        _count,
    ),
    _Row(
        "require_checkpoint_protection_before_version",
        "delta.requireCheckpointProtectionBeforeVersion",
        _NUMBER,
        _count,
    ),
    _Row("append_only", "delta.appendOnly", _FLAG, _flag),
    _Row("change_data_feed", "delta.enableChangeDataFeed", _FLAG, _flag),
    _Row("iceberg", "delta.universalFormat.enabledFormats", "names of formats", _names_iceberg),
    _Row("universal_format", "delta.universalFormat.enabledFormats", "names of formats", _is_set),
    _Row("symlink_manifest", "delta.compatibility.symlinkFormatManifest.enabled", _FLAG, _flag),
    _Row(
        "column_mapping_mode",
        "delta.columnMapping.mode",
        "none, id or name",
        _one_of("none", "id", "name"),
    ),
    _Row(
        "data_skipping_num_indexed_cols",
        "delta.dataSkippingNumIndexedCols",
        "a whole number of at least -1",
        _index,
    ),
    _Row("data_skipping_stats_columns", "delta.dataSkippingStatsColumns", "columns", _text),
    _Row(
        "data_skipping_string_prefix_length",
        "delta.dataSkippingStringPrefixLength",
        _NUMBER,
        _count,
    ),
    _Row("randomize_file_prefixes", "delta.randomizeFilePrefixes", _FLAG, _flag),
    _Row(
        "random_prefix_length",
        "delta.randomPrefixLength",
        "a whole number of at least 1",
        _positive,
    ),
    _Row("row_tracking", "delta.enableRowTracking", _FLAG, _flag),
    _Row("row_tracking_suspended", "delta.rowTrackingSuspended", _FLAG, _flag),
    _Row(
        "materialized_row_id_column",
        "delta.rowTracking.materializedRowIdColumnName",
        "the name of a column",
        _name,
    ),
    _Row(
        "materialized_row_commit_version_column",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "the name of a column",
        _name,
    ),
    _Row("write_partition_columns", "delta.writePartitionColumnsToParquet", _FLAG, _flag),
    _Row(
        "compression_codec",
        "delta.parquet.compression.codec",
        "the name of a codec",
        lambda text: _name(text.lower()),
    ),
    _Row("variant_shredding", "delta.enableVariantShredding", _FLAG, _flag),
    _Row("deletion_vectors", "delta.enableDeletionVectors", _FLAG, _flag),
)
