"""Names in the log that are not UTF-8: ignored, or reported where a checkpoint has one."""

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.log_cleanup.expired_logs import expired_logs
from maint_assets.storage.location import Location
from maint_assets_tests.log_cleanup.logs import planned, sidecar_log, terms_of
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.shell import Shell

UUID = b"01234567-89ab-cdef-0123-456789abc\xffef"

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("inspect",),
    ("vacuum",),
    ("optimize",),
    ("clean-log", "--create-anchor-checkpoint"),
    ("clean-log", "--mode", "spark"),
    ("clean-log", "--execute"),
    ("checkpoint",),
)

PASSED_OVER = {
    "a stranger": b"\xff",
    "a temporary file": b"_commit_\xff.json.tmp",
    "a temporary file of Hadoop": b".%020d.json.\xff.tmp" % 3,
    "a checksum of Hadoop": b".%020d.json\xff.crc" % 3,
    "a sidecar": b"_sidecars/\xff.parquet",
    "a checksum of a sidecar": b"_sidecars/.\xff.parquet.crc",
    "a staged commit": b"_staged_commits/%020d.\xff.json" % 3,
}


@pytest.fixture
def run(
    spark: object,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Shell(capfd, monkeypatch)


def _log(path: Path) -> TableBuilder:
    return sidecar_log(path, 5, 10, 18, parts=1)


def _named(table: TableBuilder, name: bytes) -> Path:
    return Path(os.fsdecode(os.fsencode(table.log) + b"/" + name))


def _old(table: TableBuilder, name: bytes, content: Any = b"{}") -> Path:
    file = _named(table, name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    os.utime(file, (1, 1))
    return file


def test_files_by_names_that_are_not_utf8_are_passed_over(
    spark: SparkSession, run: Shell, tmp_path: Path
) -> None:
    table = _log(tmp_path / "t")
    expected, found = planned(table.path)
    files = [_old(table, name) for name in PASSED_OVER.values()]

    assert planned(table.path)[0] == expected
    assert (found.anchor_version, found.notes) == (10, [])
    for command, *options in COMMANDS:
        run.json(command, table.path, *options)

    assert all(file.exists() for file in files)
    delta_spark.forget(spark)
    assert spark.read.format("delta").load(str(table.path)).count() == 20
    with pytest.raises(OSError, match="invalid path"):
        DeltaTable(table.path)


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_checkpoint_by_a_name_that_is_not_utf8_is_named_by_each_command(
    spark: SparkSession, run: Shell, tmp_path: Path, kind: str
) -> None:
    table = _log(tmp_path / "t")
    asked = terms_of(table.path, days=26)
    (top,) = table.log.glob(f"{18:020d}.checkpoint.*.json")
    name = b"%020d.checkpoint.%s.json" % (18, UUID)
    if kind == "file":
        _old(table, name, top.read_bytes())
    elif kind == "link":
        _named(table, name).symlink_to(top.name)
    else:
        _named(table, name).mkdir()
    before = sorted(map(os.fsencode, table.path.rglob("*")))

    for command in ("inspect", "vacuum", "clean-log", "checkpoint"):
        code, out, message = run(command, table.path)
        assert (code, out) == (1, ""), command
        assert f"{18:020d}.checkpoint" in message and "a name that is not UTF-8" in message
        assert "; rename or remove it" in message
    rows, found = expired_logs(Location.of(str(table.path)), asked)

    assert sorted(map(os.fsencode, table.path.rglob("*"))) == before
    assert all(path.isascii() for path in rows["path"].to_pylist())
    assert all(text.isascii() for text in [*found.notes, *found.rejected])
