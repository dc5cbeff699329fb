"""Fixtures shared by tests: one Spark session, real tables by other writers, a browser."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import setup
from maint_assets_tests.support import jvm_guard, s3

ROOT = Path(__file__).parents[1]

os.environ.update(s3.NAMED_KEYS)  # before a JVM starts, whose tasks inherit them

LONGEST = (
    "cli/test_kill.py",
    "compaction/test_killed.py",
    "ui/test_ui.py",
    "ui/test_locations.py",
    "vacuum/test_stories.py",
    "races/test_races.py",
    "assets/test_terminate.py",
    "compaction/test_ordering.py",
    "cli/test_cli.py",
)
"""Files with few but slow tests: run last, one process would wait for the other."""


def pytest_configure(config: pytest.Config) -> None:
    """Fail tests without the marker ``jvm`` that start a JVM."""
    config.pluginmanager.register(jvm_guard)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs an S3 server, before tests are selected by marker."""
    if "s3_server" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.s3)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first; all others keep their order."""
    order = {ROOT / "maint_assets_tests" / name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    """A real S3 server; the shared session knows the keys of its ``settings``."""
    with s3.running(tmp_path_factory.mktemp("weed")) as found:
        yield found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests, with Delta's jars for the oracles and the table writers."""
    # Python workers use the environment, not this process's sys.path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.getenv("PYTHONPATH"))))
    os.environ["JAVA_HOME"] = str(setup.java_home())
    builder = SparkSession.builder.appName("maint_assets_tests")
    for key, value in setup.spark_conf().items():
        builder = builder.config(key, value)
    session = (
        builder
        .config("spark.driver.extraJavaOptions", setup.jvm_options())
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    os.environ["SPARK_SUBMIT_OPTS"] = setup.QUICK  # for commands that tests start
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_tables() -> Path:
    """The directory of real tables by other writers; read only: copy one before writing to it."""
    found = os.environ.get("MAINT_ASSETS_TABLES")
    if not found:
        pytest.skip("MAINT_ASSETS_TABLES does not name the directory of real tables")
    return Path(found).resolve()


@pytest.fixture
def copied_table(shared_tables: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copy the real table of that name to a directory that a test may change."""

    def copy(name: str) -> Path:
        return shutil.copytree(shared_tables / name, tmp_path / name)

    return copy


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser for tests of the UI; without one they skip, and fail in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found:
        return found
    reason = "no chromium on PATH: run `make browser`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
