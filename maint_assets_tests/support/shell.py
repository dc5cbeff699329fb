"""The command line run in this process: its output, and its exit code."""

import json
import sys
from typing import Any

import pytest

from maint_assets.cli import commands
from maint_assets_tests.support.documented import differences


class Shell:
    """The command line called in this process, in the tests' Spark session."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd, self._monkeypatch = capfd, monkeypatch

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        self._capfd.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["maint-assets", *map(str, arguments)])
        code = 0
        try:
            commands.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = self._capfd.readouterr()
        return code, out, err

    def json(self, *arguments: object) -> dict[str, Any]:
        """The one JSON object on stdout; asserts that it is as documented in docs/cli.md."""
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert differences(str(arguments[0]), found, paths="--paths" in arguments) == []
        return found


def refused(found: tuple[int, str, str], *, code: int, message: str) -> None:
    """Assert that a command ended with this code and one sentence on stderr."""
    assert found[0] == code, found[2]
    assert message in found[2]
    assert "Traceback" not in found[2]
    assert found[1] == ""
    assert len(found[2].strip().splitlines()) == 1
