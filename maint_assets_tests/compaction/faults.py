"""A writer that writes wrong files: the faults that the comparison of rows has to find."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from maint_assets.compaction.engines import arrow
from maint_assets.delta.actions import Add


def swapped(rows: pa.Table) -> pa.Table:
    """Ids of other rows: counts, nulls and bounds do not show it."""
    ids = rows["id"].combine_chunks()
    return rows.set_column(rows.schema.get_field_index("id"), "id", ids[::-1])


def changed(rows: pa.Table) -> pa.Table:
    """One text is changed."""
    texts = rows["value"].to_pylist()
    return rows.set_column(
        rows.schema.get_field_index("value"), "value", [[f"{texts[0]}!", *texts[1:]]]
    )


def last_changed(rows: pa.Table) -> pa.Table:
    """The last text is changed."""
    texts = [*rows["value"].to_pylist()[:-1], "other"]
    return rows.set_column(rows.schema.get_field_index("value"), "value", [texts])


def narrowed(rows: pa.Table) -> pa.Table:
    """The same numbers in a smaller type."""
    return rows.set_column(rows.schema.get_field_index("id"), "id", rows["id"].cast(pa.int32()))


def with_another_column(rows: pa.Table) -> pa.Table:
    return rows.append_column("more", rows["id"])


FAULTS: dict[str, Callable[[pa.Table], pa.Table]] = {
    fault.__name__: fault
    for fault in (swapped, changed, last_changed, narrowed, with_another_column)
}


def inject(name: str) -> Callable[..., tuple[Add | None, list[int]]]:
    """Damage each new file of this process after it was written; returns the original writer."""
    written = arrow._output

    def output(inputs: Any, how: Any) -> tuple[Add | None, list[int]]:
        new, counts = written(inputs, how)
        if new is None:
            return None, counts
        file = Path(how.table) / unquote(new.path)
        if name == "truncated":
            file.write_bytes(file.read_bytes()[:-20])
        else:
            pq.write_table(FAULTS[name](pq.ParquetFile(file).read()), file, store_schema=False)
        return msgspec.structs.replace(new, size=file.stat().st_size), counts

    arrow._output = output
    return written


def program(folder: Path, name: str) -> str:
    """The PYTHONPATH that gives the fault to every Python process, Spark's workers included."""
    root = Path(__file__).parents[2]
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"from maint_assets_tests.compaction import faults\nfaults.inject({name!r})\n"
    )
    return ":".join(map(str, (folder, root, *filter(None, sys.path))))
