"""Bounds in the log that only some engines write or understand: of booleans, NaN and zeros.

delta-spark writes no bounds of booleans and ignores those of others. deltalake takes a missing
bound for null and "NaN" for a number, so that its filters may find nothing. Its SQL orders -0.0
before 0.0.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

FLAGS = {"yes": [True, True], "no": [False, None], "mixed": [True, False], "none": [None, None]}
FLAG_FILTERS = [
    [(name, how, value)] for name in FLAGS for how in ("=", "!=") for value in (True, False)
]


def flags(first: int) -> pa.Table:
    """Two rows of booleans, flat and in a struct."""
    columns = {name: pa.array(values, pa.bool_()) for name, values in FLAGS.items()}
    struct = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    return pa.table({"id": [first, first + 1], **columns, "s": struct})


def found_by_deltalake(path: Path, filters: list[Any]) -> list[list[int]]:
    """The ids that deltalake finds by each filter, through both of its APIs."""
    table = DeltaTable(path)
    found = [table.to_pandas(columns=["id"], filters=each)["id"].tolist() for each in filters]
    expressions = [_expression(*condition) for (condition,) in filters]
    dataset = table.to_pyarrow_dataset()
    found += [dataset.to_table(["id"], filter=each)["id"].to_pylist() for each in expressions]
    return [sorted(ids) for ids in found]


def _expression(name: str, how: str, value: Any) -> Any:
    column = ds.field(name)
    compared = {"=": column == value, "!=": column != value, ">": column > value}
    return (compared | {"<": column < value, ">=": column >= value})[how]


def test_deltalake_finds_booleans_after_a_rewrite(tmp_path: Path, compacting: Compacting) -> None:
    for first in (0, 2, 4):
        write_deltalake(tmp_path, flags(first), mode="append")
    before = found_by_deltalake(tmp_path, FLAG_FILTERS)

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.files_removed, done.files_added) == (3, 1)
    assert found_by_deltalake(tmp_path, FLAG_FILTERS) == before
    assert before[0] == [*range(6)] and before[2] == []


def bounds(path: Path) -> tuple[Any, Any]:
    """The bounds of the table's only file in the log."""
    (add,) = pa.table(DeltaTable(path).get_add_actions()).to_pylist()
    newest = max((path / "_delta_log").glob("*.json"))
    lines = map(json.loads, newest.read_text(encoding="utf-8").splitlines())
    (stats,) = [json.loads(line["add"]["stats"]) for line in lines if "add" in line]
    assert add["num_records"] == stats["numRecords"]
    return stats["minValues"], stats["maxValues"]


SQL_FILTERS = (
    "yes", "not yes", "no", "not no", "mixed", "not mixed", "none is null", "s.yes", "not s.no",
    "yes = true and id > 3", "mixed in (true)", "no <=> null", "yes > false",
)  # fmt: skip


def found_by_delta(spark: SparkSession, path: Path) -> list[list[int]]:
    delta_spark.forget(spark)
    table = spark.read.format("delta").load(str(path))
    return [
        sorted(row["id"] for row in table.where(text).select("id").collect())
        for text in SQL_FILTERS
    ]


def test_delta_spark_reads_past_bounds_of_booleans(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    t = delta_spark.table(tmp_path)
    struct = ", ".join(f"{name}: BOOLEAN" for name in FLAGS)
    columns = struct.replace(":", "")
    spark.sql(
        f"CREATE TABLE {t} (id BIGINT, {columns}, s STRUCT<{struct}>) USING delta TBLPROPERTIES ("
        "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpointInterval' = '1000')"
    )
    for first in (0, 2):
        source = spark.createDataFrame(flags(first).to_pandas(), spark.table(t).schema)
        source.coalesce(1).write.format("delta").mode("append").save(str(tmp_path))
    before = found_by_delta(spark, tmp_path)

    compacting(tmp_path).compact()

    assert bounds(tmp_path)[0]["mixed"] is False and bounds(tmp_path)[1]["s"]["mixed"] is True
    assert found_by_delta(spark, tmp_path) == before
    log = delta_spark.log_at(spark, tmp_path, delta_spark.clock_at(spark, 2**41))
    log.checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    assert typed_bounds(checkpoint) == ["id"]
    assert found_by_delta(spark, tmp_path) == before
    source.coalesce(1).write.format("delta").mode("append").save(str(tmp_path))
    twice = found_by_delta(spark, tmp_path)
    spark.sql(f"OPTIMIZE {t}").collect()
    assert found_by_delta(spark, tmp_path) == twice
    assert "mixed" not in bounds(tmp_path)[0]


def typed_bounds(checkpoint: Path) -> list[str]:
    """The columns with a minimum in the parsed statistics of a checkpoint."""
    kind = pq.read_schema(checkpoint).field("add").type.field("stats_parsed").type
    least = kind.field("minValues").type
    return [least.field(at).name for at in range(least.num_fields)]


def test_a_checkpoint_of_ours_has_bounds_of_booleans_in_the_text_only(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    configuration = {
        "delta.checkpointInterval": "2", "delta.checkpoint.writeStatsAsStruct": "true"
    }  # fmt: skip
    write_deltalake(tmp_path, flags(0), configuration=configuration)
    write_deltalake(tmp_path, flags(2), mode="append")
    filters = found_by_deltalake(tmp_path, FLAG_FILTERS)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.checkpoint_version == 2
    checkpoint = max((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert typed_bounds(checkpoint) == ["id"]
    for commit in (tmp_path / "_delta_log").glob("*[01].json"):
        commit.unlink()
    assert found_by_deltalake(tmp_path, FLAG_FILTERS) == filters
    assert found_by_delta(spark, tmp_path)[:2] == [[0, 1, 2, 3], []]


NUMBER_FILTERS = [[("x", "=", 1.0)], [("x", ">", 1.0)], [("x", "<", 1.0)]]
RIGHT, EVERY = [[0], [3], [2]], [*range(4)]


def numbers(path: Path) -> None:
    """Write two files, one with a NaN."""
    for first, values in ((0, [1.0, float("nan")]), (2, [0.0, 2.0])):
        columns = pa.table({"id": [first, first + 1], "x": values})
        write_deltalake(path, columns, mode="append")


def test_deltalake_takes_nan_for_a_number_after_our_rewrite_as_after_that_of_delta_spark(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    ours, theirs, own = (tmp_path / name for name in ("ours", "delta-spark", "deltalake"))
    for path in (ours, theirs, own):
        numbers(path)
    assert found_by_deltalake(ours, NUMBER_FILTERS) == 2 * RIGHT

    compacting(ours).compact()
    spark.sql(f"OPTIMIZE {delta_spark.table(theirs)}").collect()
    DeltaTable(own).optimize.compact()

    assert bounds(ours) == bounds(theirs) == ({"id": 0, "x": 0.0}, {"id": 3, "x": "NaN"})
    for path in (ours, theirs):
        assert found_by_deltalake(path, NUMBER_FILTERS) == 2 * [[], [], EVERY]
    assert found_by_deltalake(own, NUMBER_FILTERS) == 2 * RIGHT
    assert bounds(own)[1]["x"] == 2.0, "with which delta-spark would not find the NaN"


def test_deltalake_takes_a_bound_that_is_missing_for_null(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [0, 1, 2, 3], "x": [1.0, 5.0, 0.0, 2.0]}))
    (log,) = (tmp_path / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    assert found_by_deltalake(tmp_path, NUMBER_FILTERS) == 2 * [[0], [1, 3], [2]]

    stats = json.loads(add["stats"])
    del stats["maxValues"]["x"]
    add["stats"] = json.dumps(stats)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8")

    assert found_by_deltalake(tmp_path, NUMBER_FILTERS) == 2 * [[], [], []]


ZERO_FILTERS = (
    "high = 0.0", "high >= 0.0", "high > -1.0", "low = -0.0", "low <= -0.0", "s.high >= 0.0",
    "s.low = -0.0",
)  # fmt: skip


def zeros(path: Path) -> None:
    """Write two files: -0.0 is the greatest value of ``high``, 0.0 the least of ``low``."""
    for high, low in (([-0.0, -1.0], [0.0, 1.5]), ([-2.0, -0.0], [0.0, 2.0])):
        columns = {"high": pa.array(high, pa.float64()), "low": pa.array(low, pa.float64())}
        struct = pa.StructArray.from_arrays(list(columns.values()), list(columns))
        write_deltalake(path, pa.table({**columns, "s": struct}), mode="append")


def counted_by_deltalake(path: Path) -> list[int]:
    """The number of rows that deltalake's SQL finds by each of ZERO_FILTERS."""
    builder = QueryBuilder().register("t", DeltaTable(path))
    asked = (f"select count(*) as n from t where {text}" for text in ZERO_FILTERS)
    return [pa.table(builder.execute(text).read_all())["n"][0].as_py() for text in asked]


def test_deltalake_finds_zeros_of_either_sign_which_it_does_not_after_delta_spark(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    names = "ours", "ordered", "delta-spark", "deltalake"
    ours, ordered, theirs, own = (tmp_path / name for name in names)
    for path in (ours, ordered, theirs, own):
        zeros(path)

    compacting(ours).compact()
    compacting(ordered, zorder_by=("low",)).compact()
    spark.sql(f"OPTIMIZE {delta_spark.table(theirs)}").collect()
    DeltaTable(own).optimize.compact()

    found = [2, 2, 2, 2, 2, 2, 2]
    assert [counted_by_deltalake(path) for path in (ours, ordered, own)] == [found] * 3
    assert counted_by_deltalake(theirs) == [0, 0, 2, 0, 0, 0, 0]
    delta_spark.forget(spark)
    table = spark.read.format("delta").load(str(ours))
    assert [table.where(text).count() for text in ZERO_FILTERS] == found
