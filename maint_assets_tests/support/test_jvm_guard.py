"""The guard of the fast tests: which tests are marked, and which fail."""

from __future__ import annotations

import pytest

from maint_assets_tests.conftest import ROOT

pytest_plugins = ["pytester"]

UNMARKED = """
    import pytest, subprocess, sys

    SESSION = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate()"

    def test_session_of_this_process():
        exec(SESSION)

    def test_command_that_may_fail():
        assert subprocess.run([sys.executable, "-c", SESSION]).returncode

    @pytest.fixture
    def begun():
        subprocess.run(["java", "-version"])

    def test_fixture(begun): ...
"""
MARKED = """
    import os, pytest

    @pytest.fixture
    def spark(): ...

    @pytest.fixture
    def table(spark): ...

    def test_session(table):
        assert os.environ["JAVA_HOME"] == "/theirs"

    @pytest.mark.jvm
    def test_command():
        assert os.environ["JAVA_HOME"] == "/theirs"

    def test_neither():
        assert os.environ["JAVA_HOME"] != "/theirs"
"""


@pytest.fixture(autouse=True)
def theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the guarded run, instead of that by the guard of this run."""
    monkeypatch.setenv("JAVA_HOME", "/theirs")


@pytest.fixture
def arguments(pytester: pytest.Pytester) -> list[str]:
    """The arguments of a run with the guard as its only plugin."""
    pytester.makeini("[pytest]\nmarkers = jvm")
    pytester.syspathinsert(ROOT)
    return ["-p", "maint_assets_tests.support.jvm_guard", "-p", "no:xdist"]


@pytest.mark.slow
def test_test_that_starts_a_jvm_unmarked_fails(
    pytester: pytest.Pytester, arguments: list[str]
) -> None:
    pytester.makepyfile(UNMARKED)

    found = pytester.runpytest_subprocess(*arguments)

    found.assert_outcomes(failed=2, errors=1)
    message = "*this test started a JVM and is not marked so: let it take the fixture `spark`*"
    found.stdout.fnmatch_lines([message] * 3)


def test_marked_tests_have_their_java(pytester: pytest.Pytester, arguments: list[str]) -> None:
    pytester.makepyfile(MARKED)

    pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=3)


def test_fast_tier_leaves_out_what_takes_the_session(
    pytester: pytest.Pytester, arguments: list[str]
) -> None:
    pytester.makepyfile(MARKED)

    found = pytester.runpytest_inprocess(*arguments, "-m", "not jvm")

    found.assert_outcomes(passed=1, deselected=2)
