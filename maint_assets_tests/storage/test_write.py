"""What writing and deleting do on a local disk."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from maint_assets.storage.location import Location
from maint_assets.storage.write import delete_directory, delete_file, put_if_absent


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

    assert delete_file(location, "missing").outcome == "missing"
    assert delete_file(location, "full").outcome == "failed"
    assert delete_directory(location, "full").error == "not empty"
    assert delete_directory(location, "link").outcome == "failed"
    assert delete_directory(location, "empty").outcome == "deleted"
    assert delete_file(location, "full/file").outcome == "deleted"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "link"]
