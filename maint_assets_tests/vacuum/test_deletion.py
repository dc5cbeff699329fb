"""Deletion of a plan: only what was planned, only while the plan is valid, outcomes recorded."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from maint_assets.assets import spark_resource
from maint_assets.cli.vacuum import VacuumReport, execute_vacuum
from maint_assets.config import VacuumSettings
from maint_assets.errors import (
    ChecksumMismatchError,
    CommitError,
    DeletionFailedError,
    GuardError,
    MaintError,
    StalePlanError,
    StoppedError,
    UnsupportedFeatureError,
)
from maint_assets.vacuum import history
from maint_assets.vacuum.plan import Limits, VacuumPlan, refuse_beyond
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain, change_plan, files, planned_rows, set_clock
from maint_assets_tests.support.mounts import read_only
from maint_assets_tests.vacuum.conftest import ChainOf

ICT = {"delta.enableInCommitTimestamps": "true"}
pytestmark = pytest.mark.slow


def story(path: Path) -> TableBuilder:
    """Three live files, three removed ones, two untracked ones in a directory; all old."""
    table = TableBuilder(path).at(days_ago=9).create().add("a", "b", "c", "x", "y", "z")
    return table.remove("x", "y", "z").stray("d/s1").stray("d/s2").age("**/*", 9)


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def infos(path: Path) -> list[dict[str, object]]:
    commits = sorted(path.glob("_delta_log/*.json"))
    return [json.loads(commit.read_text().splitlines()[0])["commitInfo"] for commit in commits]


def test_what_came_since_the_plan_survives(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path).stray("added").stray("touched").stray("went").stray("d/s3")
    table.age("**/*", 9)
    chain = chain_of(tmp_path)
    report = chain.plan()
    assert files(report) == {"x", "y", "z", "d/s1", "d/s2", "d/s3", "added", "touched", "went"}

    spark.sql(f"RESTORE {delta_spark.table(tmp_path)} TO VERSION AS OF 1").collect()
    add = {
        "path": "added",
        "partitionValues": {},
        "size": 5,
        "modificationTime": 1,
        "dataChange": True,
    }
    table.commit([{"add": add}], version=4)
    (tmp_path / "touched").write_bytes(b"other")
    (tmp_path / "went").unlink()
    (tmp_path / "d/new").write_bytes(b"new")
    done = chain.execute(report)

    ledger = chain.ledger(done)
    assert {path for path, (outcome, _) in ledger.items() if outcome == "deleted"} == {
        "d/s1", "d/s2", "d/s3",
    }  # fmt: skip
    for path in ("x", "y", "z", "added"):
        assert ledger[path] == ("skipped", "named by a commit newer than the plan")
    assert ledger["touched"] == ("skipped", "changed since it was planned")
    assert ledger["went"][0] == "missing"
    assert ledger["d"] == ("skipped", "not empty")
    assert done.done and (done.done.missing, done.done.skipped, done.done.failed) == (1, 6, 0)
    kept = {p.name for p in tmp_path.rglob("*") if p.is_file() and "_delta_log" not in p.parts}
    assert kept == {"a", "b", "c", "x", "y", "z", "added", "touched", "new"}


@pytest.mark.parametrize("noted", [False, True])
def test_a_plan_whose_rows_were_changed_is_not_executed(
    tmp_path: Path, chain_of: ChainOf, noted: bool
) -> None:
    """An active file was put into the approved plan, perhaps with the checksums updated."""
    story(tmp_path)
    chain = chain_of(tmp_path)
    report = chain.plan()
    planned = planned_rows(report.diff)
    active = {"path": "a", "size": (tmp_path / "a").stat().st_size}
    rows = [row | active if row["path"] == "x" else row for row in planned.to_pylist()]
    change_plan(report.diff, pa.Table.from_pylist(rows, planned.schema), noted=noted)

    with pytest.raises(StalePlanError, match="plan again"):
        chain.execute(report)

    assert {"a", "b", "c", "x", "y", "z"} <= {path.name for path in tmp_path.iterdir()}
    assert files(chain.vacuum()) == {"x", "y", "z", "d/s1", "d/s2"}


def test_a_plan_that_cannot_be_read_is_not_executed(tmp_path: Path, chain_of: ChainOf) -> None:
    story(tmp_path)
    chain = chain_of(tmp_path)
    report = chain.plan()
    (part,) = report.diff.parts()
    body = Path(part.path).read_bytes()
    Path(part.path).write_bytes(body[: len(body) // 2])

    with pytest.raises(StalePlanError, match="cannot be read"):
        chain.execute(report)

    assert {"x", "y", "z"} <= {path.name for path in tmp_path.iterdir()}


def test_failed_deletion_is_reported_and_the_next_run_finishes(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    story(tmp_path).stray("stuck/s").age("stuck/*", 9).age("stuck", 9)
    chain = chain_of(tmp_path)
    report = chain.plan()

    with read_only(tmp_path / "stuck"):
        done = chain.execute(report)

    assert isinstance(done.error, DeletionFailedError)
    assert done.error.exit_code == 1
    assert "of 8 planned paths could not be deleted" in str(done.error)
    assert done.done and done.done.files == 5
    assert done.done.failed + done.done.skipped == 2, (
        "root makes it a mount point, which is skipped"
    )
    assert infos(tmp_path)[-1]["operationParameters"] == {"status": "FAILED"}
    again = chain.vacuum()
    assert again.error is None
    assert not (tmp_path / "stuck").exists()
    assert infos(tmp_path)[-1]["operationParameters"] == {"status": "COMPLETED"}


def test_a_directory_that_became_a_file_is_skipped_and_all_others_are_recorded(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    story(tmp_path)
    chain = chain_of(tmp_path)
    report = chain.plan()
    for stray in ("s1", "s2"):
        (tmp_path / "d" / stray).unlink()
    (tmp_path / "d").rmdir()
    (tmp_path / "d").write_bytes(b"a file now")

    done = chain.execute(report)

    outcomes = {path: outcome for path, (outcome, _) in chain.ledger(done).items()}
    assert outcomes.pop("d") == "skipped"
    assert outcomes == dict.fromkeys("xyz", "deleted") | dict.fromkeys(("d/s1", "d/s2"), "missing")


def test_history_shows_start_and_end_as_delta_writes_them(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = (
        TableBuilder(tmp_path)
        .at(days_ago=9)
        .create(features=["inCommitTimestamp"], configuration=ICT)
    )
    created = json.loads((table.log / f"{0:020}.json").read_text().splitlines()[0])
    created["commitInfo"]["inCommitTimestamp"] = 4_000_000_000_000
    rest = (table.log / f"{0:020}.json").read_text().splitlines()[1:]
    table.write_log(f"{0:020}.json", "\n".join([json.dumps(created), *rest]))
    spark.sql(f"INSERT INTO {delta_spark.table(tmp_path)} VALUES (1, 'a')").collect()
    table.stray("d/stray").age("**/*", 9)
    chain = chain_of(tmp_path)

    chain.vacuum()

    delta_spark.forget(spark)
    spark.sql(f"INSERT INTO {delta_spark.table(tmp_path)} VALUES (2, 'b')").collect()
    history = spark.sql(f"DESCRIBE HISTORY {delta_spark.table(tmp_path)}").collect()
    end, start = history[1], history[2]
    assert (start.operation, end.operation) == ("VACUUM START", "VACUUM END")
    assert start.operationParameters == {
        "retentionCheckEnabled": "false",
        "defaultRetentionMillis": "604800000",
        "specifiedRetentionMillis": "0",
    }
    assert start.operationMetrics == {"numFilesToDelete": "2", "sizeOfDataToDelete": "5"}
    assert end.operationParameters == {"status": "COMPLETED"}
    assert end.operationMetrics == {"numDeletedFiles": "2", "numVacuumedDirectories": "2"}
    times = [info["inCommitTimestamp"] for info in infos(tmp_path)]
    assert times == sorted(set(times))
    assert len(delta_spark.rows(spark, tmp_path)) == 2
    before = len(infos(tmp_path))
    assert chain.vacuum().done
    assert len(infos(tmp_path)) == before


def test_no_commits_where_none_are_wanted(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path)

    done = chain_of(tmp_path, log_commits=False).vacuum()

    assert done.done and (done.done.files, done.done.directories) == (5, 1)
    assert done.done.start_version is None
    assert len(infos(tmp_path)) == table.version + 1


CHANGES: dict[str, tuple[Callable[[TableBuilder], object], type[MaintError]]] = {
    "another table": (
        lambda t: t.commit([{"metaData": t.metadata | {"id": "another"}}]), StalePlanError,
    ),
    "unknown feature": (
        lambda t: t.commit([
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["new"]}}
        ]),
        UnsupportedFeatureError,
    ),
    "older version": (lambda t: (t.log / f"{2:020}.json").unlink(), StalePlanError),
    "gap": (
        lambda t: (t.commit([]), t.commit([]), (t.log / f"{3:020}.json").unlink()), MaintError,
    ),
}  # fmt: skip


def test_clocks_that_differ_are_refused_unless_allowed(tmp_path: Path, chain_of: ChainOf) -> None:
    story(tmp_path / "t")
    outcomes = []
    for allowed in (False, True):
        chain = chain_of(tmp_path / "t", allow_clock_skew=allowed)
        report = chain.plan()
        set_clock(chain, report.planned.plan.planned_ms + 6 * 60_000 + 100_000)
        outcomes.append(chain.launch(report.planned.plan.digest).error)
    refused, done = outcomes

    assert isinstance(refused, GuardError) and "clock" in str(refused)
    assert done is None
    assert not (tmp_path / "t/d/s1").exists()


def test_plan_that_no_longer_holds_is_refused_and_nothing_touched(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    story(tmp_path / "t")
    chain = chain_of(tmp_path / "t")
    report = chain.plan()
    digest = report.planned.plan.digest
    log = tree(tmp_path / "t/_delta_log")

    wrong = chain.launch("0" * 32)
    assert isinstance(wrong.error, StalePlanError)
    set_clock(chain, report.planned.plan.planned_ms + 86_400_001)
    late = chain.launch(digest)
    assert isinstance(late.error, StalePlanError)
    assert "old" in str(late.error)
    set_clock(chain, None)
    for what, (change, kind) in CHANGES.items():
        table = TableBuilder(tmp_path / "t")
        table.version, table.metadata = 2, TableBuilder(tmp_path / what).create().metadata
        change(table)
        before = tree(tmp_path / "t")
        error = chain.launch(digest).error
        assert isinstance(error, kind), what
        assert error.exit_code in {1, 3}
        assert tree(tmp_path / "t") == before
        for commit in (tmp_path / "t/_delta_log").iterdir():
            commit.unlink()
        for name, body in log.items():
            (tmp_path / "t/_delta_log" / name).write_bytes(body)

    assert chain.launch(digest).error is None
    assert not (tmp_path / "t/x").exists()


def test_missing_active_file_refuses_the_execution(tmp_path: Path, chain_of: ChainOf) -> None:
    story(tmp_path)
    (tmp_path / "b").unlink()
    chain = chain_of(tmp_path)
    report = chain.plan()
    before = tree(tmp_path)

    error = chain.launch(report.planned.plan.digest).error

    assert isinstance(error, GuardError)
    assert "1 active files were not found, b among them" in str(error)
    assert tree(tmp_path) == before
    assert chain_of(tmp_path, allow_missing_files=True).vacuum().done


def test_checksum_that_disagrees_refuses_the_plan(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path).checksum()
    crc = table.log / f"{2:020}.crc"
    crc.write_text(crc.read_text().replace('"numFiles": 3', '"numFiles": 4'))

    with pytest.raises(ChecksumMismatchError, match="records 4"):
        chain_of(tmp_path).plan()

    assert (tmp_path / "x").exists()


def plan_of(**numbers: int) -> VacuumPlan:
    values = {
        "version": 1, "cutoff_ms": 0, "retention_ms": 0, "planned_ms": 0, "files": 10,
        "directories": 0, "bytes": 50, "table_bytes": 100, "scanned_directories": 1,
        "missing_files": 0, "table_retention_ms": 0,
    }  # fmt: skip
    return VacuumPlan(
        table="t", table_id="i", digest="d", retention_asked=False, missing_example=None,
        **(values | numbers),
    )  # fmt: skip


def test_unattended_plan_up_to_its_limits_is_accepted() -> None:
    refuse_beyond(plan_of(), Limits(max_delete_files=10), attended=False)
    refuse_beyond(plan_of(bytes=100, files=99), Limits(max_delete_files=1), attended=True)
    refuse_beyond(plan_of(bytes=0, table_bytes=0, files=0), Limits(), attended=False)


@pytest.mark.parametrize(
    ("numbers", "named"), [({"bytes": 51}, "51.0%"), ({"files": 11}, "11 files")]
)
def test_unattended_plan_beyond_its_limits_is_refused(numbers: dict[str, int], named: str) -> None:
    with pytest.raises(GuardError, match=named):
        refuse_beyond(plan_of(**numbers), Limits(max_delete_files=10), attended=False)


def test_approval_is_by_hand_by_default() -> None:
    assert VacuumSettings().approval == "manual"


@pytest.mark.parametrize("when", ["before START", "after START"])
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"delta.deletedFileRetentionDuration": "interval 30 days"}, "retention was raised"),
        ({"delta.universalFormat.enabledFormats": "iceberg"}, "UniForm"),
    ],
)
def test_a_commit_that_protects_more_than_the_plan_stops_the_deletion(
    tmp_path: Path,
    chain_of: ChainOf,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    message: str,
    when: str,
) -> None:
    table = story(tmp_path).stray("metadata/s").age("**/*", 9)
    chain = chain_of(tmp_path)
    report = chain.plan()
    start = history.start

    def protect() -> None:
        table.commit(
            [{"metaData": table.metadata | {"configuration": properties}}],
            version=len(infos(tmp_path)),
        )

    def started(*args: Any, **kwargs: Any) -> int:
        version = start(*args, **kwargs)
        protect()
        return version

    if when == "before START":
        protect()
    else:
        monkeypatch.setattr(history, "start", started)
    before = {path for path in tree(tmp_path) if "_delta_log" not in path}

    with pytest.raises(MaintError, match=message):
        chain.execute(report)

    assert {path for path in tree(tmp_path) if "_delta_log" not in path} == before


def test_a_commit_that_restores_the_retention_after_start_stops_a_short_plan(
    tmp_path: Path, chain_of: ChainOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, start = story(tmp_path), history.start
    before = table.metadata
    report = (chain := chain_of(tmp_path)).plan()
    name = "delta.deletedFileRetentionDuration"
    table.commit([{"metaData": before | {"configuration": {name: "interval 0 hours"}}}])

    def started(*args: Any, **kwargs: Any) -> int:
        version = start(*args, **kwargs)
        table.commit([{"metaData": before}], version=len(infos(tmp_path)))
        return version

    monkeypatch.setattr(history, "start", started)
    own = chain.table.model_copy(update={"vacuum": VacuumSettings()})

    with pytest.raises(StalePlanError, match="retention was raised"):
        execute_vacuum(chain.launcher, own, report, by="a test")

    assert (tmp_path / "x").exists()


def _executed_once(chain: Chain, report: VacuumReport) -> bool:
    """Whether the plan counts as executed: it cannot be executed again."""
    return "was executed by run" in str(chain.launch(report.planned.plan.digest).error)


def test_a_deletion_whose_last_look_fails_is_complete(
    tmp_path: Path, chain_of: ChainOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    story(tmp_path)
    report = (chain := chain_of(tmp_path)).plan()
    (valid,) = chain.launcher.store.latest(
        chain.launcher.instance, chain.launcher.key(chain.table, "valid_files")
    )[1].parts()
    Path(valid.path).unlink()

    done = chain.execute(report)

    assert done.error is None
    assert done.done and (done.done.files, done.done.active_missing) == (5, None)
    assert _executed_once(chain, report)


def test_a_deletion_is_complete_when_spark_dies_after_it(
    tmp_path: Path, chain_of: ChainOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    story(tmp_path)
    report = (chain := chain_of(tmp_path)).plan()

    def gone(*_: object, **__: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr("maint_assets.assets.stages.vacuum_deletion.missing_files", gone)
    tags = spark_resource._Tags(lambda _: None, gone, gone)
    monkeypatch.setattr(spark_resource, "_tags", lambda _: tags)
    done = chain.execute(report)

    assert done.error is None
    assert done.done and done.done.files == 5
    assert _executed_once(chain, report)


def test_a_deletion_whose_end_cannot_be_committed_is_complete_and_says_so(
    tmp_path: Path, chain_of: ChainOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    story(tmp_path)
    report = (chain := chain_of(tmp_path)).plan()

    def full(*_: object, **__: object) -> int:
        raise CommitError("t", "4.json cannot be written", "allow writing")

    monkeypatch.setattr(history, "end", full)
    done = chain.execute(report)

    assert isinstance(done.error, CommitError)
    assert "all is deleted and recorded, but VACUUM END was not committed" in str(done.error)
    assert done.done and (done.done.files, done.done.end_version) == (5, None)
    assert _executed_once(chain, report)


def test_an_interrupt_after_the_last_path_leaves_a_complete_deletion(
    tmp_path: Path, chain_of: ChainOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    story(tmp_path)
    report = (chain := chain_of(tmp_path)).plan()

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("maint_assets.assets.stages.vacuum_deletion.refuse_unreached", interrupted)
    done = chain.execute(report)

    assert isinstance(done.error, StoppedError)
    assert done.done and done.done.files == 5
    assert infos(tmp_path)[-1]["operationParameters"] == {"status": "COMPLETED"}
