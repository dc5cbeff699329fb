"""A pytest plugin that marks the tests with a JVM, and fails any other test that starts one.

A test gets the marker ``jvm`` if it uses the fixture ``spark``, directly or through others; one
that starts Spark in its own process is marked by hand. All others run with a ``java`` that
records its start and exits, in this process and in those that it starts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

MARKER = "jvm"
ADVICE = "let it take the fixture `spark`, or mark it `jvm`: then `make fast` leaves it out"

_JAVA = """#!/bin/sh
echo "$*" >> "{starts}"
echo "no JVM in a test without the marker jvm: {advice}" >&2
exit 1
"""


class JvmGuard:
    """The hooks; ``home`` is a JAVA_HOME whose ``java`` refuses to start."""

    def __init__(self, home: Path) -> None:
        self.home, self.starts = home, home / "starts"
        java = home / "bin" / "java"
        java.parent.mkdir()
        java.write_text(_JAVA.format(starts=self.starts, advice=ADVICE.replace("`", "")))
        java.chmod(0o755)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests that use the session, before pytest selects by markers."""
        for item in items:
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(MARKER)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Put the refusing ``java`` in the environment of a test without a JVM."""
        if item.get_closest_marker(MARKER):
            return (yield)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_HOME", str(self.home))
            patch.setenv("PATH", str(self.home / "bin"), prepend=os.pathsep)
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Fail fixtures that start a JVM."""
        yield from self._refusing()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """Fail a test that starts a JVM, even if it expects the command to fail."""
        yield from self._refusing()

    def _refusing(self) -> Generator[None, None, None]:
        try:
            yield
        finally:
            if self.starts.exists():
                self.starts.unlink()
                pytest.fail(f"this test started a JVM and is not marked so: {ADVICE}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the guard, with a directory that is deleted after the run."""
    directory = tempfile.TemporaryDirectory(prefix="no-jvm-")
    config.add_cleanup(directory.cleanup)
    config.pluginmanager.register(JvmGuard(Path(directory.name)))
