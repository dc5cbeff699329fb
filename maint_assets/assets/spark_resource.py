"""Spark in a run: the session and its settings, errors of executors, and cancelling jobs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dagster_pyspark import LazyPySparkResource
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from maint_assets.assets.interrupts import interruptible
from maint_assets.assets.java import find_java
from maint_assets.errors import ConfigError, of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from maint_assets.assets.interrupts import Interrupts

DEFAULTS = {
    "spark.app.name": "maint-assets",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 2)),
    "spark.python.daemon.module": "maint_assets.spark_daemon",
    "spark.python.unix.domain.socket.enabled": "true",
}

SPARK_ERRORS = (PySparkException, Py4JError)
"""Errors of a failed job; Py4J's where no Python code failed, or after the JVM has ended."""


def spark_resource(settings: Mapping[str, str]) -> LazyPySparkResource:
    """The resource that starts one session for a run, at its first use.

    A local master gets this interpreter for its Python workers, and loopback addresses.
    """
    config = {**DEFAULTS, **settings}
    if config.setdefault("spark.master", "local[*]").startswith("local"):
        config.setdefault("spark.driver.host", "127.0.0.1")
        config.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return LazyPySparkResource(spark_config=config)


def session(resource: LazyPySparkResource) -> SparkSession:
    """The session of the resource; finds an interpreter and a Java for it first.

    Raises ConfigError where the environment names some that are not there.
    """
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_local(resource) and shutil.which(python) is None:
        raise ConfigError("PYSPARK_PYTHON", f"there is no {python}", "mend it, or unset it")
    find_java()
    with _whole_start():
        return resource.spark_session


def _is_local(resource: LazyPySparkResource) -> bool:
    """Whether Python workers run on this machine."""
    return str(resource.spark_config.get("spark.master", "")).startswith("local")


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once; work is divided by it."""
    try:
        return max(spark.sparkContext.defaultParallelism, 1)
    except PySparkException:  # Spark Connect has no context
        return int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Context that raises errors marked by an executor as the MaintError they were."""
    try:
        yield
    except SPARK_ERRORS as error:
        marked = of_text(str(error))
        if marked is None:
            raise
        raise marked from error


class StageSession:
    """The session for one stage: started at its first use, its jobs tagged."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        run_id: str,
        description: str,
        *,
        interrupts: Interrupts,
    ) -> None:
        self.interrupts = interrupts
        self._session, self._run_id, self._description = session, run_id, description
        self._spark: SparkSession | None = None
        self._tags: _Tags | None = None

    @property
    def is_started(self) -> bool:
        """Whether the stage has used the session."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session; Raise DagsterExecutionInterruptedError if the stage is to stop."""
        self.interrupts.refuse()
        if self._spark is None:
            self._spark = self._tagged(self._session())
            self.interrupts.refuse()
        return self._spark

    def close(self) -> None:
        """Remove the tag; not after an interrupt, as the session is abandoned then.

        A session that has ended has no tags: that is no error of the stage.
        """
        tags, self._tags = self._tags, None
        if tags is not None and not self.interrupts.is_asked:
            with contextlib.suppress(*SPARK_ERRORS, OSError):
                tags.remove(self._run_id)

    def _tagged(self, spark: SparkSession) -> SparkSession:
        if threading.current_thread() is threading.main_thread():
            self.interrupts.install()  # again: a context that starts takes Ctrl-C for itself
        tags = self._tags = _tags(spark)
        tags.add(self._run_id)
        self.interrupts.cancel = partial(tags.cancel, self._run_id)
        with contextlib.suppress(PySparkException):
            spark.sparkContext.setJobDescription(self._description)
        return spark


@contextlib.contextmanager
def stage(
    session: Callable[[], SparkSession], run_id: str, description: str
) -> Iterator[StageSession]:
    """Context in which Spark's jobs have the stage's name, and end with it on an interrupt.

    Refuses to begin in a run that was interrupted before. See ``interrupts``.
    """
    with interruptible(run_id, description) as interrupts:
        found = StageSession(session, run_id, description, interrupts=interrupts)
        try:
            yield found
        except Exception:
            with contextlib.suppress(Exception):  # report what ended the stage, not this
                found.close()
            raise
        found.close()


@contextlib.contextmanager
def _whole_start() -> Iterator[None]:
    """Context that kills the Java started in it, if an error or interrupt ends the start.

    On exit PySpark removes the directory into which that Java is to write its port. Java then
    fails in its main thread only, before it checks whether its parent is alive, and runs forever.
    """
    try:
        yield
    except BaseException as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        held = (frame.f_locals.get(name) for frame in frames for name in ("proc", "self"))
        for java in (each for each in held if isinstance(each, subprocess.Popen)):
            java.kill()
        raise


@dataclass(frozen=True, slots=True)
class _Tags:
    """Tag jobs, and cancel them by their tag from any thread."""

    add: Callable[[str], None]
    remove: Callable[[str], None]
    cancel: Callable[[str], object]


def _tags(spark: SparkSession) -> _Tags:
    """Tags by the Spark context: those of a classic session hold for one thread only."""
    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect has no context
        return _Tags(spark.addTag, spark.removeTag, spark.interruptTag)
    return _Tags(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)
