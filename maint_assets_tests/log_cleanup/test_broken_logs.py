"""Damaged, odd or hostile logs: no file that readers still use is deleted, errors are sentences.

Versions up to 13 have expired, as in test_expired_logs.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from maint_assets.assets.numbers import human_time
from maint_assets.delta.properties import TableProperties
from maint_assets.errors import CorruptLogError, StalePlanError
from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets.log_cleanup.plan import DAY_MS, ready_head
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log_units import commit_units
from maint_assets.storage.location import Location
from maint_assets_tests.log_cleanup.logs import (
    NOW_MS,
    daily_log,
    locations_of,
    plan_of,
    planned,
    planned_rows,
    sidecar_log,
    single,
)
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import Edit, edit_rows, rewrite
from maint_assets_tests.support.log_builder import LogBuilder

UUID = "01234567-89ab-cdef-0123-456789abcdef"


def _forget(action: str, field: str) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        if row[action]:
            row[action][field] = None

    return edit


@pytest.mark.parametrize(
    "edit",
    [_forget("metaData", "id"), _forget("protocol", "minReaderVersion"), _forget("add", "path"),
     _forget("add", "size")],
    ids=["metadata without id", "protocol without version", "add without path", "without size"],
)  # fmt: skip
def test_a_checkpoint_that_nobody_can_load_is_no_anchor(tmp_path: Path, edit: Edit):
    builder = daily_log(tmp_path, checkpoints=(5, 10), checksums=False)
    edit_rows(builder.log / single(10), edit)

    found = planned(tmp_path)[1]

    assert (found.anchor_version, len(found.rejected)) == (5, 1)


def _retyped(column: str, field: str, kind: pa.DataType | None) -> Callable[[pa.Table], pa.Table]:
    """Cast a field of a column, drop it for None, or make it null for the null type."""

    def of(table: pa.Table) -> pa.Table:
        found = table[column].combine_chunks()
        values: dict[str, Any] = {
            each.name: pc.struct_field(found, each.name) for each in found.type
        }
        if kind is None:
            del values[field]
        elif kind == pa.null():
            values[field] = pa.nulls(len(found), values[field].type)
        elif kind in {pa.string(), pa.struct([("x", pa.string())])}:
            values[field] = pa.nulls(len(found), kind)
        else:
            values[field] = pc.cast(values[field], kind)
        names = [*values]
        made = pa.StructArray.from_arrays([*values.values()], names=names, mask=found.is_null())
        return table.set_column(table.schema.get_field_index(column), column, made)

    return of


_X = pa.struct([("x", pa.string())])
_UNLOADABLE = [
    ("protocol", "minReaderVersion", pa.int64()), ("protocol", "minWriterVersion", pa.int64()),
    ("add", "size", pa.float64()), ("add", "size", pa.decimal128(19, 0)),
    ("add", "size", pa.uint64()), ("add", "modificationTime", None),
    ("add", "modificationTime", pa.null()), ("add", "dataChange", None),
    ("add", "dataChange", pa.null()), ("add", "partitionValues", pa.string()),
    ("add", "partitionValues", _X), ("add", "stats", _X), ("add", "tags", pa.string()),
    ("metaData", "configuration", None), ("metaData", "configuration", pa.null()),
    ("metaData", "partitionColumns", None), ("metaData", "partitionColumns", pa.null()),
    ("metaData", "format", None), ("metaData", "format", pa.null()),
]  # fmt: skip
_LOADABLE = [
    ("add", "size", pa.int32()), ("add", "modificationTime", pa.timestamp("ms")),
    ("add", "path", pa.binary()), ("add", "stats", pa.binary()),
    ("protocol", "minReaderVersion", pa.int32()),
]  # fmt: skip


def _rewritten(file: Path, of: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    at = file.stat()
    pq.write_table(of(pq.read_table(file)), file, **options)
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))


@pytest.mark.parametrize(("column", "field", "kind"), _UNLOADABLE)
def test_a_checkpoint_of_types_that_spark_cannot_load_is_no_anchor(
    tmp_path: Path, column: str, field: str, kind: pa.DataType | None
):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    _rewritten(builder.log / single(10), _retyped(column, field, kind))

    found = planned(tmp_path)[1]

    assert (found.anchor_version, len(found.rejected)) == (5, 1)
    assert f"{column}.{field}" in found.rejected[0]


@pytest.mark.parametrize(("column", "field", "kind"), _LOADABLE)
def test_a_checkpoint_of_other_types_that_spark_loads_is_an_anchor(
    tmp_path: Path, column: str, field: str, kind: pa.DataType
):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    _rewritten(builder.log / single(10), _retyped(column, field, kind))

    assert planned(tmp_path)[1].anchor_version == 10


def test_a_column_of_nulls_for_applications_is_no_anchor(tmp_path: Path):
    def of(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("txn")
        return table.set_column(at, "txn", pa.nulls(table.num_rows))

    builder = daily_log(tmp_path, checkpoints=(5, 10))
    _rewritten(builder.log / single(10), of)

    assert planned(tmp_path)[1].anchor_version == 5


@pytest.mark.parametrize(
    ("codec", "anchor"),
    [("none", 10), ("snappy", 10), ("gzip", 10), ("lz4", 10), ("zstd", 10), ("brotli", 5)],
)
def test_an_anchor_has_a_codec_that_spark_reads(tmp_path: Path, codec: str, anchor: int):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    _rewritten(builder.log / single(10), lambda table: table, compression=codec)

    assert planned(tmp_path)[1].anchor_version == anchor


@pytest.mark.parametrize("kind", ["v2-json", "v2-parquet"])
def test_a_v2_checkpoint_of_a_table_without_the_feature_is_no_anchor(tmp_path: Path, kind: str):
    at = {10: lambda table: table.checkpoint(kind, parts=1)}
    daily_log(tmp_path, checkpoints=(5,), at=at)

    found = planned(tmp_path)[1]

    assert found.anchor_version == 5
    assert "without the feature v2Checkpoint" in found.rejected[0]


@pytest.mark.parametrize("column", ["add.stats", "add.modificationTime", "metaData.schemaString"])
def test_a_checkpoint_with_a_broken_page_is_no_anchor(tmp_path: Path, column: str):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    file = builder.log / single(10)
    at, group = file.stat(), pq.read_metadata(file).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    (chunk,) = (each for each in chunks if each.path_in_schema == column)
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(file.read_bytes())
    content[first : first + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(content)
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))

    assert planned(tmp_path)[1].anchor_version == 5


def test_a_v2_checkpoint_with_a_broken_line_is_no_anchor(tmp_path: Path):
    at = {10: lambda table: table.checkpoint("v2-json", parts=0)}
    builder = daily_log(tmp_path, checkpoints=(5,), at=at, features=("v2Checkpoint",))
    (top,) = builder.log.glob(f"{10:020d}.checkpoint.*.json")
    rewrite(top, top.read_text() + '{"remove":{"path":"x"')

    assert planned(tmp_path)[1].anchor_version == 5


@pytest.mark.parametrize(
    "name",
    ["10.checkpoint.parquet", f"{10:019d}.checkpoint.parquet", f"{10:021d}.checkpoint.parquet",
     f"{10:020d}.checkpoint.{1:010d}.1.parquet", f"{10:020d}.checkpoint.bak.parquet",
     f"{10:020d}.checkpoint.{UUID.replace('-', '')}.parquet"],
)  # fmt: skip
def test_a_checkpoint_by_another_name_than_readers_look_for_is_no_anchor(tmp_path: Path, name: str):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    (builder.log / single(10)).rename(builder.log / name)

    found = planned(tmp_path)[1]

    assert found.anchor_version == 5
    assert "other readers ignore" in found.rejected[0]


def test_no_sidecar_goes_when_a_checkpoint_is_a_link(tmp_path: Path):
    builder = sidecar_log(tmp_path / "t", 5, 10, 18, parts=1)
    (top,) = builder.log.glob(f"{18:020d}.checkpoint.*.json")
    top.rename(tmp_path / "elsewhere.json")
    top.symlink_to(tmp_path / "elsewhere.json")

    names, found = planned(tmp_path / "t")

    assert found.anchor_version == 10
    assert not [name for name in names if name.startswith("_sidecars")]
    assert "is a link" in found.notes[0]


@pytest.mark.parametrize("directory", ["_sidecars", "_staged_commits"])
def test_nothing_behind_a_link_is_planned_or_deleted(tmp_path: Path, directory: str):
    path, ledger, foreign = (tmp_path / name for name in ("t", "ledger", "foreign"))
    builder = daily_log(path, checkpoints=(5, 10))
    for place in (ledger, foreign, builder.log / directory):
        place.mkdir()
    name = f"{3:020d}.{UUID}.json" if directory == "_staged_commits" else "x.parquet"
    (builder.log / directory / name).write_text("mine")
    os.utime(builder.log / directory / name, (1, 1))
    rows, found = planned_rows(path)
    assert f"_delta_log/{directory}/{name}" in rows["path"].to_pylist()
    (builder.log / directory).rename(tmp_path / "away")
    (builder.log / directory).symlink_to(foreign)
    (tmp_path / "away" / name).rename(foreign / name)

    plan = plan_of(path, rows.num_rows, anchor=found.anchor_version or 0)
    delete_planned(rows.to_batches(), plan, locations_of(plan, ledger))

    assert (foreign / name).read_text() == "mine"
    assert planned(path)[1].stop_reason == "nothing_to_delete"


@pytest.mark.parametrize("versions", [range(21), [15]])
def test_files_of_the_log_that_are_links_are_the_reason(tmp_path: Path, versions: Sequence[int]):
    log = daily_log(tmp_path / "t", checkpoints=(5, 10), checksums=False).log
    files = len(list(log.glob("0*")))
    for version in versions:
        name = f"{version:020d}.json"
        (log / name).rename(tmp_path / name)
        (log / name).symlink_to(tmp_path / name)

    names, found = planned(tmp_path / "t")

    assert (names, found.stop_reason) == (set(), "links")
    assert (found.log_files, found.log_commits, found.earliest_before) == (files, 21, 0)
    assert f"{min(versions):020d}.json" in found.notes[0]


def test_a_gap_is_a_gap_where_a_link_is_older(tmp_path: Path):
    log = daily_log(tmp_path / "t", checkpoints=(5, 10, 18)).log
    (log / f"{15:020d}.json").unlink()
    (log / f"{3:020d}.json").rename(tmp_path / "away")
    (log / f"{3:020d}.json").symlink_to(tmp_path / "away")

    assert planned(tmp_path / "t")[1].stop_reason == "gap"


def test_a_link_to_the_tables_own_files_is_not_followed(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    builder.age("*.parquet", 40)
    (builder.log / "_sidecars").symlink_to("..")

    assert not [name for name in planned(tmp_path)[0] if "_sidecars" in name]


def test_a_checksum_with_another_time_than_its_commit_is_not_trusted(tmp_path: Path):
    settings = {"delta.enableInCommitTimestamps": "true"}
    log = LogBuilder(
        tmp_path, now_ms=NOW_MS, features=["inCommitTimestamp"], configuration=settings
    )
    log.commits([40.0 - version for version in range(21)], checksums=True)
    log.checkpoint(10).checkpoint(14).hint()
    for version in (14, 15):
        crc = log.log / f"{version:020d}.crc"
        content = json.loads(crc.read_text())
        rewrite(
            crc,
            json.dumps(content | {"inCommitTimestampOpt": content["inCommitTimestampOpt"] // 9}),
        )

    found = planned(tmp_path)[1]

    assert (found.cutoff_version, found.anchor_version) == (13, 10)


def _ready(path: Path, *, now_ms: int, asked_ms: int | None = None, **plan: Any) -> None:
    made = plan_of(path, 1, anchor=10)
    values = {name: getattr(made, name) for name in made.__dataclass_fields__} | plan

    def kept_ms(properties: TableProperties) -> int:
        return asked_ms or max(properties.log_retention_ms, properties.deleted_file_retention_ms)

    plan = type(made)(**values)
    location = Location.of(plan.table)
    ready_head(plan, location, max_age_ms=DAY_MS, force=False, kept_ms=kept_ms, now_ms=now_ms)


def test_a_plan_of_a_clock_that_ran_ahead_is_refused(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10))
    planned_ms = NOW_MS + 20 * DAY_MS

    with pytest.raises(StalePlanError, match="20 days in the future"):
        _ready(tmp_path, now_ms=NOW_MS, planned_ms=planned_ms, retention_ms=30 * DAY_MS)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("delta.deletedFileRetentionDuration", "interval 60 days", "retention was raised"),
        ("delta.logRetentionDuration", "interval 60 days", "retention was raised"),
        (
            "delta.requireCheckpointProtectionBeforeVersion",
            "15",
            "protection of the table was raised since",
        ),
    ],
)
def test_a_plan_is_refused_when_the_table_keeps_more_now(
    tmp_path: Path, key: str, value: str, message: str
):
    builder = daily_log(tmp_path, checkpoints=(5, 10), features=("checkpointProtection",))
    _ready(tmp_path, now_ms=NOW_MS, retention_ms=30 * DAY_MS)

    builder.commit([{"metaData": builder.metadata | {"configuration": {key: value}}}])

    with pytest.raises(StalePlanError, match=message):
        _ready(tmp_path, now_ms=NOW_MS, retention_ms=30 * DAY_MS)


def test_versions_over_a_hole_stay_protected(tmp_path: Path):
    settings = {"delta.requireCheckpointProtectionBeforeVersion": "15"}
    builder = daily_log(
        tmp_path, checkpoints=(10,), features=("checkpointProtection",), configuration=settings
    )
    for version in (3, 4, 5):
        (builder.log / f"{version:020d}.json").unlink()

    assert planned(tmp_path)[1].stop_reason == "checkpoint_protection"


def test_no_anchor_is_written_at_a_version_of_an_unknown_protocol(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(18,), checksums=False)
    future = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["mystery"]}
    for version, protocol in ((8, future | {"writerFeatures": ["mystery"]}), (15, None)):
        file = builder.log / f"{version:020d}.json"
        action = {"protocol": protocol or builder.protocol}
        rewrite(file, file.read_text() + json.dumps(action) + "\n")

    assert planned(tmp_path, creates_anchor=True)[1].stop_reason == "no_checkpoint_before_cutoff"


@pytest.mark.parametrize(
    "sidecar",
    [{"path": "x" * 300, "sizeInBytes": 1}, {"path": "a%00b.parquet", "sizeInBytes": 1},
     {"path": None, "sizeInBytes": 1}, {"path": "x.json", "sizeInBytes": 1}, {}],
)  # fmt: skip
def test_a_sidecar_that_cannot_be_is_a_reason_not_a_crash(tmp_path: Path, sidecar: dict[str, Any]):
    at = {10: lambda table: table.checkpoint("v2-json", parts=1)}
    builder = daily_log(tmp_path, checkpoints=(5,), at=at, features=("v2Checkpoint",))
    (top,) = builder.log.glob(f"{10:020d}.checkpoint.*.json")
    rewrite(top, top.read_text() + json.dumps({"sidecar": sidecar}) + "\n")

    assert planned(tmp_path)[1].anchor_version == 5


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 200_000, b"7", b"{}"])
def test_a_broken_note_of_a_vacuum_is_passed_over(tmp_path: Path, content: bytes):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    (builder.log / "_last_vacuum_info").write_bytes(content)

    assert planned(tmp_path)[1].anchor_version == 10


def test_a_retention_beyond_all_dates_keeps_all(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10))

    assert planned(tmp_path, days=1_000_000)[1].stop_reason == "no_expired_commit"
    assert human_time(NOW_MS - 1_000_000 * DAY_MS) == "-84604658400000 ms"


def test_a_version_that_is_too_large_is_named(tmp_path: Path):
    builder = TableBuilder(tmp_path, now_ms=NOW_MS).create()
    name = f"{2**63 - 2:020d}.json"
    builder.write_log(name, '{"commitInfo":{"timestamp":1}}\n')
    (unit,) = commit_units(table_head(Location.of(str(tmp_path)), 0))
    huge = type(unit)(f"_delta_log/{name}", 2**63 - 2, 31, commit_ms=1)

    with pytest.raises(CorruptLogError, match=re.escape(name)):
        list(actions_of(Location.of(str(tmp_path)), [unit, huge]))


def test_mode_spark_executes_a_plan_that_begins_in_the_middle(tmp_path: Path):
    path, ledger = tmp_path / "t", tmp_path / "ledger"
    log = LogBuilder(path, now_ms=NOW_MS).commits([40.0 - v for v in range(21)])
    log.checkpoint(10).checkpoint(20).checkpoint(5, at_ms=NOW_MS).hint()
    log.touch(NOW_MS - 1, f"{4:020d}.json")
    ledger.mkdir()

    rows, found = planned_rows(path, mode="spark")
    plan = plan_of(path, rows.num_rows, anchor=found.anchor_version or 0)
    spark = type(plan)(
        **{n: getattr(plan, n) for n in plan.__dataclass_fields__} | {"mode": "spark"}
    )
    done = delete_planned(rows.to_batches(), spark, locations_of(spark, ledger))

    assert done.outcomes == {"commit": {"deleted": 5}, "checkpoint": {"deleted": 1}}
    assert len(DeltaTable(path, version=12).file_uris()) == 12
