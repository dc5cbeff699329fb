"""Writing and deleting on a local disk."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maint_assets.storage import write
from maint_assets.storage.location import Location
from maint_assets.storage.write import (
    Deletion,
    delete_directory,
    delete_file,
    delete_log_file,
    new_file,
    put_file,
    put_if_absent,
    remove_files,
)
from maint_assets_tests.support.faulty import (
    Conflict,
    FaultyStore,
    LostAnswer,
    LostConnection,
    Refusal,
)


def test_one_of_many_puts_wins_and_is_whole(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path))
    bodies = [bytes([65 + number]) * 100_000 for number in range(16)]

    with ThreadPoolExecutor(16) as threads:
        won = list(threads.map(lambda body: put_if_absent(location, "d/x", body), bodies))

    assert won.count(True) == 1
    assert (tmp_path / "d/x").read_bytes() == bodies[won.index(True)]


def test_outcome_of_each_deletion_is_told(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "full/file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "full")

    assert delete(location, "missing").outcome == "missing"
    os.mkfifo(tmp_path / "fifo")

    assert delete(location, "full").error == "changed since it was planned"
    assert delete(location, "fifo").error == "changed since it was planned"
    assert delete(location, "link").error == "changed since it was planned"
    assert delete(location, "full/file", size=2).error == "changed since it was planned"
    assert delete(location, "full/file", modified_ms=3).error == "changed since it was planned"
    assert delete_directory(location, "full").error == "not empty"
    assert delete_directory(location, "link").error == "not a directory"
    assert delete_directory(location, "empty").outcome == "deleted"
    assert delete(location, "full/file").outcome == "deleted"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "full", "link"]


def test_a_directory_made_for_a_file_that_failed_goes_with_it(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path))
    for name in ("theirs", "kept"):
        (tmp_path / name).mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "source").touch()

    for path in ("a/1", "theirs/1", "kept/1"):
        with pytest.raises(KeyboardInterrupt), new_file(location, path):
            raise KeyboardInterrupt
    with pytest.raises(FileNotFoundError):
        put_file(location, "b/1", tmp_path / "missing")
    for path in ("c/1", "kept/1", "top"):
        put_file(location, path, tmp_path / "source")
    remove_files(location, ["c/1", "kept/1", "top", "d/missing"])

    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")} == {
        "theirs", "kept", "kept/file", "source"
    }  # fmt: skip


@pytest.mark.parametrize("path", ["_delta_log/0.json", "d/_Delta_Log/_last_checkpoint"])
def test_files_of_a_log_are_deleted_by_the_door_of_the_log_cleanup_alone(
    tmp_path: Path, path: str
) -> None:
    location = Location.of(str(tmp_path))
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    told = {"size": 1, "modified_ms": file.stat().st_mtime_ns // 1_000_000}

    assert delete_file(location, path, **told) == Deletion("skipped", "a file of a Delta log")
    assert delete_directory(location, str(Path(path).parent)).outcome == "skipped"
    of_log = delete_log_file(location, path, **told).outcome
    assert of_log == ("deleted" if path.startswith("_delta_log/") else "skipped")
    assert delete_log_file(location, "data", **told).outcome == "skipped"


def delete(location: Location, path: str, **otherwise: int) -> Deletion:
    """Delete a file with its present size and time, or with those given."""
    file = location.file(path)
    found = file.lstat() if os.path.lexists(file) else None
    told = {
        "size": found.st_size if found else 0,
        "modified_ms": found.st_mtime_ns // 1_000_000 if found else 0,
    }
    return delete_file(location, path, **told | otherwise)


def test_a_file_that_is_put_is_whole_or_not_there(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"whole")
    table = Location.of(str(tmp_path / "t"))
    (tmp_path / "t" / "taken" / "file").mkdir(parents=True)

    put_file(table, "day=1/file", source)
    with pytest.raises(OSError, match="taken"):
        put_file(table, "taken", source)

    found = [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
    assert found == [tmp_path / "t" / "day=1" / "file"]
    assert found[0].read_bytes() == source.read_bytes()


@pytest.mark.parametrize("taken", [True, False])
def test_sum_of_a_lost_file_is_forgotten_and_that_of_one_still_there_kept(
    tmp_path: Path, taken: bool
) -> None:
    (tmp_path / ".1.json.crc").write_bytes(b"crc")
    if taken:
        (tmp_path / "1.json").write_bytes(b"first")

    made = put_if_absent(Location.of(str(tmp_path)), "1.json", b"second")

    assert made != taken
    assert (tmp_path / ".1.json.crc").exists() == taken


@pytest.mark.parametrize("fault", [LostAnswer, LostConnection, Conflict])
def test_put_of_which_the_answer_misleads_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[FaultyStore]
) -> None:
    fault(monkeypatch)

    assert put_if_absent(Location.of(str(tmp_path)), "d/1.json", b"ours")

    assert (tmp_path / "d/1.json").read_bytes() == b"ours"


@pytest.mark.parametrize("fault", [LostAnswer, Conflict])
def test_put_beside_another_file_is_not_ours_whatever_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[FaultyStore]
) -> None:
    (tmp_path / "1.json").write_bytes(b"theirs")
    fault(monkeypatch)

    assert not put_if_absent(Location.of(str(tmp_path)), "1.json", b"ours")

    assert (tmp_path / "1.json").read_bytes() == b"theirs"


def test_conflict_without_end_and_without_a_file_is_no_lost_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Conflict(monkeypatch, times=1_000)

    with pytest.raises(OSError, match="is absent"):
        put_if_absent(Location.of(str(tmp_path)), "1.json", b"ours")

    assert store.puts == write.CONFLICTS


def test_put_that_fails_leaves_it_open_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "2.json").write_bytes(b"theirs")
    Refusal(monkeypatch, times=2)

    for name in ("1.json", "2.json"):
        with pytest.raises(OSError, match="503"):
            put_if_absent(Location.of(str(tmp_path)), name, b"ours")
