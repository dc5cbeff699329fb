"""``maint-assets clean-log``: its JSON, its exit codes, its output and its questions."""

import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maint_assets_tests.support.log_builder import LogBuilder
from maint_assets_tests.support.mounts import read_only
from maint_assets_tests.support.shell import Shell, refused

AGES_DAYS = (40, 39, 38, 37, 36, 35, 34, 33, 3, 2, 1)
KEYS = {
    "table", "version", "mode", "cutoff_ms", "cutoff_version", "anchor_version", "creates_anchor",
    "stop_reason", "rejected_checkpoints", "notes", "executed", "plan_digest", "planned",
    "planned_bytes", "deleted", "deleted_bytes", "missing", "failed", "skipped", "log_files",
    "log_bytes", "earliest_version_before", "earliest_version_after", "checkpoint_written",
    "seconds", "ledger", "plan",
}  # fmt: skip


@pytest.fixture
def run(
    spark: object,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # each sentence on one line
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Shell(capfd, monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    """A log whose versions 0 to 7 are older than the cutoff, with a checkpoint of version 5."""
    return LogBuilder(tmp_path / "t").commits(AGES_DAYS).checkpoint(5)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as stdin; what the test writes to it is typed there."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours
    os.close(ours)


def _one_line(text: str) -> str:
    """The output without the line breaks of the terminal."""
    return " ".join(text.split())


def left(log: LogBuilder) -> list[int]:
    """The versions whose commits still exist."""
    return sorted(int(file.stem) for file in log.log.glob("*.json"))


def test_it_plans_and_names_the_files(run: Shell, log: LogBuilder) -> None:
    found = run.json("clean-log", log.path, "--paths")

    assert set(found) == {*KEYS, "paths"}
    assert (found["executed"], found["anchor_version"], found["stop_reason"]) == (False, 5, None)
    assert (found["planned"], found["deleted"]) == ({"commit": 5}, {})
    assert found["paths"] == [f"_delta_log/{version:020}.json" for version in range(5)]
    assert (found["earliest_version_before"], found["earliest_version_after"]) == (0, 5)
    assert left(log) == list(range(11))


def test_it_executes_without_a_terminal(run: Shell, log: LogBuilder) -> None:
    found = run.json("clean-log", log.path, "--execute")

    assert set(found) == KEYS
    assert (found["executed"], found["deleted"]) == (True, {"commit": 5})
    assert (found["missing"], found["failed"], found["skipped"]) == (0, 0, 0)
    assert Path(found["ledger"]).is_dir()
    assert left(log) == list(range(5, 11))


def test_a_checkpoint_is_written_where_it_is_asked_for(run: Shell, tmp_path: Path) -> None:
    log = LogBuilder(tmp_path / "t").commits(AGES_DAYS)

    code, out, _ = run("clean-log", "t", "--create-anchor-checkpoint", "--execute")

    assert code == 0
    assert "The log then begins with checkpoint 7, which is written first" in _one_line(out)
    assert "Written: checkpoint 7." in _one_line(out)
    assert left(log) == [7, 8, 9, 10]


def test_a_truncated_checkpoint_is_named_and_an_older_one_taken(
    run: Shell, log: LogBuilder
) -> None:
    log.checkpoint(7)
    file = log.log / log.written[0]
    file.write_bytes(file.read_bytes()[:100])

    code, out, _ = run("clean-log", log.path)

    assert code == 0
    assert f"not sound: checkpoint {7:020}.checkpoint.parquet cannot be read" in _one_line(out)
    assert "The log then begins with checkpoint 5" in _one_line(out)


def test_a_person_reads_the_plan_is_asked_and_says_no(
    run: Shell, log: LogBuilder, terminal: int
) -> None:
    os.write(terminal, b"n\n")

    code, out, err = run("clean-log", log.path, "--execute", "--paths")

    assert code == 0
    assert "Versions are kept for 30 days: since" in _one_line(out)
    assert "when version 7 was the newest." in _one_line(out)
    assert "commit 5" in _one_line(out)
    assert (
        "The log then begins with checkpoint 5; versions 0 to 4 can no longer be read."
        in _one_line(out)
    )
    assert f"_delta_log/{4:020}.json" in out.splitlines()
    assert "Delete 5 log files of" in err
    assert "and end time travel to 5 versions? [y/N]" in err
    assert left(log) == list(range(11))


def test_a_person_says_yes_and_reads_what_went_and_what_is_left(
    run: Shell, log: LogBuilder, terminal: int
) -> None:
    os.write(terminal, b"y\n")

    code, out, _ = run("clean-log", log.path, "--execute")

    assert code == 0
    assert "Deleted 5 log files" in _one_line(out)
    assert "7 files, " in _one_line(out)
    assert "are left; versions from 5 on can be read." in _one_line(out)
    assert left(log) == list(range(5, 11))


def test_a_person_reads_why_nothing_may_go_and_is_not_asked(
    run: Shell, tmp_path: Path, terminal: int
) -> None:
    LogBuilder(tmp_path / "t").commits(AGES_DAYS)

    code, out, err = run("clean-log", "t", "--execute")

    assert code == 0
    assert "Nothing to delete: no checkpoint is old enough to be the anchor" in _one_line(out)
    assert "(no_checkpoint_before_cutoff); create_anchor_checkpoint may write one." in _one_line(
        out
    )
    assert "[y/N]" not in err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--retention", "12 hours"), 3, "log retention of 12 hours is below the table's log"),
        (("--retention", "-1 days"), 3, "can't be less than 0 hours"),
        (("--retention", "soon"), 2, "a duration reads like"),
        (("--min-keep-version", "-1"), 2, "--min-keep-version: "),
        (("--mode", "spark", "--min-keep-version", "0"), 2, "--mode: mode spark has no"),
    ],
)
def test_it_says_what_it_cannot_take(
    run: Shell, log: LogBuilder, options: tuple[str, ...], code: int, message: str
) -> None:
    refused(run("clean-log", log.path, *options, "--json"), code=code, message=message)
    assert left(log) == list(range(11))


def test_what_is_no_delta_table_is_refused(run: Shell, tmp_path: Path) -> None:
    refused(run("clean-log", tmp_path / "none", "--json"), code=3, message="is not a Delta table")


def test_an_unknown_feature_is_refused(run: Shell, tmp_path: Path) -> None:
    LogBuilder(tmp_path / "t", features=["neverHeardOf"]).commits(AGES_DAYS).checkpoint(5)

    refused(run("clean-log", "t", "--json"), code=3, message="'neverHeardOf' is unknown")


def test_a_broken_commit_fails(run: Shell, log: LogBuilder) -> None:
    log.write(f"{11:020}.json", "{", log.ago_ms(0))

    refused(run("clean-log", log.path, "--json"), code=1, message=f"{11:020}.json")


def test_a_log_that_cannot_be_written_is_refused_before_anything_goes(
    run: Shell, log: LogBuilder
) -> None:
    with read_only(log.log):
        found = run("clean-log", log.path, "--execute", "--json")

    refused(found, code=3, message="its storage cannot be written")
    assert left(log) == list(range(11))
