"""Storage faults during a plan or a deletion: reported, counted, and finished by a later run."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.datasets.ledger import DeletionLocations
from maint_assets.errors import DeletionFailedError, StalePlanError, StorageError
from maint_assets.storage.location import Location
from maint_assets.vacuum.deletion import _Task
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain
from maint_assets_tests.support.mounts import mount, read_only
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 16 megabytes."""
    if os.geteuid():
        pytest.skip("only root mounts a disk")
    disk = tmp_path_factory.mktemp("disk")
    mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk))
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, *, but: int) -> Path:
    """Write a file that leaves ``but`` bytes free."""
    free = shutil.disk_usage(disk).free - but
    (disk / "filler").write_bytes(bytes(free))
    return disk / "filler"


def strays(path: Path, count: int) -> TableBuilder:
    """A live file and ``count`` old files that no commit names."""
    table = TableBuilder(path).at(days_ago=9).create().add("live").age("live", 9)
    for number in range(count):
        table.stray(f"s{number:05}", content=b"", age_days=9)
    return table


def test_what_is_read_only_fails_and_all_else_goes(tmp_path: Path, chain_of: ChainOf) -> None:
    table = strays(tmp_path, 2).stray("locked/a", age_days=9).stray("locked/b", age_days=9)
    table.stray("d/c", age_days=9).age("d", 9).age("locked", 9)
    chain = chain_of(tmp_path)
    report = chain.plan()

    with read_only(tmp_path / "locked"):
        done = chain.execute(report)

    assert isinstance(done.error, DeletionFailedError)
    assert "2 of 7 planned paths" in str(done.error) or os.geteuid()
    outcomes = chain.ledger(done)
    outcome_of = {path: outcome for path, (outcome, _) in outcomes.items()}
    assert outcome_of.pop("locked/a") == outcome_of.pop("locked/b") == "failed"
    assert outcome_of.pop("locked") == ("failed" if os.geteuid() else "skipped"), "a mount point"
    assert set(outcome_of.values()) == {"deleted"}
    assert outcomes["locked/a"][1] in {
        "OSError: Read-only file system",
        "PermissionError: Permission denied",
    }
    again = chain.vacuum()
    assert again.error is None
    assert again.done
    assert (again.done.files, again.done.directories) == (2, 1)
    assert not (tmp_path / "locked").exists()
    assert (tmp_path / "live").exists()


def test_nothing_is_deleted_that_could_not_be_recorded(
    tmp_path: Path, small_disk: Path, chain_of: ChainOf
) -> None:
    strays(tmp_path, 3)
    chain = chain_of(tmp_path, workspace=small_disk / "workspace")
    report = chain.plan()
    filler = fill(small_disk, but=16_384)

    with pytest.raises(StorageError, match=r"No space left on device\); make room"):
        chain.execute(report)

    assert len(list(tmp_path.glob("s*"))) == 3
    filler.unlink()
    assert chain.execute(report).error is None
    assert not list(tmp_path.glob("s*"))


def test_a_disk_that_fills_up_ends_the_deletion_and_the_next_finishes_it(
    tmp_path: Path, small_disk: Path, chain_of: ChainOf
) -> None:
    """Long names that do not compress: 700 kB hold two batches and the intent of the third.

    The next run records the outcomes of the last batch: its intent is on the disk.
    """
    table, names = strays(tmp_path, 0), Random(7)
    for _ in range(4_500):
        table.stray(f"s{names.randbytes(95).hex()}", content=b"", age_days=9)
    chain = chain_of(tmp_path, workspace=small_disk / "workspace")
    report = chain.plan()
    filler = fill(small_disk, but=700_000)

    with pytest.raises(StorageError) as raised:
        chain.execute(report)

    assert len(list(tmp_path.glob("s*"))) == 1_500
    assert "outcomes of 2000 of 4500 paths are recorded" in str(raised.value)
    assert "the outcomes of the last 1000 paths are not recorded yet" in str(raised.value)
    filler.unlink()
    again = chain.execute(report)
    assert again.error is None
    assert again.done
    assert (again.done.files, again.done.missing) == (1_500, 3_000)
    runs = Path(again.done.ledger).parents[1]
    [former] = [run for run in runs.iterdir() if run.name not in again.done.ledger]
    rows = ds.dataset(former / "rows", format="parquet").to_table().to_pylist()
    assert Counter(row["outcome"] for row in rows) == {"deleted": 3_000}


def test_a_plan_that_cannot_be_written_is_no_plan(
    tmp_path: Path, small_disk: Path, chain_of: ChainOf
) -> None:
    strays(tmp_path, 3)
    chain = chain_of(tmp_path, workspace=small_disk / "workspace")
    fill(small_disk, but=0)

    with pytest.raises(StorageError, match=r"No space left on device.*make room"):
        chain.plan()


WALK = """
import sys
from maint_assets.storage.location import Location
from maint_assets.vacuum.listing import _Top, _tree_rows
from maint_assets.vacuum.walk import Walk
walk = Walk(location=Location(sys.argv[1]), partition_columns=[], iceberg=False)
list(_tree_rows(walk, 100)([_Top("", deep=True)]))
"""


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    table = strays(tmp_path / "t", 1).stray("closed/a", age_days=9)
    (table.path / "closed").chmod(0)

    done = subprocess.run(
        [*_without_root(), sys.executable, "-c", WALK, str(table.path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.strip().splitlines()[-1] == (
        f"maint_assets.errors.StorageError: {table.path}: directory closed/ cannot be read "
        "(Permission denied); allow reading it, or check the disk"
    )


def _without_root() -> list[str]:
    """The command prefix by which file permissions apply to root as well."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root is denied nothing without setpriv")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def test_what_a_restore_brings_back_between_two_batches_survives(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("live").add("x").add("y").add("z")
    table.remove("x").remove("y", "z").stray("s").age("**/*", 9)
    before = delta_spark.rows(spark, tmp_path, 5)
    rows, task = planned_task(chain_of(tmp_path), tmp_path)

    task.execute(rows.filter(pc.field("path") == "x"))
    spark.sql(f"RESTORE {delta_spark.table(tmp_path)} TO VERSION AS OF 5").collect()
    task.execute(rows.filter(pc.field("path") != "x"))

    assert delta_spark.rows(spark, tmp_path) == before
    assert outcomes_of(task) == {"deleted": 2, "skipped": 2}


@pytest.mark.long
def test_what_writers_make_between_two_batches_survives(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a", "b").add("x").remove("x")
    table.stray("s1").stray("s2").age("**/*", 9)
    name = delta_spark.table(tmp_path)
    rows, task = planned_task(chain_of(tmp_path), tmp_path)

    task.execute(rows.filter(pc.field("path") == "s1"))
    delta_spark.forget(spark)
    spark.sql(f"INSERT INTO {name} VALUES (7, 'new')").collect()
    spark.sql(f"OPTIMIZE {name}").collect()
    DeltaTable(tmp_path).merge(
        pa.table({"id": [7], "value": ["newer"]}), "s.id = t.id", source_alias="s", target_alias="t"
    ).when_matched_update_all().execute()
    after = delta_spark.rows(spark, tmp_path)
    readable = delta_spark.readable_versions(spark, tmp_path)
    task.execute(rows.filter(pc.field("path") != "s1"))

    assert delta_spark.rows(spark, tmp_path) == after
    assert set(delta_spark.readable_versions(spark, tmp_path)) == {*readable} - {2}
    assert outcomes_of(task) == {"deleted": 3}


def test_a_table_that_becomes_another_between_two_batches_is_left_alone(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a").stray("s1").stray("s2")
    table.age("**/*", 9)
    rows, task = planned_task(chain_of(tmp_path), tmp_path)

    task.execute(rows.filter(pc.field("path") == "s1"))
    table.commit([{"metaData": table.metadata | {"id": "another"}}])

    with pytest.raises(StalePlanError, match="replaced by another"):
        task.execute(rows.filter(pc.field("path") == "s2"))
    assert (tmp_path / "s2").exists()


def planned_task(chain: Chain, table: Path) -> tuple[pa.Table, _Task]:
    """The rows of a plan, and the task that deletes them batch by batch."""
    report = chain.plan()
    parts = [pq.read_table(part.path) for part in report.diff.parts()]
    ledger = Location.of(str(report.diff.location.path)).below("ledger")
    ledger.file("").mkdir(parents=True)
    assert report.planned.plan.table == str(table)
    return pa.concat_tables(parts), _Task(
        report.planned.plan, DeletionLocations(Location.of(str(table)), ledger)
    )


def outcomes_of(task: _Task) -> dict[str, int]:
    """The number of paths by outcome."""
    counted = task.counted().to_pylist()
    return {row["outcome"]: row["paths"] for row in counted}
