"""The deletion of a plan that kills itself before the nth file, as ``kill -9`` would.

    python -m maint_assets_tests.log_cleanup.killing PLAN N

PLAN is a directory with ``rows.arrow`` and ``plan.json``; the ledger is written beside them.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from maint_assets.log_cleanup import deletion
from maint_assets.log_cleanup.plan import LogCleanupPlan
from maint_assets.storage import write
from maint_assets.storage.location import Location


def write_plan(directory: Path, rows: pa.Table, plan: LogCleanupPlan) -> None:
    """What ``main`` reads."""
    directory.mkdir(exist_ok=True)
    (directory / "plan.json").write_bytes(msgspec.json.encode(plan))
    with pa.ipc.new_file(str(directory / "rows.arrow"), rows.schema) as writer:
        writer.write_table(rows)


def main(directory: Path, killed_at: int) -> None:
    """Deletes what is planned until it is killed."""
    plan = msgspec.json.decode((directory / "plan.json").read_bytes(), type=LogCleanupPlan)
    rows = pa.ipc.open_file(str(directory / "rows.arrow")).read_all()
    delete, calls = write.delete_log_file, count()

    def killing(*args: Any, **kwargs: Any) -> write.Deletion:
        if next(calls) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return delete(*args, **kwargs)

    write.delete_log_file = killing
    (directory / "ledger").mkdir(exist_ok=True)
    deletion.cleaned(rows.to_batches(), plan, Location.of(str(directory / "ledger")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
