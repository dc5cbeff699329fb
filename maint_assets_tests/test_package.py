"""The package as users get it: its public names, and a wheel used in a fresh environment."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import maint_assets
from maint_assets import config
from maint_assets_tests.support.builder import TableBuilder

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv") or str(ROOT / ".uv/bin/uv")


def test_every_public_name_is_there_and_no_other_is_promised() -> None:
    assert set(dir(maint_assets)) >= set(maint_assets.__all__)
    assert all(getattr(maint_assets, name) for name in maint_assets.__all__)


def test_all_settings_of_a_table_are_public() -> None:
    settings = {
        name
        for name, value in vars(config).items()
        if name.endswith("Settings") and value.__module__ == config.__name__
    }

    assert settings
    assert settings <= set(maint_assets.__all__)


@pytest.mark.jvm
@pytest.mark.long
def test_the_wheel_plans_a_vacuum_from_a_fresh_environment(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=9).create().add("a", "b")
    table.stray("stray").age("**/*", 9)
    python = str(tmp_path / "venv/bin/python")
    run([UV, "build", "--wheel", "--out-dir", str(tmp_path), str(ROOT)], tmp_path)
    run([UV, "export", "--frozen", "--no-dev", "--no-emit-project", "-o", "locked.txt"], tmp_path)
    run([UV, "venv", "--python", sys.executable, "venv"], tmp_path)
    wheel = next(tmp_path.glob("*.whl"))
    run([UV, "pip", "install", "--python", python, "-c", "locked.txt", str(wheel)], tmp_path)

    command = ["vacuum", str(table.path), "--json", "--workspace", "workspace"]
    output = run([str(tmp_path / "venv/bin/maint-assets"), *command], tmp_path)
    files = run([python, "-c", "import maint_assets as m; print(m.__file__)"], tmp_path)
    typed = Path(files.strip()).with_name("py.typed")

    assert json.loads(output)["candidates"]["files"] == 1
    assert typed.is_file()
    assert tmp_path in typed.parents


def run(command: Sequence[str], place: Path) -> str:
    """The output of a command that runs outside the project and its environment."""
    apart = {"PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"}
    env = {name: value for name, value in os.environ.items() if name not in apart}
    at = ROOT if command[1] == "export" else place
    command = [str(place / "locked.txt") if part == "locked.txt" else part for part in command]
    done = subprocess.run(command, cwd=at, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
