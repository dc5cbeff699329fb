"""Unusable workspaces are refused before anything is started or written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from maint_assets.assets.stage_store import StageStore
from maint_assets.assets.stages import vacuum
from maint_assets.cli.commands import cli
from maint_assets.errors import ConfigError, UnsupportedLocationError
from maint_assets.snapshot import head
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import Chain
from maint_assets_tests.support.mounts import read_only


@pytest.mark.parametrize(
    "place", ["t", "t/_delta_log", "t/_delta_log/x", "t/p=1", "file", "file/x"]
)
def test_a_workspace_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, place: str
) -> None:
    table = TableBuilder(tmp_path / "t").create().add("a")
    (tmp_path / "file").write_text("x")
    before = tree(tmp_path)
    asked = ["clean-log", str(table.path), "--workspace", str(tmp_path / place)]

    with pytest.raises(ConfigError, match="the workspace"):
        CliRunner().invoke(cli, asked, catch_exceptions=False)

    assert tree(tmp_path) == before


def test_a_table_by_a_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")

    with pytest.raises(UnsupportedLocationError, match="not UTF-8") as found:
        CliRunner().invoke(cli, ["inspect", path], catch_exceptions=False)

    assert str(found.value).isascii()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a table is read or Spark is started."""

    def never(*_: Any) -> Any:
        pytest.fail("too late")

    monkeypatch.setattr(StageStore, "spark", property(never))
    monkeypatch.setattr(head, "table_head", never)
    monkeypatch.setattr(vacuum, "table_head", never)


def _config(tmp_path: Path, workspace: str, name: str = "orders") -> Path:
    TableBuilder(tmp_path / "lake" / "orders").create().add("a")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "lake" / "orders")
    config = tmp_path / "maintenance.yaml"
    lines = [f"workspace: {workspace}", "tables:", f"- {{name: {name}, uri: ./lake/orders}}"]
    config.write_text("\n".join(lines))
    return config


PLACES = {
    "file": "file is not a directory",
    "file/x": "file is not a directory",
    "./lake/orders": "lies inside the table",
    "./lake/orders/x": "lies inside the table",
    "./lake/orders/_delta_log/x": "lies inside the table",
    "./link/x": "lies inside the table",
    "./lake": "lies inside the table",
    "s3://bucket/x": "s3://bucket/x cannot be used",
    "file://host/x": "file://host/x cannot be used",
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("place", PLACES)
def test_a_workspace_of_a_config_is_refused_before_anything_is_read(
    tmp_path: Path, place: str, command: str
) -> None:
    config = _config(tmp_path, place)
    before = tree(tmp_path)

    with pytest.raises(ConfigError, match=re.escape(PLACES[place])) as found:
        CliRunner().invoke(cli, [command, str(config)], catch_exceptions=False)

    assert str(found.value).startswith(f"{config}: the workspace ")
    assert found.value.remedy and "\n" not in str(found.value)
    assert found.value.exit_code == 2
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("unread")
def test_a_link_from_the_workspace_into_a_table_is_refused(tmp_path: Path) -> None:
    config = _config(tmp_path, "./work")
    (tmp_path / "lake" / "orders" / "plans").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "orders").symlink_to(tmp_path / "lake" / "orders" / "plans")

    with pytest.raises(ConfigError, match="lies inside the table"):
        CliRunner().invoke(cli, ["run", str(config)], catch_exceptions=False)


@pytest.mark.usefixtures("unread")
def test_a_workspace_that_is_read_only_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    config = _config(tmp_path, "./closed/work")
    (tmp_path / "closed").mkdir()

    with (
        read_only(tmp_path / "closed"),
        pytest.raises(ConfigError, match=r"no permission to create files in .*closed"),
    ):
        CliRunner().invoke(cli, ["run", str(config)], catch_exceptions=False)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("place", ["s3://bucket/x", "gs:x"])
def test_a_workspace_of_an_unknown_scheme_is_refused_for_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    table = TableBuilder(tmp_path / "t").create().add("a")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(ConfigError, match=f"the workspace {place} cannot be used"):
        CliRunner().invoke(
            cli, ["vacuum", str(table.path), "--workspace", place], catch_exceptions=False
        )

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("unread")
def test_a_stage_is_refused_before_spark_is_started(tmp_path: Path) -> None:
    _config(tmp_path, ".")
    chain = Chain.of(tmp_path / "lake" / "orders", tmp_path / "file")

    with pytest.raises(ConfigError, match="file is not a directory"):
        chain.plan()


def test_a_workspace_by_a_file_uri_is_made_where_it_says(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path, f"file://{tmp_path}/work")
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(cli, ["run", str(config), "--only", "vacuum"], catch_exceptions=False)

    assert done.exit_code == 0
    assert (tmp_path / "work" / "spark.log").exists()
    assert not (tmp_path / "file:").exists()
