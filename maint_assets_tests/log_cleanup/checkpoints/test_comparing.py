"""Checkpoints compared on executors: the same verdicts as in one process, reported as counts."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from maint_assets.errors import StalePlanError
from maint_assets.log_cleanup.boundary import proven_anchors
from maint_assets.log_cleanup.checkpoints import comparing
from maint_assets.log_cleanup.checkpoints.comparing import Cluster
from maint_assets.log_cleanup.checkpoints.comparison import Difference
from maint_assets.log_cleanup.checkpoints.soundness import Soundness, soundness_of_each
from maint_assets.log_cleanup.deletion import delete_planned, proven_anchor
from maint_assets.log_cleanup.expired_logs import expired_logs
from maint_assets.log_cleanup.log_directory import LogDirectory, log_directory
from maint_assets.snapshot import replay
from maint_assets.storage.location import Location
from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import locations_of, plan_of, planned_rows, terms_of
from maint_assets_tests.log_cleanup.wrong_checkpoints import (
    ALIKE,
    WRONG,
    WRONG_OF_FILES,
    also_removed,
    lost,
    of_c,
    partitioned,
    story,
    top,
)
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import Edit, edit_rows, rewrite

EDITS: dict[str, Edit] = {
    **{what: edit for what, (edit, _) in WRONG.items()},
    "as removed too": also_removed,
    "a file lost": lost,
}
EDITS_OF_FILES = {**{what: edit for what, (edit, _) in WRONG_OF_FILES.items()}, **ALIKE}


@pytest.fixture(params=["one task", "buckets"])
def cluster(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Cluster:
    """Executors for which no log counts as small; they shuffle rows, or use one task."""
    monkeypatch.setattr(comparing, "SMALL_LOG_BYTES", -1)
    if request.param == "buckets":
        monkeypatch.setattr(comparing, "BUCKET_BYTES", 100_000)
        monkeypatch.setattr(replay, "SHARE_BYTES", 10_000)
    return Cluster(spark, 2, str(tmp_path_factory.mktemp("scratch")))


def verdicts(path: Path, cluster: Cluster | None) -> dict[int, Soundness]:
    log = log_of(path)
    found = soundness_of_each(log, log.checkpoints, cluster=cluster)
    return {each.version: verdict for each, verdict in found.items()}


def log_of(path: Path) -> LogDirectory:
    return log_directory(Location.of(str(path)))


@pytest.mark.parametrize("what", EDITS)
def test_verdicts_on_executors_are_those_of_one_process(
    tmp_path: Path, cluster: Cluster, what: str
):
    builder = story(tmp_path, 5, 10)
    edit_rows(top(builder, 10), EDITS[what])

    found = verdicts(tmp_path, cluster)

    assert found == verdicts(tmp_path, None)
    assert found[5] == Soundness() and found[10].fault is not None


@pytest.mark.parametrize("what", EDITS_OF_FILES)
def test_statistics_and_values_are_compared_on_executors_as_in_one_process(
    tmp_path: Path, cluster: Cluster, what: str
):
    builder = partitioned(tmp_path, 5, 10)
    edit_rows(top(builder, 10), EDITS_OF_FILES[what])

    found = verdicts(tmp_path, cluster)

    assert found == verdicts(tmp_path, None)
    assert (found[10].fault is None) == (what in ALIKE)


@pytest.mark.parametrize("kind", ["classic", "v2-json", "v2-parquet"])
def test_sound_checkpoints_are_sound_on_executors(tmp_path: Path, cluster: Cluster, kind: str):
    story(tmp_path, 5, 8, 10, kind=kind, parts=1 if kind == "classic" else 2)

    assert verdicts(tmp_path, cluster) == dict.fromkeys((10, 8, 5), Soundness())


def test_a_commit_that_cannot_be_read_moves_the_start_on_executors(
    tmp_path: Path, cluster: Cluster
):
    builder = story(tmp_path, 5, 8, 10)
    rewrite(builder.log / f"{3:020d}.json", '{"add":')
    edit_rows(top(builder, 10), lost)

    found = verdicts(tmp_path, cluster)

    assert found == verdicts(tmp_path, None)
    assert "has an invalid line" in (found[5].note or "")
    assert "compared from checkpoint 5 on" in (found[8].note or "")
    assert "differs from checkpoint 5 and the commits" in (found[10].fault or "")


@pytest.mark.parametrize("edit", [of_c({"path": "b"}), also_removed], ids=["twice", "removed too"])
def test_a_checkpoint_that_contradicts_itself_is_no_start(
    tmp_path: Path, cluster: Cluster, edit: Edit
):
    builder = story(tmp_path, 5, 8, 10)
    (builder.log / f"{3:020d}.json").unlink()
    edit_rows(top(builder, 5), edit)

    found = verdicts(tmp_path, cluster)

    assert found == verdicts(tmp_path, None)
    assert found[5].fault is not None and "was not compared" in (found[8].note or "")
    assert "compared from checkpoint 8 on" in (found[10].note or "")


def test_what_was_proven_on_executors_is_what_is_planned(tmp_path: Path, cluster: Cluster):
    builder = story(tmp_path, 3, 5, 8, 10)
    for version in (8, 10):
        edit_rows(top(builder, version), lost)
    expected, _ = planned_rows(tmp_path)
    asked = terms_of(tmp_path, days=26)

    proven = proven_anchors(log_of(tmp_path), asked, cluster)
    rows, found = expired_logs(Location.of(str(tmp_path)), asked, proven)

    assert {each.version for each in proven} == {3, 5, 8, 10}
    assert (found.anchor_version, rows) == (5, expected)


def test_a_proven_anchor_that_changes_before_the_deletion_is_refused(
    tmp_path: Path, cluster: Cluster
):
    builder = story(tmp_path / "t", 10)
    rows, _ = planned_rows(tmp_path / "t")
    plan = plan_of(tmp_path / "t", rows.num_rows, anchor=10)
    anchor = proven_anchor(Location.of(plan.table), plan, cluster)
    (tmp_path / "ledger").mkdir()
    top(builder, 10).write_bytes(b"other")
    before = sorted(builder.log.iterdir())

    with pytest.raises(StalePlanError, match="is gone or was changed"):
        delete_planned(
            rows.to_batches(), plan, locations_of(plan, tmp_path / "ledger"), anchor=anchor
        )

    assert sorted(builder.log.iterdir()) == before


def test_a_wrong_anchor_of_a_large_log_is_refused_before_the_deletion(
    tmp_path: Path, cluster: Cluster
):
    builder = story(tmp_path, 10)
    plan = plan_of(tmp_path, 1, anchor=10)
    edit_rows(top(builder, 10), lost)

    with pytest.raises(StalePlanError, match="5 live files, not 6"):
        proven_anchor(Location.of(plan.table), plan, cluster)


def test_a_large_log_is_cleaned_through_the_chain(
    tmp_path: Path, cluster: Cluster, cleaning_of: CleaningOf
):
    builder = story(tmp_path, 5, 10)

    report = cleaning_of(tmp_path).clean().json()

    assert (report["anchor_version"], report["deleted"]) == (10, {"checkpoint": 1, "commit": 10})
    assert min(file.name for file in builder.log.glob("*.json")) == f"{10:020d}.json"


def test_the_driver_gets_counts_however_many_files_there_are(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    classic = type(cluster.spark.range(1))
    collect, got = classic.collect, list[int]()

    def counted(frame: DataFrame) -> Any:
        rows = collect(frame)
        got.append(sum(len(str(value)) for row in rows for value in row))
        return rows

    monkeypatch.setattr(classic, "collect", counted)
    sizes = list[int]()
    for files in (10, 300):
        table = TableBuilder(tmp_path / str(files)).create()
        table.commit([table.added(f"f{at}", rows=1) for at in range(files)]).checkpoint()
        monkeypatch.setattr(comparing, "BUCKET_BYTES", table_bytes(table) // 2)
        got.clear()
        assert verdicts(table.path, cluster) == {1: Soundness()}
        sizes.append(sum(got))

    assert sizes[1] < sizes[0] + 200


def table_bytes(table: TableBuilder) -> int:
    return sum(file.stat().st_size for file in table.log.iterdir())


def test_differences_of_buckets_add_up():
    one = Difference(found=2, made=3, others=1, action="txn b", left_out="txn d")
    other = Difference(found=1, twice=1, action="protocol", expires_ms=5)

    assert one.plus(other) == Difference(
        found=3, made=3, others=1, twice=1, action="protocol", left_out="txn d", expires_ms=5
    )
