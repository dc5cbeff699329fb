"""``maint-assets demo`` removes nothing but the lake of an earlier demo."""

import sys
from pathlib import Path

import pytest

from maint_assets.cli.demo import make_lake
from maint_assets.errors import ConfigError
from maint_assets_tests.support.shell import Shell, refused


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capfd, monkeypatch)


@pytest.mark.parametrize("directory", ["mine", ".", "", " ", "mine/data.txt"])
def test_a_directory_that_no_demo_made_is_refused_and_kept(
    run: Shell, tmp_path: Path, directory: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.txt").write_text("precious")

    refused(run("demo", "--directory", directory), code=2, message="new or empty directory")

    assert (tmp_path / "mine" / "data.txt").read_text() == "precious"


def test_a_second_demo_makes_its_lake_again_and_keeps_other_files(tmp_path: Path) -> None:
    make_lake(tmp_path / "demo")
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    (tmp_path / "demo" / "lake" / "orders" / "left").touch()

    config = make_lake(tmp_path / "demo")

    assert config.exists()
    assert (tmp_path / "demo" / "notes.txt").exists()
    assert not (tmp_path / "demo" / "lake" / "orders" / "left").exists()


def test_without_a_delta_writer_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_lake(tmp_path / "demo")
    monkeypatch.setitem(sys.modules, "deltalake", None)

    with pytest.raises(ConfigError, match="Delta writer"):
        make_lake(tmp_path / "demo")

    assert config.exists()
