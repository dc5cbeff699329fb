"""``make bench-append``: how much is rewritten when an ordered table grows.

A table of wide rows is ordered by two columns; then ``--append-gb`` is appended and it is
ordered again. ARGS="--gb 10 --append-gb 1 [--target-mb 256]".
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from maint_assets_tests.benchmarks.measure import Peak, session, timed
from maint_assets_tests.support.chain import Chain

ORDER = ["key", "ts"]
PAYLOAD = 1_000
FILE_BYTES = 64_000_000
ROWS = FILE_BYTES // PAYLOAD


def main() -> None:
    """Order, append and order again; print what each of the two runs rewrote."""
    parser = argparse.ArgumentParser(prog="make bench-append")
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--append-gb", type=float, default=1)
    parser.add_argument("--target-mb", type=int, default=256)
    parser.add_argument("--heap", default="4g")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maint-bench-") as made:
        folder = Path(made)
        session(folder, heap=args.heap)
        path = folder / "table"
        rng = np.random.default_rng(3)
        for what, size in (("table", args.gb), ("append", args.append_gb)):
            for _ in range(round(size * 1e9 / FILE_BYTES)):
                write_deltalake(path, _rows(rng), mode="append")
            row = _ordered(path, folder, target=args.target_mb << 20)
            print(f"{what} {json.dumps(row)}", flush=True)


def _rows(rng: np.random.Generator) -> pa.Table:
    """Random keys and times, and incompressible bytes."""
    times = 1_700_000_000_000_000 + rng.integers(0, 86_400_000_000 * 30, ROWS)
    offsets = pa.py_buffer(np.arange(0, (ROWS + 1) * PAYLOAD, PAYLOAD, dtype=np.int32))
    payload = pa.Array.from_buffers(
        pa.binary(), ROWS, [None, offsets, pa.py_buffer(rng.bytes(ROWS * PAYLOAD))]
    )
    return pa.table({
        "key": rng.integers(0, 1 << 40, ROWS),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "payload": payload,
    })


def _ordered(path: Path, folder: Path, *, target: int) -> dict[str, Any]:
    """One Z-order run: its seconds, and bytes and files before and after."""
    chain = Chain.compacting(
        path, folder / "workspace", target_file_size=target, zorder_by=ORDER, verify_rows="sampled"
    )
    with Peak() as peak:
        seconds, report = timed(chain.compact)
    done = report.done
    assert done is not None
    return {
        "seconds": seconds,
        "rewritten": done.bytes_removed,
        "files": [done.files_removed, done.files_added],
        "peak_mb": peak.mb,
        "driver_mb": peak.driver_mb,
    }


if __name__ == "__main__":
    main()
