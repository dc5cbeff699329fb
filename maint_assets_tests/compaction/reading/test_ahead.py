"""Files that are asked for in order are on their way before they are asked for."""

import threading

import pytest

from maint_assets.compaction.reading import ahead
from maint_assets.compaction.reading.ahead import BYTES, FILES, Ahead
from maint_assets.delta.actions import Add

MANY = [Add(path=f"{number:02}", size=1) for number in range(30)]


class Store:
    """Opens files by name, and counts how many are open at once and in all."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def open(self, add: Add) -> str:
        self.opened.append(add.path)
        if not self.may_end.wait(timeout=10):
            raise TimeoutError
        if "absent" in add.path:
            raise FileNotFoundError(add.path)
        return add.path


def test_each_file_is_opened_once_and_comes_in_order() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(MANY)

    assert [files.take(add) for add in MANY] == [add.path for add in MANY]
    assert sorted(store.opened) == [add.path for add in MANY]


def test_only_a_few_files_are_on_their_way() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(MANY)

    files.take(MANY[0])
    for add in MANY[1 : FILES + 1]:
        assert files.take(add) == add.path
        assert len(store.opened) <= MANY.index(add) + 1 + FILES


def test_large_files_come_one_by_one() -> None:
    large = [Add(path=str(number), size=BYTES) for number in range(4)]
    store = Store()
    files = Ahead(store.open)
    files.expect(large)

    files.take(large[0])

    assert files.take(large[1]) == "1"
    assert set(store.opened) <= {"0", "1", "2"}


def test_files_that_nobody_expects_are_opened_when_they_are_asked_for() -> None:
    store = Store()
    files = Ahead(store.open)

    assert [files.take(add) for add in MANY[:3]] == ["00", "01", "02"]
    assert store.opened == ["00", "01", "02"]


def test_files_may_be_left_out_and_asked_for_again() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(MANY)

    assert files.take(MANY[12]) == "12"
    assert files.take(MANY[12]) == "12"
    files.expect(MANY)
    assert files.take(MANY[0]) == "00"


def test_the_error_of_a_file_is_that_files_alone() -> None:
    some = [MANY[0], Add(path="absent", size=1), MANY[2]]
    files = Ahead(Store().open)
    files.expect(some)

    assert files.take(some[0]) == "00"
    with pytest.raises(FileNotFoundError, match="absent"):
        files.take(some[1])
    assert files.take(some[2]) == "02"


def test_files_are_on_their_way_while_one_is_read() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(MANY)
    files.take(MANY[0])
    store.may_end.clear()
    try:
        _wait_for(lambda: len(store.opened) >= FILES)
    finally:
        store.may_end.set()


def _wait_for(condition: object) -> None:
    for _ in range(200):
        if condition():  # type: ignore[operator]
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"only {ahead.FILES} files at once")
