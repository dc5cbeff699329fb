"""Workspaces that cannot be, refused before anything is started or written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from maint_assets.cli import cli
from maint_assets.errors import ConfigError, UnsupportedLocationError
from maint_assets_tests.builder import TableBuilder, tree


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
