"""Progress of a long stage: shown, logged, and without effect on the stage."""

import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from maint_assets.assets import progress
from maint_assets.assets.progress import SHOWN, Share, reporting_progress, tasks_of


def test_progress_is_shown_often_and_logged_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SHOWN_SECONDS", 0.01)
    monkeypatch.setattr(progress, "LOGGED_SECONDS", 0.05)
    found = iter([None, OSError("gone"), *(Share(n, 50, "paths") for n in range(51))])
    logged: list[str] = []

    def measured() -> Share | None:
        share = next(found, Share(50, 50, "paths"))
        if isinstance(share, OSError):
            raise share
        return share

    with (
        caplog.at_level(logging.INFO, SHOWN.name),
        reporting_progress("t: s 1/5", measured, log=logged.append),
    ):
        time.sleep(0.5)

    shares = [cast("Any", record).progress for record in caplog.records]
    assert len(shares) > 2 * len(logged) > 2
    assert {record.getMessage() for record in caplog.records} == {"t: s 1/5"}
    assert logged[0].startswith("t: s 1/5: ")
    assert "of 50 paths after 0 s" in logged[0]
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_tasks_of_a_running_job_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    session = SimpleNamespace(is_started=True)
    run = cast("Any", SimpleNamespace(spark=spark, session=session, is_stopping=False))
    seen = tmp_path / "seen"

    def all_but_two_wait(batches: Any) -> Any:
        for batch in batches:
            while batch.column(0)[0].as_py() > 1 and not seen.exists():
                time.sleep(0.01)
            yield pa.RecordBatch.from_arrays(batch.columns, names=["id"])

    job = threading.Thread(
        target=spark.range(0, 4, 1, 4).mapInArrow(all_but_two_wait, "id long").collect
    )
    found: set[tuple[int, int]] = set()

    job.start()
    while job.is_alive():
        share = tasks_of(run)
        if share is not None:
            found.add((share.done, share.total))
        if (2, 4) in found:
            seen.touch()

    assert {total for _, total in found} == {4}
    assert (2, 4) in found
    assert tasks_of(run) is None
