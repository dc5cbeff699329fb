"""``make bench-s3``: VACUUM and OPTIMIZE of tables on a real S3 server, ours and deltalake in turn.

ARGS="--objects 20000 --files 200 --delay-ms 30 --rounds 2"; the last line is JSON. Requests go
through a proxy that counts and delays them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from maint_assets_tests.benchmarks.measure import best, session, timed
from maint_assets_tests.benchmarks.tables import vacuum_table
from maint_assets_tests.support import s3
from maint_assets_tests.support.chain import Chain, set_clock

Work = Callable[[str, Path], Any]

ROWS = 24_000
"""Rows of a small file: about a megabyte."""

UPLOADS = 32


def main() -> None:
    """Run both peers in turn on copies of the same tables; seconds and requests of each."""
    parser = argparse.ArgumentParser(prog="make bench-s3")
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    os.environ.update(s3.NAMED_KEYS)
    with tempfile.TemporaryDirectory(prefix="maint-bench-") as made:
        folder = Path(made)
        (folder / "server").mkdir()
        vacuum_table(folder / "vacuum", args.objects)
        _small_files(folder / "optimize", args.files)
        session(folder, heap="4g")
        with s3.running(folder / "server") as server, server.proxied() as proxy:
            found = _rounds(args, folder, server=server, proxy=proxy)
    print(json.dumps({**vars(args), "min_median": {name: best(r) for name, r in found.items()}}))


def _rounds(
    args: argparse.Namespace, folder: Path, *, server: s3.Server, proxy: Any
) -> dict[str, list[dict[str, float]]]:
    settings = server.settings.model_copy(update={"endpoint": proxy.endpoint})
    options = server.deltalake | {"AWS_ENDPOINT_URL": proxy.endpoint}
    later_ms = int((time.time() + 3_600) * 1_000)

    def our_vacuum(uri: str, workspace: Path) -> None:
        asked = {"retention": "0 hours", "allow_short_retention": True, "allow_clock_skew": True}
        chain = Chain.on_store(uri, workspace, settings, **asked, max_delete_share=1)
        set_clock(chain, later_ms)
        done = chain.vacuum()
        assert done.error is None and done.done is not None and done.done.failed == 0

    def our_optimize(uri: str, workspace: Path) -> None:
        done = Chain.compacting_store(uri, workspace, settings).compact()
        assert done.error is None and done.done is not None and done.done.bins

    def their_vacuum(uri: str, _: Path) -> None:
        table = DeltaTable(uri, storage_options=options)
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)

    def their_optimize(uri: str, _: Path) -> None:
        DeltaTable(uri, storage_options=options).optimize.compact()

    peers: dict[str, tuple[str, Work]] = {
        "vacuum ours": ("vacuum", our_vacuum),
        "vacuum deltalake": ("vacuum", their_vacuum),
        "optimize ours": ("optimize", our_optimize),
        "optimize deltalake": ("optimize", their_optimize),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in peers}
    for number in range(args.rounds + 1):
        for name, (table, work) in peers.items():
            prefix = f"{name.replace(' ', '-')}-{number}"
            uri = _uploaded(server, folder / table, prefix)
            proxy.requests.clear()
            proxy.delay_s = args.delay_ms / 1_000
            seconds, _ = timed(lambda: work(uri, folder / prefix))  # noqa: B023 - called at once
            proxy.delay_s = 0.0
            row = {"seconds": seconds, "requests": float(sum(proxy.requests.values()))}
            print(number, name, row, flush=True)
            found[name] += [row] if number else []
    return found


def _small_files(path: Path, files: int) -> None:
    rng = np.random.default_rng(7)
    for number in range(files):
        numbers = np.arange(ROWS) + number * ROWS
        columns = {name: rng.random(ROWS) for name in "abcd"}
        few = pa.array(rng.integers(0, 50, ROWS)).cast(pa.string())
        write_deltalake(path, pa.table({"id": numbers, **columns, "few": few}), mode="append")
    DeltaTable(path).create_checkpoint()


def _uploaded(server: s3.Server, directory: Path, prefix: str) -> str:
    store, files = server.store(), [file for file in directory.rglob("*") if file.is_file()]

    def upload(file: Path) -> None:
        obstore.put(store, f"{prefix}/{file.relative_to(directory)}", file.read_bytes())

    with ThreadPoolExecutor(UPLOADS) as threads:
        list(threads.map(upload, files))
    return f"s3://{s3.BUCKET}/{prefix}"


if __name__ == "__main__":
    main()
