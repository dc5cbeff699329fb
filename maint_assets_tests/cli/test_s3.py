"""The command line on a table in a bucket of a real S3 server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import TableBuilder

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.running(tmp_path_factory.mktemp("weed")) as found:
        yield found


def run(server: s3.Server, *arguments: str, cwd: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and errors of the program."""
    done = subprocess.run(
        [Path(sys.executable).with_name("maint-assets"), *arguments, "--json"],
        env=os.environ | server.environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_a_table_on_s3_is_inspected_and_planned_as_on_a_disk(
    server: s3.Server, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=20).create(partition_columns=["p"])
    table.add("a", "b", "c", partition={"p": "1"}).remove("p=1/b").checkpoint()
    table.add("d", partition={"p": "2"}).stray("p=2/stray").stray("_hidden/x")
    uri = server.upload(table.path, "t")
    keys = server.keys("t")
    asked = ("--retention", "0 hours", "--allow-short-retention", "--paths")

    seen = run(server, "inspect", uri, cwd=tmp_path)[1]
    planned = run(server, "vacuum", uri, *asked, cwd=tmp_path)[1]
    code, _, error = run(server, "vacuum", uri, *asked, "--execute", cwd=tmp_path)

    assert (seen["table"], seen["version"], seen["live_files"]) == (uri, 3, 3)
    assert planned["paths"] == ["p=1/b", "p=2/stray"]
    assert (planned["directories"], planned["candidates"]["files"]) == ([], 2)
    assert code == 3
    assert "can only be inspected, and a VACUUM of it planned" in error
    assert server.keys("t") == keys
