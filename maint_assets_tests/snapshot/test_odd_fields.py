"""Actions with fields that the protocol forbids: read if delta-spark reads them, else named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.edits import Edit, rewrite
from maint_assets_tests.support.shell import Shell

COMMANDS = (
    ("inspect",),
    ("vacuum",),
    ("optimize",),
    ("clean-log", "--create-anchor-checkpoint"),
    ("checkpoint",),
)


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


def edited(table: TableBuilder, action: str, edit: Edit) -> None:
    """Edit all actions of a kind in the commits."""
    for file in table.log.glob("*.json"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if action in line:
                edit(line[action])
        rewrite(file, "".join(json.dumps(line) + "\n" for line in lines))


def partitioned(path: Path, columns: Sequence[str] = ("p",)) -> TableBuilder:
    """A table of old versions with a file for each of three values; one file is removed."""
    table = TableBuilder(path).at(days_ago=60).create(partition_columns=columns)
    for value in ("1", "2", "3"):
        table.add(f"f{value}.parquet", partition=dict.fromkeys(columns, value))
    return table.at(days_ago=2).remove("f3.parquet")


def same_for_spark(spark: SparkSession, table: TableBuilder) -> list[tuple[Any, ...]]:
    """The rows of a table as delta-spark reads them."""
    delta_spark.forget(spark)
    return sorted(map(tuple, spark.read.format("delta").load(str(table.path)).collect()))


def refused_by_rust(table: TableBuilder, what: str) -> None:
    """Assert that deltalake cannot read the table."""
    with pytest.raises(Exception, match=what):
        DeltaTable(str(table.path)).to_pyarrow_table()


@pytest.mark.parametrize(
    ("edit", "rust"),
    [
        (lambda add: add.update(modificationTime=None), "modificationTime"),
        (lambda add: add.update(stats=json.loads(add["stats"])), "stats"),
        pytest.param(lambda add: add.update(stats=7), None, marks=pytest.mark.long),
    ],
    ids=["time null", "statistics an object", "statistics a number"],
)
def test_odd_fields_of_adds_are_read_as_delta_spark_reads_them(
    spark: SparkSession, run: Shell, tmp_path: Path, edit: Edit, rust: str | None
) -> None:
    table = partitioned(tmp_path / "t")
    edited(table, "add", edit)
    rows = same_for_spark(spark, table)
    assert len(rows) == 4
    if rust is not None:
        refused_by_rust(table, rust)

    for command, *options in COMMANDS:
        run.json(command, table.path, *options)
    for command in ("optimize", "clean-log", "vacuum"):
        run.json(command, table.path, "--execute")

    assert same_for_spark(spark, table) == rows


@pytest.mark.parametrize(
    ("edit", "columns"),
    [
        (lambda add: add.update(partitionValues=None), ["p"]),
        (lambda add: add.pop("partitionValues"), []),
        pytest.param(lambda add: add.update(partitionValues=None), [], marks=pytest.mark.long),
        pytest.param(lambda add: add.pop("partitionValues"), ["p"], marks=pytest.mark.long),
    ],
)
def test_adds_without_partition_values_are_named_by_what_needs_them(
    spark: SparkSession, run: Shell, tmp_path: Path, columns: list[str], edit: Edit
) -> None:
    table = partitioned(tmp_path / "t", columns)
    edited(table, "add", edit)
    refused_by_rust(table, "partitionValues")
    if columns:
        with pytest.raises(Exception, match="NullPointerException"):
            same_for_spark(spark, table)
    else:
        assert len(same_for_spark(spark, table)) == 4
    with pytest.raises(Exception, match="NullPointerException"):
        spark.sql(f"OPTIMIZE delta.`{table.path}`")
    before = tree(table.path)

    for command in ("inspect", "vacuum", "clean-log"):
        run.json(command, table.path)
    for command in ("optimize", "checkpoint"):
        code, _, message = run(command, table.path)
        assert code == 1
        assert (
            f"{table.path}: {1:020d}.json cannot be read (add.partitionValues is null)" in message
        )
    assert tree(table.path) == before


@pytest.mark.parametrize("columns", [["nope"], ["P"], ["p", "p"]])
def test_partition_columns_that_the_schema_lacks_are_named(
    spark: SparkSession, run: Shell, tmp_path: Path, columns: list[str]
) -> None:
    table = partitioned(tmp_path / "t")
    edited(table, "metaData", lambda metadata: metadata.update(partitionColumns=columns))
    with pytest.raises(Exception, match=r"FIELD_NOT_FOUND|COLUMN_ALREADY_EXISTS"):
        same_for_spark(spark, table)
    refused_by_rust(table, "(?i)partition column")
    before = tree(table.path)

    for command, *options in COMMANDS:
        code, _, message = run(command, table.path, *options)
        assert code == 1, command
        assert (
            f"{table.path}: {0:020d}.json has metaData with partitionColumns {columns}" in message
        )
        assert "; commit metaData with" in message
    assert tree(table.path) == before
