"""``make demo-s3``: the lake of the demo in a real S3 server from PyPI, planned and maintained."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable

from maint_assets.cli.demo import make_lake
from maint_assets_tests.support import s3

TABLES = ("orders", "events", "customers")

CONFIG = """\
workspace: ./workspace
defaults:
  vacuum: {{retention: 0 hours, allow_short_retention: true}}
  storage:
    endpoint: {endpoint}
    region: us-east-1
    commit: exclusive
    credentials: {{access_key_id: $DEMO_KEY, secret_access_key: $DEMO_SECRET}}
tables:
"""
"""Objects are as old as their upload, so that the demo retains nothing that was removed."""


def main() -> None:
    """Run ``inspect``, the plans and their execution as a person would, and read the tables."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        s3.running(_made(temporary, "server")) as server,
    ):
        directory = Path(temporary)
        make_lake(directory / "local")
        uris = {name: server.upload(directory / "local/lake" / name, name) for name in TABLES}
        lines = [f"  - {{name: {name}, uri: {uri}}}\n" for name, uri in uris.items()]
        endpoint = server.environment["AWS_ENDPOINT_URL"]
        config = directory / "maintenance.yaml"
        config.write_text(CONFIG.format(endpoint=endpoint) + "".join(lines), encoding="utf-8")
        time.sleep(3)  # the retention of nothing, and the second by which stores cut times
        keys = {name: server.keys(name) for name in TABLES}
        rows = {name: _rows(uri, server) for name, uri in uris.items()}
        _run(server, "inspect", uris["orders"], cwd=directory)
        _run(server, "run", str(config), "--paths", cwd=directory)
        _run(server, "run", str(config), "--execute", "--yes", cwd=directory)
        for name, uri in uris.items():
            left, version = server.keys(name), DeltaTable(uri, storage_options=server.deltalake)
            gone, new = len(keys[name] - left), len(left - keys[name])
            same = "the same rows" if _rows(uri, server) == rows[name] else "OTHER ROWS"
            print(  # noqa: T201
                f"{name}: {gone} objects deleted, {new} new ones; deltalake reads version "
                f"{version.version()} with {same}"
            )


def _made(*parts: str) -> Path:
    path = Path(*parts)
    path.mkdir()
    return path


def _rows(uri: str, server: s3.Server) -> list[tuple[object, ...]]:
    table = DeltaTable(uri, storage_options=server.deltalake).to_pyarrow_table()
    return sorted(map(tuple, (row.values() for row in table.to_pylist())), key=repr)


def _run(server: s3.Server, *arguments: str, cwd: Path) -> None:
    """Run the program; it finds the access key under the names that the config gives."""
    print(f"\n$ maint-assets {' '.join(arguments)}", flush=True)  # noqa: T201
    keys = {
        "DEMO_KEY": server.environment["AWS_ACCESS_KEY_ID"],
        "DEMO_SECRET": server.environment["AWS_SECRET_ACCESS_KEY"],
    }
    program = Path(sys.executable).with_name("maint-assets")
    subprocess.run(
        [program, *arguments], env=os.environ | server.environment | keys, cwd=cwd, check=True
    )


if __name__ == "__main__":
    main()
