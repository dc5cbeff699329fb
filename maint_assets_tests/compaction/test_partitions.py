"""Each partition value is compacted by itself, together with all spellings of it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.compaction.planning import tasks
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import live

SHAPES = {
    "interleaved": (1, 5, 1, 5, 1),
    "first two and last two": (5, 5, 1, 5, 5),
    "first and last": (5, 1, 1, 1, 5),
    "all but the first": (1, 5, 5, 5, 5),
    "only the first": (5, 1, 1, 1, 1),
}
"""The number of files in each part of a shape: parts of one file are kept."""


def by_partition(path: Path) -> dict[tuple[str | None, ...], set[str]]:
    """The live files of each combination of partition values."""
    found: dict[tuple[str | None, ...], set[str]] = {}
    for name, add in live(path).items():
        found.setdefault(tuple(add.partition_values.values()), set()).add(name)
    return found


def test_only_parts_of_many_files_become_one_file_in_one_commit(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["shape", "part"])
    for shape, counts in SHAPES.items():
        for part, count in enumerate(counts):
            values = {"shape": shape, "part": str(part)}
            table.add(*(f"{file}.parquet" for file in range(count)), partition=values)
    rows, before = delta_rs.rows(tmp_path), by_partition(tmp_path)
    one = ("interleaved", "3")

    first = compacting(tmp_path, where="part = 3 AND shape = 'interleaved'").compact().done

    after = by_partition(tmp_path)
    assert first is not None and first.files_removed == 5
    assert {values for values in before if after[values] != before[values]} == {one}
    second = compacting(tmp_path).compact().done
    after = by_partition(tmp_path)
    assert second is not None and second.versions == [table.version + 2]
    assert {len(names) for names in after.values()} == {1}
    stay = {values for values in before if after[values] == before[values]}
    assert stay == {values for values, names in before.items() if len(names) == 1}
    assert delta_rs.rows(tmp_path) == rows


def test_no_value_is_one_partition_and_empty_text_another(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    fields = {"id": "long", "value": "string", "p": "string", "day": "date"}
    table = TableBuilder(tmp_path).create(partition_columns=["p", "day"], fields=fields)
    pairs = [("a", None), (None, None), (None, ""), ("", None), ("", ""), ("a b/é%", None)]
    for number, (text, day) in enumerate(pairs):
        table.add(f"{number}.parquet", f"{number}b.parquet", partition={"p": text, "day": day})
    rows = delta_spark.rows(spark, tmp_path)

    compacting(tmp_path).compact()

    assert delta_spark.rows(spark, tmp_path) == rows
    counts = {values: len(names) for values, names in by_partition(tmp_path).items()}
    assert counts == {("a", None): 1, (None, None): 1, ("", None): 1, ("a b/é%", None): 1}
    assert Counter(row["p"] for row in rows) == {"a": 4, None: 8, "": 8, "a b/é%": 4}


def test_timestamps_are_merged_where_their_zone_is_known(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    fields = {"id": "long", "value": "string", "at": "timestamp"}
    table = TableBuilder(tmp_path).create(partition_columns=["at"], fields=fields)
    with_zone = ("2000-01-01T12:00:00.000000Z", "2000-01-01T12:00:00Z", "2000-01-01 12:00:00+00:00")
    for number, value in enumerate((*with_zone, "2000-01-01 12:00:00", "2000-01-01 12:00:00")):
        table.add(f"{number}.parquet", partition={"at": value})
    rows = delta_spark.rows(spark, tmp_path)

    compacting(tmp_path).compact()

    assert set(by_partition(tmp_path)) == {(with_zone[0],), ("2000-01-01 12:00:00",)}
    assert delta_spark.rows(spark, tmp_path) == rows


def test_moments_without_a_zone_are_not_written_into_files(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """delta-spark writes them in the time zone of its session; others read another time."""
    fields = {"id": "long", "value": "string", "at": "timestamp"}
    written = {"delta.writePartitionColumnsToParquet": "true"}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = TableBuilder(ours).create(
        partition_columns=["at"], fields=fields, configuration=written
    )
    for value in ("2000-01-01 12:00:00", "2000-01-01T12:00:00Z"):
        table.add("1.parquet", "2.parquet", partition={"at": value})
    shutil.copytree(ours, theirs)
    before = delta_spark.rows(spark, ours)

    done = compacting(ours).compact().done
    spark.sql(f"OPTIMIZE {delta_spark.table(theirs)}")

    assert done is not None and (done.bins, done.refused) == (1, 1)
    assert "2000-01-01 12:00:00" in next(iter(done.not_committed))
    assert delta_spark.rows(spark, ours) == before
    assert all(len(names) == 1 for names in by_partition(theirs).values())


def days(path: Path) -> TableBuilder:
    """Two files on each of five days."""
    table = TableBuilder(path).create(partition_columns=["day"])
    for day in range(5):
        table.add("1.parquet", "2.parquet", partition={"day": str(day)})
    return table


def test_batches_are_made_of_the_partitions_that_were_asked_for(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = days(tmp_path)

    done = compacting(tmp_path, where="day <= '1'", max_bytes_per_commit=1).compact().done

    assert done is not None and done.versions == [table.version + 1, table.version + 2]
    counts = {values[0]: len(names) for values, names in by_partition(tmp_path).items()}
    assert counts == {"0": 1, "1": 1, "2": 2, "3": 2, "4": 2}


def test_what_many_tasks_wrote_is_in_one_commit(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = days(tmp_path)
    rows = delta_rs.rows(tmp_path)
    monkeypatch.setattr(tasks, "TASK_BYTES", 1)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.versions == [table.version + 1]
    assert {len(names) for names in by_partition(tmp_path).values()} == {1}
    assert delta_rs.rows(tmp_path) == rows


def test_a_table_without_files_has_nothing_to_compact(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["p"])

    report = compacting(tmp_path, max_bytes_per_commit=1).compact()

    assert report.done is not None and (report.done.bins, report.done.versions) == (0, [])
    assert len(list(table.log.iterdir())) == 1
