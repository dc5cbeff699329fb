"""The command line on a table in a bucket of a real S3 server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import TableBuilder

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


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


def test_a_table_on_s3_is_inspected_and_vacuumed_as_on_a_disk(
    s3_server: s3.Server, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=20).create(partition_columns=["p"])
    table.add("a", "b", "c", partition={"p": "1"}).remove("p=1/b").checkpoint()
    table.add("d", partition={"p": "2"}).stray("p=2/stray").stray("_hidden/x")
    uri = s3_server.upload(table.path, "t")
    keys = s3_server.keys("t")
    asked = ("--retention", "0 hours", "--allow-short-retention", "--paths")

    inspected, seen, complaint = run(s3_server, "inspect", uri, cwd=tmp_path)
    code, done, error = run(s3_server, "vacuum", uri, *asked, "--execute", cwd=tmp_path)

    assert (inspected, complaint) == (0, ""), seen
    assert (seen["table"], seen["version"], seen["live_files"]) == (uri, 3, 3)
    assert (code, error) == (0, ""), done
    assert done["paths"] == ["p=1/b", "p=2/stray"]
    assert (done["directories"], done["candidates"]["files"]) == ([], 2)
    assert (done["executed"], done["deleted"]["files"]) == (True, 2)
    assert keys - s3_server.keys("t") == {"p=1/b", "p=2/stray"}
    assert s3_server.keys("t") <= keys
