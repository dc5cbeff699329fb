"""Java and Python that the environment names but that are not there."""

from pathlib import Path

import pytest

from maint_assets.assets.java import find_java
from maint_assets.assets.spark_resource import session, spark_resource
from maint_assets.errors import ConfigError


def test_a_java_home_without_a_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="there is no bin/java in"):
        find_java()


def test_a_python_for_workers_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")

    with pytest.raises(ConfigError, match="PYSPARK_PYTHON: there is no /nowhere/python"):
        session(spark_resource({}))
