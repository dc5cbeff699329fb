"""Changes to files of a log that keep their modification times."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Edit = Callable[[dict[str, Any]], Any]


def rewrite(file: Path, text: str) -> None:
    """Replace the text of a file, and keep its modification time."""
    found = file.stat()
    file.write_text(text)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


def edit_rows(file: Path, edit: Edit) -> None:
    """Edit the rows of a checkpoint, and keep its modification time."""
    at, table = file.stat(), pq.read_table(file)
    rows = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        edit(row)
    pq.write_table(type(table).from_pylist(rows, table.schema), file)
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
