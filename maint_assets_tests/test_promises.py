"""The README's promises, one test per sentence; whole suites cover each of them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from maint_assets.datasets import ledger
from maint_assets.errors import MaintError, RetentionError, UnsupportedFeatureError
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import DAY_MS, TableBuilder, tree
from maint_assets_tests.support.chain import Chain, files, set_clock

pytestmark = pytest.mark.usefixtures("spark")

README = Path(__file__).parents[1] / "README.md"
PLANNING = (
    "snapshot.replay", "vacuum.valid_files", "vacuum.listing", "vacuum.inventory", "vacuum.lite",
    "vacuum.diff", "compaction.planning.bin_plan", "log_cleanup.expired_logs",
)  # fmt: skip

Made = Callable[..., Chain]


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Chains of one of the three branches, each in its own workspace."""
    chains: list[Chain] = []

    def made(how: Callable[..., Chain], path: Path, **settings: Any) -> Chain:
        chains.append(how(path, tmp_path_factory.mktemp("workspace"), **settings))
        return chains[-1]

    yield made
    for chain in chains:
        chain.launcher.instance.dispose()


def promised(sentence: str) -> None:
    """Assert that the README contains this sentence."""
    assert sentence in " ".join(README.read_text(encoding="utf-8").split())


def aged(path: Path) -> TableBuilder:
    """A live file with a deleted row, one removed long ago, one lately, and an untracked file."""
    table = (
        TableBuilder(path).at(days_ago=20).create(features=["deletionVectors"]).add("l", "o", "y")
    )
    table.delete_rows("l", 0).remove("o").at(days_ago=1).remove("y")
    return table.stray("stray").age("*", 20).age("_delta_log", 20)


def test_nothing_that_a_retained_version_needs_is_deleted(
    spark: SparkSession, tmp_path: Path, made: Made
) -> None:
    promised("**Nothing that a retained version needs is deleted**: live files, files removed less")
    table = aged(tmp_path)
    rows = [delta_spark.rows(spark, tmp_path, version) for version in (3, 4)]

    done = made(Chain.of, tmp_path).vacuum()

    assert files(done) == {"o", "stray"}
    assert {"l", "y"} <= {path.name for path in table.path.iterdir()}
    assert len(list(tmp_path.glob("deletion_vector_*.bin"))) == 1
    assert [delta_spark.rows(spark, tmp_path, version) for version in (3, 4)] == rows


def test_neither_are_its_commits_and_the_checkpoint_before_them(tmp_path: Path, made: Made) -> None:
    promised("its commits and the checkpoint before them")
    table = TableBuilder(tmp_path).at(days_ago=50).create().add("a").checkpoint().add("b")
    table.at(days_ago=40).add("c").checkpoint().at(days_ago=1).add("d")

    done = made(Chain.cleaning, tmp_path).clean()

    assert done.done is not None and done.done.earliest_version == 3
    left = {path.name for path in table.log.iterdir()}
    assert {f"{3:020}.checkpoint.parquet", f"{3:020}.json", f"{4:020}.json"} <= left


@pytest.mark.parametrize("odd", ["feature", "log"])
def test_what_is_not_understood_is_refused_by_name_and_nothing_touched(
    tmp_path: Path, made: Made, odd: str
) -> None:
    promised(
        "Whatever it does not understand, an unknown table feature or a broken log, it refuses"
    )
    table = aged(tmp_path)
    if odd == "feature":
        table.commit([
            {"protocol": table.protocol | {"writerFeatures": ["deletionVectors", "odd"]}}
        ])
    else:
        table.write_log(f"{5:020}.json", '{"add":')
    before = tree(tmp_path)

    kind = UnsupportedFeatureError if odd == "feature" else MaintError
    for run in (made(Chain.of, tmp_path).vacuum, made(Chain.compacting, tmp_path).compact,
                made(Chain.cleaning, tmp_path).clean):  # fmt: skip
        with pytest.raises(kind, match="odd" if odd == "feature" else f"{5:020}.json"):
            run()

    assert tree(tmp_path) == before


@pytest.mark.parametrize("module", PLANNING)
def test_planning_stages_cannot_import_the_code_that_changes_a_table(module: str) -> None:
    promised("The planning stages cannot import the code that changes a table.")
    code = f"import sys, maint_assets.{module}; print('maint_assets.storage.write' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "False\n"


def test_the_deletion_reads_the_materialised_plan_and_does_only_that(
    tmp_path: Path, made: Made
) -> None:
    promised("The deletion reads the materialised plan")
    table = aged(tmp_path)
    chain = made(Chain.of, tmp_path)
    report = chain.plan()
    table.stray("later").age("later", 20)

    done = chain.execute(report)

    assert set(chain.ledger(done)) == {"o", "stray"}
    assert (tmp_path / "later").exists()


def test_what_a_restore_brought_back_meanwhile_stays(
    spark: SparkSession, tmp_path: Path, made: Made
) -> None:
    promised("a file that a RESTORE brought back stays")
    aged(tmp_path)
    chain = made(Chain.of, tmp_path)
    report = chain.plan()
    spark.sql(f"RESTORE {delta_spark.table(tmp_path)} TO VERSION AS OF 2").collect()

    done = chain.execute(report)

    assert chain.ledger(done)["o"] == ("skipped", "named by a commit newer than the plan")


def test_a_retention_is_neither_rounded_nor_ignored(tmp_path: Path, made: Made) -> None:
    promised("A retention is neither rounded nor ignored")
    table = TableBuilder(tmp_path).at(days_ago=20).create().add("a")
    half_ms = 10 * DAY_MS + 1_800_000
    for name, age_ms in (("older", half_ms + 1), ("as_old", half_ms), ("younger", half_ms - 1)):
        table.stray(name).age(name, age_ms / DAY_MS)
    chain = made(Chain.of, tmp_path, retention="10 days 30 minutes")
    set_clock(chain, table.now_ms)

    assert files(chain.plan()) == {"older"}


def test_one_below_the_tables_own_is_refused_unless_allowed(tmp_path: Path, made: Made) -> None:
    promised("one below the table's own is refused unless allowed")
    aged(tmp_path)

    with pytest.raises(RetentionError):
        made(Chain.of, tmp_path, retention="6 days").plan()

    allowed = made(Chain.of, tmp_path, retention="1 hour", allow_short_retention=True)
    assert files(allowed.plan()) == {"o", "y", "stray"}


def test_a_rewrite_keeps_every_row_and_counts_them_in_every_bin(
    spark: SparkSession, tmp_path: Path, made: Made
) -> None:
    promised("Rows are counted in every bin; in some, or all (`verify_rows: full`), they are read")
    aged(tmp_path)
    rows = delta_spark.rows(spark, tmp_path)

    report = made(Chain.compacting, tmp_path, purge=True, verify_rows="full").compact()

    assert report.done is not None
    assert (report.done.rows_removed, report.done.rows_added) == (1, 1)
    assert report.done.verified_bins == report.done.bins == 1
    assert delta_spark.rows(spark, tmp_path) == rows


def test_a_ledger_row_a_path_is_written_before_the_next_batch_starts(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised("One ledger row per path, written before the next batch starts.")
    assert ledger.BATCH_PATHS == 1_000
    table = TableBuilder(tmp_path).at(days_ago=20).create().add("a")
    for number in range(2_500):
        (tmp_path / f"s{number}").touch()
    table.age("s*", 20)
    chain = made(Chain.of, tmp_path)

    done = chain.vacuum()

    assert done.done is not None
    rows = ds.dataset(done.done.ledger, format="parquet").to_table().to_pylist()
    assert len({row["path"] for row in rows}) == len(rows) == 2_500
    assert len({row["batch"] for row in rows}) == 3
