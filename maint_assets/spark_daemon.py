"""The parent of Spark's Python workers: it imports once what each of them would import.

Spark forks a worker for every task that runs at once and ends it after an idle minute; without
this each new one spends seconds on imports. Started by ``spark.python.daemon.module``.
"""

import gc
from importlib import import_module

from pyspark.daemon import manager

PRELOADED = (
    "pyspark.worker",
    "maint_assets.snapshot.replay",
    "maint_assets.vacuum.deletion",
    "maint_assets.vacuum.inventory",
    "maint_assets.vacuum.lite",
    "maint_assets.vacuum.cross_checks",
)

if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    # Spark collects garbage after each task: exclude imported modules, which saves 40 ms per task.
    gc.freeze()
    # Tasks hold tens of thousands of rows as tuples, which form no cycles: collect rarely.
    gc.set_threshold(50_000, 20, 50)
    manager()
