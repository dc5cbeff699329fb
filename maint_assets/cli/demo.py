"""The command ``demo``: a small lake of real Delta tables, and its maintenance."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from maint_assets.cli.vacuum import execute_vacuum, plan_vacuum, show_done, show_plan
from maint_assets.config import load
from maint_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rich.console import Console

    from maint_assets.cli.launcher import Launcher

_OLD_DAYS = 30
_MARKER = ".maint-assets-demo"
_MADE = ("lake", "workspace", "maintenance.yaml")
"""What the demo makes in its directory, and removes when it is run again."""

_CONFIG = """\
workspace: ./workspace
defaults:
  schedule: "0 3 * * *"
tables:
  - name: orders
    uri: ./lake/orders
    depends_on: [raw/orders]
  - name: events
    uri: ./lake/events
    vacuum: {approval: auto, max_delete_share: 0.9}
  - name: customers
    uri: ./lake/customers
"""


def show_demo(
    console: Console,
    directory: Path,
    *,
    launcher: Callable[[Any], AbstractContextManager[Launcher]],
) -> None:
    """Make the lake, plan and execute the vacuum of each table, and show what to try next."""
    config = make_lake(directory)
    console.rule("three Delta tables, some of their files no longer needed")
    settings = load(config)
    with launcher(settings) as launched:
        for table in settings.tables:
            report = plan_vacuum(launched, table)
            console.rule(f"{table.name}: the plan")
            show_plan(console, report)
            if table.name == "customers":
                console.print("Left as planned: approve it in the UI.")
                continue
            console.rule(f"{table.name}: executed")
            show_done(console, execute_vacuum(launched, table, report, by="the demo"))
    console.rule("now look at it in the UI")
    console.print(
        "Run [bold].venv/bin/dg dev[/] here, open http://127.0.0.1:3000, and materialise the group "
        "[bold]customers[/].\nIts deletion asks for the digest that its diff shows. "
        "Your own tables: see README.md.",
    )


def make_lake(directory: Path) -> Path:
    """Write a lake of three tables with delta-rs; returns its config.

    Raises ConfigError without delta-rs, and for a directory that has content and is not of a demo.
    """
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigError("demo", "needs a Delta writer", "install maint-assets[demo]")
    _clear(directory)
    lake = directory / "lake"
    lake.mkdir(parents=True)
    (directory / _MARKER).touch()
    _orders(lake / "orders")
    _events(lake / "events")
    _customers(lake / "customers")
    config = directory / "maintenance.yaml"
    config.write_text(_CONFIG, encoding="utf-8")
    return config


def _clear(directory: Path) -> None:
    """Remove the lake of an earlier demo; nothing else is ever removed."""
    if directory.is_dir() and (directory / _MARKER).is_file():
        for name in _MADE:
            made = directory / name
            if made.is_dir() and not made.is_symlink():
                shutil.rmtree(made)
            else:
                made.unlink(missing_ok=True)
    elif directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        found = f"{directory} exists, and no demo made it"
        raise ConfigError("--directory", found, "name a new or empty directory")


def _orders(path: Path) -> None:
    """A table with partition values that need escaping; a partition deleted, others rewritten."""
    from deltalake import DeltaTable  # noqa: PLC0415

    days, shops = ["2026-10-01", "2026-10-02", "2026-10-03"], ["Köln / Mitte", "50% off", "a b"]
    for number in range(3):
        rows = [(i, days[i % 3], shops[i // 3 % 3], float(i * number)) for i in range(90)]
        _write(path, rows, ["id", "day", "shop", "amount"], partition_by=["day", "shop"])
    table = DeltaTable(str(path))
    table.delete("day = '2026-10-01'")
    table.update({"amount": "amount + 1"}, predicate="id < 9")
    _age(path)
    _stray(path / "day=2026-10-02" / "part-failed-job.parquet", 4_000)
    _stray(path / "day=2026-09-30" / "shop=gone" / "part-left-over.parquet", 2_000)
    _stray(path / "upload in progress.parquet", 1_000, days=0)


def _events(path: Path) -> None:
    """A table of many small appends that was compacted, so that the small files are tombstones."""
    from deltalake import DeltaTable  # noqa: PLC0415

    for number in range(12):
        rows = [(number * 100 + i, f"event {i}") for i in range(100)]
        _write(path, rows, ["id", "name"])
    DeltaTable(str(path)).optimize.compact()
    _age(path)


def _customers(path: Path) -> None:
    """A table that was overwritten twice, with the orphan of a failed job."""
    for number in range(3):
        _write(
            path, [(i, f"name {i} {number}") for i in range(50)], ["id", "name"], mode="overwrite"
        )
    _age(path)
    _stray(path / "_tmp.parquet", 100)
    _stray(path / "part-orphan.parquet", 3_000)


def _write(
    path: Path,
    rows: list[tuple[Any, ...]],
    names: list[str],
    *,
    mode: Literal["append", "overwrite"] = "append",
    **options: Any,
) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415

    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    data = pa.table(columns, names=names)
    properties = {"delta.deletedFileRetentionDuration": "interval 7 days"}
    new = not path.exists()
    write_deltalake(
        str(path), data, mode=mode, configuration=properties if new else None, **options
    )  # pyright: ignore[reportCallIssue, reportArgumentType]


def _age(path: Path) -> None:
    """Make a table a month older: its files and the times in its log."""
    then = time.time() - _OLD_DAYS * 86_400
    for commit in sorted((path / "_delta_log").glob("*.json")):
        text = commit.read_text(encoding="utf-8")
        commit.write_text(_aged_log(text), encoding="utf-8")
    for file in path.rglob("*"):
        os.utime(file, (then, then))


def _aged_log(text: str) -> str:
    shift_ms = _OLD_DAYS * 86_400_000
    lines: list[str] = []
    for line in text.splitlines():
        aged = {kind: _shifted(values, shift_ms) for kind, values in json.loads(line).items()}
        lines.append(json.dumps(aged, separators=(",", ":")))
    return "\n".join(lines) + "\n"


def _shifted(values: dict[str, Any], shift_ms: int) -> dict[str, Any]:
    times = ("deletionTimestamp", "modificationTime", "timestamp")
    return {n: v - shift_ms if n in times and v else v for n, v in values.items()}


def _stray(path: Path, size: int, *, days: int = _OLD_DAYS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    then = time.time() - days * 86_400
    for made in (path, path.parent, path.parent.parent) if days else (path,):
        os.utime(made, (then, then))
