"""Names: the file names of the log, the rule for hidden paths, the kinds of files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.names import (
    LogFile,
    LogFileKind,
    checksum_name,
    commit_name,
    is_hidden,
    is_hidden_path,
)

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
V = f"{7:020d}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{V}.json", LogFile(7, LogFileKind.COMMIT, f"{V}.json")),
        ("7.json", LogFile(7, LogFileKind.COMMIT, "7.json")),
        (f"{V}.crc", LogFile(7, LogFileKind.CHECKSUM, f"{V}.crc")),
        (
            f"{V}.checkpoint.parquet",
            LogFile(7, LogFileKind.CHECKPOINT, f"{V}.checkpoint.parquet"),
        ),
        (
            f"{V}.checkpoint.0000000002.0000000003.parquet",
            LogFile(
                7,
                LogFileKind.CHECKPOINT_PART,
                f"{V}.checkpoint.0000000002.0000000003.parquet",
                part=2,
                parts=3,
            ),
        ),
        (
            f"{V}.checkpoint.{UUID}.json",
            LogFile(7, LogFileKind.CHECKPOINT_V2, f"{V}.checkpoint.{UUID}.json"),
        ),
        (
            f"{V}.checkpoint.{UUID}.parquet",
            LogFile(7, LogFileKind.CHECKPOINT_V2, f"{V}.checkpoint.{UUID}.parquet"),
        ),
        (
            f"{V}.{9:020d}.compacted.json",
            LogFile(7, LogFileKind.COMPACTION, f"{V}.{9:020d}.compacted.json", end_version=9),
        ),
    ],
)
def test_log_file_of_each_kind_is_parsed(name: str, expected: LogFile) -> None:
    assert LogFile.parse(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_last_checkpoint",
        "_last_vacuum_info",
        "_commit_x.json.tmp",
        f".{V}.json.{UUID}.tmp",
        f".{V}.json.crc",
        f"{V}.{UUID}.json",
        f"_delta_log/{V}.json",
        f"{V}.checkpoint.a/b.parquet",
        f"{V}.checkpoint.a.b.parquet",
        f"{V}.checkpoint.json",
        f"{V}.json\n",
        f"{V}.{V}.compacted.json",
        f"{2**63}.json",
        "\u0661.json",
    ],
)
def test_log_file_of_another_name_is_none(name: str) -> None:
    assert LogFile.parse(name) is None


@given(st.text() | st.from_regex(r"\d+\.(checkpoint\.)?[\w.-]*(json|parquet|crc)", fullmatch=True))
def test_log_file_parse_takes_any_text(name: str) -> None:
    assert (found := LogFile.parse(name)) is None or found.name == name


@given(st.integers(0, 2**63 - 1))
def test_log_file_of_a_made_name_has_its_version(version: int) -> None:
    parsed = [LogFile.parse(name) for name in (commit_name(version), checksum_name(version))]

    assert [(f.version, f.kind) for f in parsed if f] == [
        (version, LogFileKind.COMMIT),
        (version, LogFileKind.CHECKSUM),
    ]


def test_format_rank_prefers_v2_over_parts_over_single() -> None:
    names = (
        f"{V}.checkpoint.{UUID}.json",
        f"{V}.json",
        f"{V}.checkpoint.1.2.parquet",
        f"{V}.checkpoint.parquet",
    )

    assert [f.format_rank for name in names if (f := LogFile.parse(name))] == [2, -1, 1, 0]


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("_delta_log", True),
        ("_spark_metadata", True),
        (".hoodie", True),
        (".part-0.parquet.crc", True),
        ("_change_data", False),
        ("_change_data2", False),
        ("_delta_index", False),
        ("_delta_index_x", False),
        ("_part=1", False),
        ("_part", True),
        ("_parts=1", True),
        ("metadata", False),
        ("part-0.parquet", False),
        ("p=_x", False),
    ],
)
def test_hidden_name_without_iceberg(name: str, *, hidden: bool) -> None:
    assert is_hidden(name, ["_part", "p"], iceberg=False) is hidden


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("metadata/v1.json", True),
        ("x/metadata/z.json", True),
        ("metadata2/z.json", False),
        ("a/_hid/x", True),
        ("a/_delta_log/0.json", True),
        ("sub/.x", True),
        ("a/b", False),
    ],
)
def test_hidden_path_has_a_hidden_component(path: str, *, hidden: bool) -> None:
    assert is_hidden_path(path, [], iceberg=True) is hidden


def test_hidden_path_keeps_change_data() -> None:
    assert not is_hidden_path("_change_data/p=1/cdc-0.parquet", ["p"], iceberg=False)
