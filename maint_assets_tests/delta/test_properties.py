"""Properties: Spark's intervals, Delta's defaults, errors that name the value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.properties import TableProperties, interval_ms
from maint_assets.errors import PropertyError

DAY = 86_400_000
UNITS_MS = {"week": 7 * DAY, "day": DAY, "hour": 3_600_000, "minute": 60_000, "second": 1_000}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("interval 1 week", 7 * DAY),
        ("1 DAY", DAY),
        (" interval  7   days", 7 * DAY),
        ("1\tday\n2 hours", DAY + 7_200_000),
        ("0 days", 0),
        ("-3 days", -3 * DAY),
        ("- 3 days", -3 * DAY),
        ("3 days -1 hour", 3 * DAY - 3_600_000),
        ("+5 minutes", 300_000),
        ("1.5 seconds", 1500),
        (".5 second", 500),
        ("-.5 second", -500),
        ("5. seconds", 5000),
        ("1.123456789 seconds", 1123),
        ("1999 microseconds", 1),
        ("-1999 microseconds", -1),
        ("1 year -12 months 1 day", DAY),
    ],
)
def test_interval_of_spark_is_read(text: str, ms: int) -> None:
    assert interval_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "interval",
        "interval 10",
        "interval7 days",
        "interval interval 7 days",
        "1 month",
        "1 year",
        "1.5 days",
        "5. days",
        ". second",
        "1.1234567890 seconds",
        "1 nanosecond",
        "'1' day",
        "1 day2 hours",
        "1 dayss",
        "1 day,",
        "7 d",
        "7days",
        "seven days",
        "-second",
        "- - 1 day",
        "999999999 weeks",
        "200000000 days",
        "9223372036854775808 microseconds",
        "9" * 5000 + " days",
        "\u0667 days",
    ],
)
def test_interval_that_spark_or_delta_refuses_is_none(text: str) -> None:
    assert interval_ms(text) is None


@given(
    prefix=st.sampled_from(["", "interval ", " INTERVAL  "]),
    groups=st.lists(
        st.tuples(st.integers(-999, 999), st.sampled_from([*UNITS_MS]), st.sampled_from(["", "s"])),
        min_size=1,
    ),
)
def test_interval_sums_its_groups(prefix: str, groups: list[tuple[int, str, str]]) -> None:
    text = prefix + " ".join(f"{number} {unit}{plural}" for number, unit, plural in groups)

    assert interval_ms(text) == sum(number * UNITS_MS[unit] for number, unit, _ in groups)


@given(st.text())
def test_interval_takes_any_text(text: str) -> None:
    assert interval_ms(text) is None or any(char.isdigit() or char == "." for char in text)


def test_properties_that_are_unset_or_null_have_delta_s_defaults() -> None:
    found = TableProperties.of({"delta.logRetentionDuration": None, "foreign": "x"}, table="t")

    assert found == TableProperties()
    assert (found.deleted_file_retention_ms, found.log_retention_ms) == (7 * DAY, 30 * DAY)
    assert (found.enable_expired_log_cleanup, found.checkpoint_interval) == (True, 10)
    assert (found.data_skipping_num_indexed_cols, found.random_prefix_length) == (32, 2)
    assert found.write_partition_columns is None


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("delta.deletedFileRetentionDuration", "interval 0 days", "deleted_file_retention_ms", 0),
        ("DELTA.LOGRETENTIONDURATION", "2 days", "log_retention_ms", 2 * DAY),
        ("delta.enableExpiredLogCleanup", "FALSE", "enable_expired_log_cleanup", False),
        ("delta.checkpointInterval", "3", "checkpoint_interval", 3),
        ("delta.checkpointPolicy", "v2", "checkpoint_policy", "v2"),
        ("delta.checkpoint.writeStatsAsJson", "false", "checkpoint_stats_as_json", False),
        ("delta.checkpoint.writeStatsAsStruct", "false", "checkpoint_stats_as_struct", False),
        ("delta.enableInCommitTimestamps", "true", "in_commit_timestamps", True),
        (
            "delta.inCommitTimestampEnablementVersion",
            "0",
            "in_commit_timestamp_enablement_version",
            0,
        ),
        ("delta.appendOnly", "true", "append_only", True),
        ("delta.enableChangeDataFeed", "true", "change_data_feed", True),
        ("delta.universalFormat.enabledFormats", "hudi, iceberg", "iceberg", True),
        ("delta.universalFormat.enabledFormats", "hudi", "iceberg", False),
        ("delta.columnMapping.mode", "Name", "column_mapping_mode", "name"),
        ("delta.dataSkippingNumIndexedCols", "-1", "data_skipping_num_indexed_cols", -1),
        ("delta.dataSkippingNumIndexedCols", "+3", "data_skipping_num_indexed_cols", 3),
        ("delta.dataSkippingStatsColumns", "", "data_skipping_stats_columns", ""),
        ("delta.dataSkippingStatsColumns", "A, `b`", "data_skipping_stats_columns", "A, `b`"),
        ("delta.dataSkippingStringPrefixLength", "0", "data_skipping_string_prefix_length", 0),
        ("delta.randomizeFilePrefixes", "true", "randomize_file_prefixes", True),
        ("delta.randomPrefixLength", "4", "random_prefix_length", 4),
        ("delta.enableRowTracking", "true", "row_tracking", True),
        ("delta.rowTrackingSuspended", "true", "row_tracking_suspended", True),
        (
            "delta.rowTracking.materializedRowIdColumnName",
            "_row-id-X",
            "materialized_row_id_column",
            "_row-id-X",
        ),
        (
            "delta.rowTracking.materializedRowCommitVersionColumnName",
            "_row-commit-version-X",
            "materialized_row_commit_version_column",
            "_row-commit-version-X",
        ),
        ("delta.writePartitionColumnsToParquet", "false", "write_partition_columns", False),
        ("delta.parquet.compression.codec", "ZSTD", "compression_codec", "zstd"),
        ("delta.enableVariantShredding", "true", "variant_shredding", True),
        ("delta.enableDeletionVectors", "true", "deletion_vectors", True),
    ],
)
def test_properties_hold_the_stored_value(
    key: str, text: str, *, field: str, value: object
) -> None:
    assert getattr(TableProperties.of({key: text}, table="t"), field) == value


def test_properties_prefer_the_exact_key() -> None:
    stored = {"delta.appendOnly": "true", "DELTA.APPENDONLY": "false"}

    assert TableProperties.of(stored, table="t").append_only


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("delta.logRetentionDuration", "1 month"),
        ("delta.deletedFileRetentionDuration", "-1 days"),
        ("delta.enableExpiredLogCleanup", "yes"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "1.0"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.inCommitTimestampEnablementVersion", "-1"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.dataSkippingNumIndexedCols", "2147483648"),
        ("delta.dataSkippingStringPrefixLength", "-1"),
        ("delta.randomPrefixLength", "0"),
        ("delta.rowTracking.materializedRowIdColumnName", ""),
        ("delta.writePartitionColumnsToParquet", "yes"),
    ],
)
def test_properties_that_are_invalid_are_an_error_with_the_value(key: str, text: str) -> None:
    with pytest.raises(PropertyError, match=f"{key} is '{text}', expected .*; ALTER TABLE"):
        TableProperties.of({key: text}, table="t")
