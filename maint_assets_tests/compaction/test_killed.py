"""A compaction that is killed between two steps: nothing is lost, the next run finishes.

The next vacuum deletes what the killed run left behind.
"""

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.delta.names import LogFile
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.compaction.killed import killed, settings
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import Action, TableBuilder
from maint_assets_tests.support.chain import Chain
from maint_assets_tests.support.killing import STEPS

DAYS = 4
EACH_TIME = "commit put"
"""What CI runs; the others run in ``make stories``."""


OLD = {"org.apache.spark.sql.parquet.row.metadata": "{}"}
"""The footer of a file that may be of Spark 2: its dates may be of another calendar."""


def table_at(path: Path, *, v2: bool, old: bool) -> TableBuilder:
    """Three files a day, one commit a day; a checkpoint is due four commits later."""
    policy = {"delta.checkpointPolicy": "v2"} if v2 else {}
    table = TableBuilder(path).create(
        partition_columns=["day"],
        features=["v2Checkpoint"] if v2 else [],
        configuration={"delta.checkpointInterval": str(2 * DAYS), **policy},
        fields={"id": "long", "at": "date"},
    )
    for day in range(DAYS):
        rows = [{"id": day, "at": dt.date(2020, 1, 1)}]
        partition = {"day": f"{day:02}"}
        added = [
            table.added(f"{file}.parquet", partition=partition, rows=rows) for file in range(3)
        ]
        table.commit([marked(table, add) for add in added] if old else added, operation="WRITE")
    return table


def marked(table: TableBuilder, action: Action) -> Action:
    """Rewrite the file of an add with the old footer; return the new add."""
    file = table.path / action["add"]["path"]
    pq.write_table(pq.ParquetFile(file).read().replace_schema_metadata(OLD), file)
    return {"add": action["add"] | {"size": file.stat().st_size}}


def unknown(log: Path) -> set[Path]:
    """The files that no reader of the log would read."""
    files = {path for path in log.rglob("*") if path.is_file()}
    named = {path for path in log.iterdir() if LogFile.parse(path.name)}
    return files - named - {log / "_last_checkpoint"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == EACH_TIME else pytest.param(name, marks=pytest.mark.long)
             for name in STEPS],
)  # fmt: skip
def test_rows_stay_the_next_run_finishes_and_no_file_leaks(
    name: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    step = STEPS[name]
    table = table_at(tmp_path / "table", v2=name == "sidecars put", old="Spark" in name)
    before = delta_spark.rows(spark, table.path)

    killed(tmp_path, name)

    head = max(file.name for file in table.log.glob("*.json") if file.name[:20].isdigit())
    assert int(head[:20]) == table.version + step.commits
    assert len(list(table.path.rglob("part-*"))) == step.commits + step.orphans
    assert delta_spark.rows(spark, table.path) == before
    done = Chain.compacting(table.path, tmp_path / "ws", **settings(name)).compact().done
    assert done is not None and done.bins == DAYS - step.commits
    assert delta_spark.rows(spark, table.path) == before
    vacuum = Chain.of(
        table.path, tmp_path / "ws", retention="0 hours", allow_short_retention=True
    ).vacuum()
    assert vacuum.error is None
    data = {path for path in table.path.rglob("*.*") if table.log not in path.parents}
    live = {table.path / file for file in delta_spark.active_files(spark, table.path)}
    assert data == live and len(live) == DAYS
    assert unknown(table.log) == set(table.log.glob(step.left) if step.left else [])
    assert delta_spark.rows(spark, table.path) == before
