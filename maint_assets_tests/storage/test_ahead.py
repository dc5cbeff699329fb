"""Files that are asked for in order are on their way before they are asked for."""

import threading
from collections.abc import Callable

import pytest

from maint_assets.storage.ahead import BYTES, FILES, Ahead

MANY = [f"{number:02}" for number in range(30)]
SIZED = [(name, 1) for name in MANY]


class Store:
    """Opens files by name, and counts how many are open at once and in all."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def open(self, name: str) -> str:
        self.opened.append(name)
        if not self.may_end.wait(timeout=10):
            raise TimeoutError
        if name == "absent":
            raise FileNotFoundError(name)
        return name


def test_each_file_is_opened_once_and_comes_in_order() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(SIZED)

    assert [files.take(name) for name in MANY] == MANY
    assert sorted(store.opened) == MANY


def test_only_a_few_files_are_on_their_way() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(SIZED)

    files.take(MANY[0])
    for at, name in enumerate(MANY[1 : FILES + 1], start=1):
        assert files.take(name) == name
        assert len(store.opened) <= at + 1 + FILES


def test_large_files_come_one_by_one() -> None:
    large = [(str(number), BYTES) for number in range(4)]
    store = Store()
    files = Ahead(store.open)
    files.expect(large)

    files.take("0")

    assert files.take("1") == "1"
    assert set(store.opened) <= {"0", "1", "2"}


def test_files_that_nobody_expects_are_opened_when_they_are_asked_for() -> None:
    store = Store()
    files = Ahead(store.open)

    assert [files.take(name) for name in MANY[:3]] == ["00", "01", "02"]
    assert store.opened == ["00", "01", "02"]


def test_files_may_be_left_out_and_asked_for_again() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(SIZED)

    assert files.take(MANY[12]) == "12"
    assert files.take(MANY[12]) == "12"
    files.expect(SIZED)
    assert files.take(MANY[0]) == "00"


def test_the_error_of_a_file_is_that_files_alone() -> None:
    some = [MANY[0], "absent", MANY[2]]
    files = Ahead(Store().open)
    files.expect((name, 1) for name in some)

    assert files.take(some[0]) == "00"
    with pytest.raises(FileNotFoundError, match="absent"):
        files.take(some[1])
    assert files.take(some[2]) == "02"


def test_files_are_on_their_way_while_one_is_read() -> None:
    store = Store()
    files = Ahead(store.open)
    files.expect(SIZED)
    files.take(MANY[0])
    store.may_end.clear()
    try:
        _wait_for(lambda: len(store.opened) >= FILES)
    finally:
        store.may_end.set()


def _wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("nothing is on its way")
