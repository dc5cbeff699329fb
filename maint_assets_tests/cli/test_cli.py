"""The contracts of the command line: JSON shapes, exit codes, one sentence per error, questions."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.assets.numbers import human_bytes
from maint_assets.cli import tables
from maint_assets.errors import StoppedError
from maint_assets.vacuum import history
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.shell import Shell, refused

PROGRAM = Path(sys.executable).with_name("maint-assets")


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    """One live file, and one that was removed long ago."""
    built = TableBuilder(tmp_path / "t").at(days_ago=30).create().add("live", "old")
    return built.remove("old")


@pytest.fixture
def run(
    spark: object,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Shell(capfd, monkeypatch)


def left(table: TableBuilder) -> set[str]:
    return {path.name for path in table.path.iterdir() if path.is_file()}


def test_a_table_in_a_directory_of_a_long_name_is_planned(run: Shell, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / ("t" * 250)).at(days_ago=30).create().add("a").remove("a")

    assert run.json("vacuum", table.path)["candidates"]["files"] == 1


def test_missing_files_are_allowed_by_an_option(run: Shell, table: TableBuilder) -> None:
    (table.path / "live").unlink()

    refused(
        run("vacuum", table.path, "--execute", "--json"), code=3, message="--allow-missing-files"
    )
    assert (table.path / "old").exists()
    done = run.json("vacuum", table.path, "--execute", "--yes", "--allow-missing-files")
    assert done["deleted"]["files"] == 1


def test_vacuum_plans_and_names_the_paths(run: Shell, table: TableBuilder) -> None:
    found = run.json("vacuum", table.path, "--paths")

    assert {
        "table", "version", "cutoff_ms", "executed", "plan_digest", "candidates", "by_kind",
        "deleted", "missing", "failed", "seconds", "ledger", "paths", "directories",
    } <= set(found)  # fmt: skip
    assert (found["executed"], found["paths"], found["directories"]) == (False, ["old"], [])
    assert found["candidates"]["files"] == 1
    assert found["deleted"] == {"files": 0, "directories": 0, "bytes": 0}
    assert left(table) == {"live", "old"}


def test_vacuum_executes_without_a_terminal_and_does_not_ask(
    run: Shell, table: TableBuilder
) -> None:
    found = run.json("vacuum", table.path, "--execute")

    assert (found["executed"], found["deleted"]["files"], found["failed"]) == (True, 1, 0)
    assert Path(found["ledger"]).is_dir()
    assert "paths" not in found
    assert left(table) == {"live"}


def test_vacuum_for_people_names_what_may_go(run: Shell, table: TableBuilder) -> None:
    code, out, _ = run("vacuum", table.path)

    assert code == 0
    assert "1 file" in out
    assert "old" in out


def test_vacuum_in_other_modes(run: Shell, table: TableBuilder, tmp_path: Path) -> None:
    table.stray("stray", age_days=20)
    entry = {"path": "stray", "size": 5, "isDir": False}
    rows = [entry | {"modificationTime": table.mtime_ms("stray")}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "inventory.parquet")

    lite = run.json("vacuum", "t", "--mode", "lite", "--paths")
    inventory = run.json("vacuum", "t", "--inventory", "./inventory.parquet", "--paths")

    assert (lite["mode"], lite["paths"]) == ("lite", ["old"])
    assert (inventory["mode"], inventory["paths"]) == ("inventory", ["stray"])
    refused(run("vacuum", "t", "--mode", "inventory"), code=2, message="inventory")


def test_inspect_has_its_keys(run: Shell, table: TableBuilder) -> None:
    found = run.json("inspect", table.path)

    assert {
        "table", "table_id", "version", "timestamp_ms", "live_files", "live_bytes", "tombstones",
        "reader_features", "writer_features", "partition_columns", "refused",
    } <= set(found)  # fmt: skip
    assert (found["version"], found["live_files"], found["tombstones"]) == (2, 1, 1)


def test_checkpoint_is_written_at_once_and_only_once(run: Shell, table: TableBuilder) -> None:
    found = run.json("checkpoint", table.path, "--execute", "--yes")

    name = "_delta_log/00000000000000000002.checkpoint.parquet"
    size = (table.path / name).stat().st_size
    assert found.pop("seconds") > 0
    assert found == {
        "table": str(table.path), "version": 2, "made": True, "files": [name], "actions": 3,
        "adds": 1, "tombstones": 0, "bytes": size, "hint_moved": True,
    }  # fmt: skip
    again = run.json("checkpoint", table.path)
    assert (again["version"], again["made"], again["files"]) == (2, False, [])
    assert left(table) == {"live", "old"}


def test_checkpoint_for_people_says_what_it_holds(run: Shell, table: TableBuilder) -> None:
    _, first, _ = run("checkpoint", table.path)
    _, second, _ = run("checkpoint", table.path)

    assert "checkpoint of version 2 with 3 actions (1 live file, 0 tombstones) in 1 file" in first
    assert "version 2 has a checkpoint already" in second


def test_checkpoint_of_what_cannot_have_one_is_refused(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    strange = TableBuilder(tmp_path / "t").create(features=["neverHeardOf"]).add("a")

    refused(run("checkpoint", tmp_path / "plain"), code=3, message="plain")
    refused(run("checkpoint", strange.path, "--json"), code=3, message="neverHeardOf")
    assert not list(strange.log.glob("*checkpoint*"))


def test_a_too_short_retention_is_refused(run: Shell, table: TableBuilder) -> None:
    found = run("vacuum", table.path, "--retention", "1 hour", "--json")

    refused(found, code=3, message="--allow-short-retention")


def test_a_short_retention_may_be_allowed(run: Shell, table: TableBuilder) -> None:
    table.stray("young", age_days=1)

    found = run.json(
        "vacuum", table.path, "--retention", "1 hour", "--allow-short-retention", "--paths"
    )

    assert found["paths"] == ["old", "young"]


def test_what_is_no_delta_table_is_refused(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()

    refused(run("vacuum", tmp_path / "plain", "--json"), code=3, message="plain")


def test_a_corrupt_log_fails(run: Shell, table: TableBuilder) -> None:
    table.write_log("00000000000000000003.json", "{")

    refused(run("vacuum", table.path, "--json"), code=1, message="00000000000000000003.json")


def test_an_unknown_feature_is_refused(run: Shell, tmp_path: Path) -> None:
    built = TableBuilder(tmp_path / "t").create(features=["neverHeardOf"]).add("a")

    refused(run("vacuum", built.path, "--json"), code=3, message="neverHeardOf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vacuum", "t", "--retention", "soon"], "a duration reads like"),
        (["check", "none.yaml"], "none.yaml"),
        (["run", "none.yaml"], "none.yaml"),
        (["vacuum", "t", "--retention", ""], "--retention: a duration reads like"),
        (["vacuum", "t", "--inventory", ""], "--inventory: "),
        (["optimize", "t", "--zorder-by", ""], "--zorder-by: "),
        (["optimize", "t", "--zorder-by", "a,"], "--zorder-by: "),
        (["vacuum", "t", "--workspace", "~nobody-here/x"], "the workspace ~nobody-here/x"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(run: Shell, arguments: list[str], message: str) -> None:
    refused(run(*arguments), code=2, message=message)


def test_an_error_is_printed_as_it_is_whatever_it_contains(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "x\\[").mkdir()

    refused(run("vacuum", r"x\[/red]", "--json"), code=3, message=r"x\[/red]")


@pytest.mark.parametrize("home", ["relative", "/nowhere/at/all", "broken"])
def test_an_unusable_dagster_home_is_a_usage_error(
    run: Shell, table: TableBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "dagster.yaml").write_text("storage: [")
    absolute = str(tmp_path / home) if home == "broken" else home
    monkeypatch.setenv("DAGSTER_HOME", absolute)

    refused(run("vacuum", table.path), code=2, message=f"DAGSTER_HOME: {absolute} cannot be used")


def test_an_unknown_option_is_a_usage_error(run: Shell) -> None:
    code, out, err = run("vacuum", "t", "--retain", "7 days")

    assert (code, out) == (2, "")
    assert "--retain" in err


def test_check_distinguishes_valid_from_invalid(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("tables: [{name: a, uri: a}]")
    (tmp_path / "bad.yaml").write_text("tables:\n- {name: a, url: a}")

    found = run.json("check", "good.yaml")

    assert (found["valid"], found["tables"]) == (True, ["a"])
    refused(run("check", "bad.yaml"), code=2, message="bad.yaml:2: unknown key 'url'")


def test_check_refuses_two_tables_at_one_location(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("tables: [{name: a, uri: t}, {name: b, uri: ./t/}]")

    refused(run("check", "wrong.yaml"), code=2, message="a and b have one location")


def test_check_refuses_a_table_that_depends_on_itself(run: Shell, tmp_path: Path) -> None:
    table = "{name: a, uri: t, depends_on: [maintenance/a/deletion]}"
    (tmp_path / "wrong.yaml").write_text(f"tables: [{table}]")

    refused(run("check", "wrong.yaml"), code=2, message="depends_on makes a cycle")


def test_a_name_that_the_terminal_cannot_show_is_shown_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "\u00fc.yaml").write_text("tables: [{name: a, uri: t}]")

    found = subprocess.run(
        [PROGRAM, "check", "\u00fc.yaml"], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip

    assert (found.returncode, found.stderr) == (0, "")
    assert r"\xfc.yaml" in found.stdout


@pytest.mark.parametrize("wrong", ["schedule: often", "schedule: 0 3 * *", "owners: [nobody]"])
def test_check_finds_what_only_dagster_can_tell(run: Shell, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "wrong.yaml").write_text(f"tables:\n- name: a\n  uri: a\n  {wrong}")

    refused(run("check", "wrong.yaml"), code=2, message=wrong.split(": ")[1].strip("[]"))


def test_run_does_the_good_table_and_says_what_is_wrong_with_the_bad(
    run: Shell, table: TableBuilder, tmp_path: Path
) -> None:
    config = "tables: [{name: bad, uri: nowhere}, {name: good, uri: t}]"
    (tmp_path / "maintenance.yaml").write_text(config)

    code, out, _ = run("run", "--execute", "--json", "--paths")

    tables = json.loads(out)["tables"]
    assert code == 3
    assert "nowhere" in tables["bad"]["error"]
    assert tables["good"]["error"] is None
    assert tables["good"]["vacuum"]["paths"] == ["old"]
    assert left(table) == {"live"}


def test_run_tells_the_errors_of_all_branches_and_the_exit_code_of_the_worst(
    run: Shell, table: TableBuilder, tmp_path: Path
) -> None:
    settings = "vacuum: {retention: 1 hour}, compaction: {where: q = 1}"
    (tmp_path / "maintenance.yaml").write_text(f"tables: [{{name: t, uri: t, {settings}}}]")

    code, out, _ = run("run", "--json")

    told = json.loads(out)["tables"]["t"]
    assert list(told["errors"]) == ["vacuum", "compaction"]
    assert told["error"] == told["errors"]["vacuum"]
    assert code == 3


def test_a_table_that_is_named_twice_is_maintained_once(
    run: Shell, table: TableBuilder, tmp_path: Path
) -> None:
    (tmp_path / "maintenance.yaml").write_text("tables: [{name: t, uri: t}]")

    named = ("--table", "t", "--table", "t")
    found = run.json("run", "--only", "vacuum", *named, "--execute", "--yes")

    assert found["tables"]["t"]["vacuum"]["deleted"]["files"] == 1
    assert left(table) == {"live"}


@pytest.mark.parametrize(
    "ended", [StoppedError("b", "stopped"), click.Abort(), ZeroDivisionError("a defect")]
)
def test_what_run_has_executed_is_told_whatever_ends_it(
    run: Shell,
    table: TableBuilder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: Exception,
) -> None:
    TableBuilder(tmp_path / "b").create()
    (tmp_path / "maintenance.yaml").write_text("tables: [{name: a, uri: t}, {name: b, uri: b}]")
    execute = tables.execute_vacuum

    def ending(launcher: Any, table: Any, report: Any, *, by: str | None) -> Any:
        if table.name == "b":
            raise ended
        return execute(launcher, table, report, by=by)

    monkeypatch.setitem(tables._DOORS, "vacuum", (tables.plan_vacuum, ending))
    code, out, _ = run("run", "--only", "vacuum", "--execute", "--json")

    assert (code, left(table)) == (1, {"live"})
    told = json.loads(out)["tables"]
    assert told["a"]["vacuum"]["deleted"]["files"] == 1
    assert told["b"]["vacuum"]["executed"] is False
    assert told["b"]["errors"]["vacuum"]


def test_run_without_a_terminal_keeps_to_the_limits_unless_yes_is_given(
    run: Shell, table: TableBuilder, tmp_path: Path
) -> None:
    config = "tables: [{name: t, uri: t, vacuum: {max_delete_files: 0}}]"
    (tmp_path / "maintenance.yaml").write_text(config)
    options = ("run", "--only", "vacuum", "--execute")

    code, out, _ = run(*options, "--json")
    assert (code, left(table)) == (3, {"live", "old"})
    assert "more than max_delete_files of 0" in json.loads(out)["tables"]["t"]["error"]
    run.json(*options, "--yes")
    assert left(table) == {"live"}


@pytest.mark.parametrize(("options", "by"), [((), None), (("--yes",), "uid 4711")])
def test_only_a_person_who_agreed_is_recorded_as_the_approver(
    run: Shell,
    table: TableBuilder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    by: str | None,
) -> None:
    """An account without a name is recorded by its number."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4711)

    run.json("vacuum", table.path, "--execute", *options)

    (summary,) = tmp_path.glob(".maint/*/deletion/*/summary.json")
    assert json.loads(summary.read_text())["approved_by"] == by


@pytest.mark.jvm
@pytest.mark.slow
def test_on_a_terminal_it_asks_and_no_deletes_nothing(table: TableBuilder, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")

    found = subprocess.run(
        [PROGRAM, "vacuum", table.path, "--execute"],
        stdin=theirs, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)

    assert found.returncode == 0, found.stderr
    assert "Delete 1 files" in found.stderr
    assert left(table) == {"live", "old"}


@pytest.fixture
def small(tmp_path: Path) -> TableBuilder:
    """Three small files that can be merged into one."""
    built = TableBuilder(tmp_path / "s").at(days_ago=3).create(partition_columns=["day"])
    for name in "abc":
        built.add(f"{name}.parquet", partition={"day": "2026-01-01"})
    return built


def test_optimize_plans_and_says_what_stays(run: Shell, small: TableBuilder) -> None:
    small.add("d.parquet", partition={"day": "2026-01-02"})

    found = run.json("optimize", small.path)

    assert (found["executed"], found["bins"], found["version_after"]) == (False, 1, None)
    assert found["candidates"]["files"] == 3 and found["files_removed"] == 0
    assert (found["metrics"], found["verified_bins"]) == (None, 0)
    assert [(each["reason"], each["files"]) for each in found["left_out"]] == [("alone", 1)]


def test_optimize_executes(run: Shell, small: TableBuilder) -> None:
    found = run.json("optimize", small.path, "--execute")

    assert (found["version_before"], found["version_after"]) == (3, 4)
    assert (found["files_removed"], found["files_added"], found["rows"]) == (3, 1, 6)
    assert Path(found["ledger"]).is_dir()
    assert (found["verified_bins"], found["metrics"]["filesRemoved"]["totalFiles"]) == (1, 3)
    assert run.json("optimize", small.path, "--execute")["version_after"] is None


def test_optimize_says_in_the_terminal_what_it_did(run: Shell, small: TableBuilder) -> None:
    code, out, _ = run("optimize", small.path, "--execute", "--paths")

    assert code == 0
    assert "3 files" in out and "day=2026-01-01/a.parquet" in out
    assert "committed in version 4" in " ".join(out.split())
    size = human_bytes(next(small.path.rglob("part-*.parquet")).stat().st_size)
    assert f"after 1 {size} {size} {size} {size}" in " ".join(out.split())
    assert "1 partition, 1 bin, 1 commit; 0 of 3 considered files stay." in out
    assert "Rows compared in 1 of 1 bin." in out


def test_optimize_compares_no_rows_if_asked(run: Shell, small: TableBuilder) -> None:
    code, out, _ = run("optimize", small.path, "--execute", "--verify-rows", "off")

    assert code == 0
    assert "Rows compared in no bin." in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--where", "q = 1"), "`q`, which is not a partition column"),
        (("--where", "day ="), "is not valid"),
        (("--target-size", "big"), "a size reads like"),
        (("--target-size", "1MB", "--min-size", "2MB"), "larger than target_file_size"),
    ],
)
def test_optimize_says_what_it_cannot_take(
    options: tuple[str, ...], message: str, run: Shell, small: TableBuilder
) -> None:
    refused(run("optimize", small.path, *options), code=2, message=message)


def test_a_deletion_without_its_last_look_says_so(
    run: Shell, table: TableBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError("the storage is gone")

    monkeypatch.setattr("maint_assets.assets.stages.vacuum_deletion.missing_files", failing)

    code, out, _ = run("vacuum", table.path, "--execute")

    assert (code, left(table)) == (0, {"live"})
    assert "live files are still there was not checked" in " ".join(out.split())


def test_a_live_file_that_is_gone_after_the_deletion_is_reported_in_a_sentence(
    run: Shell, table: TableBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a Dagster error: somebody else deleted the file meanwhile."""
    start = history.start

    def started(*args: Any, **kwargs: Any) -> int:
        (table.path / "live").unlink()
        return start(*args, **kwargs)

    monkeypatch.setattr(history, "start", started)

    code, _, error = run("vacuum", table.path, "--execute", "--yes")

    assert code == 1
    assert "the check active_files_are_there failed: active_missing 1" in error
    assert "Dagster" not in error
