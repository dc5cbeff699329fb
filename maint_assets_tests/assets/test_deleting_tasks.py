"""The open batches of a killed run are found without reading the ledgers of all runs."""

import errno
import os
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.assets import deleting_tasks
from maint_assets.assets.deleting_tasks import settle_former
from maint_assets.assets.stage_run import StageRun
from maint_assets.config import StorageSettings
from maint_assets.datasets import intents
from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.intents import open_intents, write_intent
from maint_assets.datasets.ledger import settle
from maint_assets.storage.location import Location
from maint_assets.vacuum.deletion import DELETION_SCHEMA
from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain

RUNS = 5_000
MOST_SECONDS = 0.05


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    table = TableBuilder(tmp_path / "t").at(days_ago=30).create().add("live", "old").remove("old")
    return Chain.of(table.path, tmp_path / "out", max_delete_share=1)


def stage_run(chain: Chain) -> StageRun:
    """A run of the deletion of the chain's table."""
    launcher = chain.launcher
    key = launcher.key(chain.table, "deletion")
    return StageRun(chain.table, "deletion", key, launcher.store, launcher.instance, ("run",))


def planned(*paths: str) -> pa.Table:
    """Rows of a plan with nothing but their paths."""
    return pa.Table.from_pylist([{"path": path} for path in paths], arrow_schema(DELETION_SCHEMA))


@pytest.mark.slow
def test_thousands_of_old_runs_cost_nothing(chain: Chain) -> None:
    for number in range(RUNS):
        for stage in ("deletion", "deleted_logs"):
            run = chain.launcher.store.dataset("t", stage, f"run-{number}")
            Path(run.rows_location.path).mkdir(parents=True)

    began = time.process_time()
    settle_former(chain.launcher.store, chain.table)

    assert time.process_time() - began < MOST_SECONDS


@pytest.mark.usefixtures("spark")
def test_a_run_that_ended_leaves_nothing_to_settle(chain: Chain, tmp_path: Path) -> None:
    chain.vacuum()

    assert not list((tmp_path / "out" / "t" / "unsettled").iterdir())


def test_a_mark_goes_when_no_task_can_come_any_more(chain: Chain, tmp_path: Path) -> None:
    mark = tmp_path / "out" / "t" / "unsettled" / "deletion.run"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(msgspec.json.encode(Location.of(chain.table.uri)))

    settle_former(chain.launcher.store, chain.table)
    assert mark.exists()
    os.utime(mark, (0, 0))
    settle_former(chain.launcher.store, chain.table)

    assert not mark.exists()


@pytest.mark.usefixtures("spark")
def test_what_a_killed_run_left_is_looked_for_where_its_table_lay(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of that name may now be at another path, without any of the files."""
    monkeypatch.setattr("maint_assets.assets.deleting_tasks._settled", lambda *_, **__: 1)
    chain.vacuum()
    (mark,) = (tmp_path / "out" / "t" / "unsettled").iterdir()
    ledger = chain.launcher.store.dataset("t", *mark.name.split(".")).rows_location
    write_intent(ledger, "batch", planned("live"))
    monkeypatch.setattr("maint_assets.datasets.intents._started", lambda _: "another start")
    moved = TableBuilder(tmp_path / "moved").create()

    settle_former(chain.launcher.store, chain.table.model_copy(update={"uri": str(moved.path)}))

    rows = pq.read_table(ledger.file("part-batch.parquet")).to_pylist()
    assert [(row["path"], row["outcome"]) for row in rows] == [("live", "skipped")]


def test_a_mark_stays_while_a_batch_is_open(chain: Chain, tmp_path: Path) -> None:
    mark = tmp_path / "out" / "t" / "unsettled" / "deletion.run"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(msgspec.json.encode(Location.of(chain.table.uri)))
    os.utime(mark, (0, 0))
    ledger = Location.of(str(tmp_path / "out" / "t" / "deletion" / "run" / "rows"))
    write_intent(ledger, "batch", pa.table({"path": ["old"]}))

    settle_former(chain.launcher.store, chain.table)

    assert mark.exists()


def test_a_batch_on_a_store_is_settled_with_the_options_of_its_own_run(
    tmp_path: Path, s3_server: s3.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.put("settled/_delta_log/0.json", "settled/live")
    chain = Chain.on_store(f"s3://{s3.BUCKET}/settled", tmp_path / "out", s3_server.settings)
    run = stage_run(chain)
    deleting_tasks._marked(run)
    write_intent(run.output.rows_location, "batch", planned("live", "gone"))
    monkeypatch.setattr("maint_assets.datasets.intents._started", lambda _: "another start")

    moved = chain.table.model_copy(update={"uri": str(tmp_path), "storage": StorageSettings()})
    settle_former(chain.launcher.store, moved)

    rows = pq.read_table(run.output.rows_location.file("part-batch.parquet")).to_pylist()
    assert [row["outcome"] for row in rows] == ["skipped", "deleted"]


def test_a_process_of_another_pid_namespace_or_boot_is_not_looked_up_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers on one host may have its name, and pids of their own."""
    ledger = Location.of(str(tmp_path / "ledger"))
    write_intent(ledger, "batch", planned("live"))
    intents._machine.cache_clear()
    monkeypatch.setattr("pathlib.Path.readlink", lambda _: Path("pid:[4711]"))
    (intent,) = open_intents(ledger)
    now_s = intent.path.stat().st_mtime
    monkeypatch.setattr("maint_assets.datasets.intents._started", lambda _: None)

    assert intent.is_acting(now_s=now_s, lease_s=600)
    assert not intent.is_acting(now_s=now_s + 601, lease_s=600)
    intents._machine.cache_clear()


def test_a_mark_stays_when_its_batches_cannot_be_settled(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    run = stage_run(chain)
    monkeypatch.setattr(deleting_tasks, "settle", failing)

    with deleting_tasks.deleting(run, 1, digest="d"):
        pass

    assert list((Path(run.output.location.path).parents[1] / "unsettled").iterdir())


def test_other_files_beside_the_marks_are_left_alone(chain: Chain, tmp_path: Path) -> None:
    unsettled = tmp_path / "out" / "t" / "unsettled"
    unsettled.mkdir(parents=True)
    (unsettled / ".DS_Store").touch()
    (unsettled / "deletion.run").write_bytes(b"\xff")

    settle_former(chain.launcher.store, chain.table)

    assert len(list(unsettled.iterdir())) == 2


def test_a_batch_stays_open_while_its_table_is_not_there(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unmounted disk shows an empty directory, which is no evidence of what was deleted."""
    unsettled = tmp_path / "out" / "t" / "unsettled"
    unsettled.mkdir(parents=True)
    mark = unsettled / "deletion.run"
    mark.write_bytes(msgspec.json.encode(Location.of(chain.table.uri)))
    os.utime(mark, (0, 0))
    ledger = Location.of(str(tmp_path / "out" / "t" / "deletion" / "run" / "rows"))
    write_intent(ledger, "batch", planned("live", "never there"))
    monkeypatch.setattr("maint_assets.datasets.intents._started", lambda _: "another start")
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    (tmp_path / "t").mkdir()

    settle_former(chain.launcher.store, chain.table)
    assert (mark.exists(), list(Path(ledger.path).glob("*.parquet"))) == (True, [])
    (tmp_path / "t").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "t")
    settle_former(chain.launcher.store, chain.table)

    rows = pq.read_table(ledger.file("part-batch.parquet")).to_pylist()
    assert [(row["path"], row["outcome"]) for row in rows] == [
        ("live", "skipped"),
        ("never there", "deleted"),
    ]
    assert not mark.exists()


def test_a_batch_stays_open_while_its_files_cannot_be_looked_at(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk error is no evidence of what was deleted."""
    ledger = Location.of(str(tmp_path / "ledger"))
    write_intent(ledger, "batch", planned("live"))

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("maint_assets.storage.local.size_and_mtime", failing)
    with pytest.raises(OSError, match="Input/output error"):
        settle(
            ledger,
            schema=arrow_schema(DELETION_SCHEMA),
            table=Location.of(chain.table.uri),
            is_over=lambda _: True,
        )

    assert not list(Path(ledger.path).glob("*.parquet"))
    assert len(list(open_intents(ledger))) == 1
