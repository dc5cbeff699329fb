"""The Spark side of a run: session settings, parallelism, errors of executors, and Terminate."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster_pyspark import LazyPySparkResource
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from maint_assets.assets.java import find_java
from maint_assets.errors import of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.app.name": "maint-assets",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 2)),
    "spark.python.daemon.module": "maint_assets.workers",
    "spark.python.unix.domain.socket.enabled": "true",
}

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a failed job raises: the second where no Python code failed, as when a worker is lost."""

_CANCEL_SECONDS = 10


def spark_resource(settings: Mapping[str, str]) -> LazyPySparkResource:
    """The resource that starts one session a run, when the first stage asks for it.

    A local master gets this interpreter for its Python workers, and loopback addresses.
    """
    config = {**DEFAULTS, **settings}
    if config.setdefault("spark.master", "local[*]").startswith("local"):
        config.setdefault("spark.driver.host", "127.0.0.1")
        config.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return LazyPySparkResource(spark_config=config)


def session(resource: LazyPySparkResource) -> SparkSession:
    """The session of the resource, with an interpreter and a Java to run on."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    find_java()
    return resource.spark_session


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once: the unit that work is cut by."""
    try:
        return max(spark.sparkContext.defaultParallelism, 1)
    except PySparkException:  # Spark Connect has no context
        return int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Within it, an error that an executor marked is raised as what it was."""
    try:
        yield
    except SPARK_ERRORS as error:
        marked = of_text(str(error))
        if marked is None:
            raise
        raise marked from error


@contextlib.contextmanager
def stage(spark: SparkSession, run_id: str, description: str) -> Iterator[None]:
    """Within it, Spark's jobs bear the stage's name, and Terminate in the UI cancels them.

    PySpark's call into the JVM cannot be interrupted: jobs are cancelled from another thread
    before Dagster's own handler raises (spec: dagster.md 4.3). Main thread on Unix only.
    """
    tags = _tags(spark)
    tags.add(run_id)
    with contextlib.suppress(PySparkException):
        spark.sparkContext.setJobDescription(description)
    restore = _cancel_on_interrupt(tags, run_id)
    try:
        yield
    finally:
        restore()
        tags.remove(run_id)


@dataclass(frozen=True, slots=True)
class _Tags:
    """How jobs are tagged, and cancelled by their tag from any thread."""

    add: Callable[[str], None]
    remove: Callable[[str], None]
    cancel: Callable[[str], object]


def _tags(spark: SparkSession) -> _Tags:
    """The tags of the context: a classic session knows its own in one thread only."""
    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect has no context
        return _Tags(spark.addTag, spark.removeTag, spark.interruptTag)
    return _Tags(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)


def _cancel_on_interrupt(tags: _Tags, run_id: str) -> Callable[[], object]:
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    previous = signal.getsignal(signal.SIGINT)

    def cancel(number: int, frame: FrameType | None) -> None:
        helper = threading.Thread(target=tags.cancel, args=(run_id,), daemon=True)
        helper.start()
        helper.join(_CANCEL_SECONDS)
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGINT, cancel)
    return lambda: signal.signal(signal.SIGINT, previous)
