"""Tables of points, for tests of ordering."""

from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable


def points(path: Path, *, files: int = 4, rows: int = 1000, seed: int = 1) -> None:
    """Append files of random points by delta-rs."""
    rng = np.random.default_rng(seed)
    for _ in range(files):
        columns = {
            "x": rng.integers(0, 10_000, rows),
            "y": [f"text-{number:06}" for number in rng.integers(0, 10_000, rows)],
            "z": rng.random(rows),
        }
        deltalake.write_deltalake(path, pa.table(columns), mode="append")


def rows(path: Path) -> list[Any]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=repr)
