"""Reading where a table contains something other than regular files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maint_assets.snapshot.head import table_head
from maint_assets.storage import read
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder


def lines(location: Location, path: str) -> list[bytes]:
    return list(read.lines(location, path))


@pytest.mark.parametrize("reading", [read.content, read.digest, lines])
def test_a_pipe_is_refused_at_once(tmp_path: Path, reading: Callable[..., Any]) -> None:
    """Opening it would block until somebody writes to it."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="a pipe"):
        reading(Location.of(str(tmp_path)), "pipe")


def test_a_hint_that_is_a_pipe_is_none(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create().add("a").checkpoint().add("b")
    (table.log / "_last_checkpoint").unlink(missing_ok=True)
    os.mkfifo(table.log / "_last_checkpoint")

    assert table_head(Location.of(str(tmp_path))).version == table.version
