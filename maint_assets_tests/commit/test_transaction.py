"""Commits: each version is written once, whoever else writes."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maint_assets.commit import transaction
from maint_assets.commit.transaction import commit_record
from maint_assets.errors import CommitError, StalePlanError, UnsupportedFeatureError
from maint_assets.snapshot.head import TableHead, table_head
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.faulty import Conflict, FaultyStore, LostAnswer, LostConnection

ICT = {"delta.enableInCommitTimestamps": "true"}


def head_of(path: Path) -> TableHead:
    return table_head(Location.of(str(path)))


def record(head: TableHead, *, now_ms: int = 1) -> int:
    parameters, metrics = {"status": "COMPLETED"}, {"n": "1"}
    return commit_record(
        head, "TEST", parameters=parameters, metrics=metrics, now_ms=lambda: now_ms
    )


def info(path: Path, version: int) -> dict[str, object]:
    text = (path / f"_delta_log/{version:020}.json").read_text()
    assert text.count("\n") == 1
    return json.loads(text)["commitInfo"]


def test_commit_that_loses_takes_the_next_version_and_leaves_the_winner(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create().add("a")
    head = head_of(tmp_path)
    table.add("b").add("c")
    theirs = (table.log / f"{3:020}.json").read_bytes()

    assert record(head) == 4

    assert (table.log / f"{3:020}.json").read_bytes() == theirs
    assert info(tmp_path, 4)["readVersion"] == 3


def test_many_writers_get_one_version_each(tmp_path: Path) -> None:
    TableBuilder(tmp_path).create()
    head = head_of(tmp_path)

    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(lambda number: record(head, now_ms=number), range(40)))

    assert sorted(versions) == list(range(1, 41))
    written = {info(tmp_path, version)["timestamp"] for version in versions}
    assert written == set(range(40))
    assert {p.suffix for p in (tmp_path / "_delta_log").iterdir()} == {".json"}


def test_in_commit_timestamps_rise_whatever_the_clock_says(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    table.create(features=["inCommitTimestamp"], configuration=ICT)
    first = {"commitInfo": {"inCommitTimestamp": 5_000, "timestamp": 1}}
    lines = (table.log / f"{0:020}.json").read_text().splitlines()[1:]
    table.write_log(f"{0:020}.json", "\n".join([json.dumps(first), *lines]))

    versions = [record(head_of(tmp_path), now_ms=now_ms) for now_ms in (10, 9_000, 20)]

    times = [info(tmp_path, version)["inCommitTimestamp"] for version in versions]
    assert times == [5_001, 9_000, 9_001]
    assert (
        (table.log / f"{1:020}.json").read_text().startswith('{"commitInfo":{"inCommitTimestamp"')
    )


def test_table_that_became_another_one_is_not_written(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create()
    head = head_of(tmp_path)
    table.commit([{"metaData": table.metadata | {"id": "another"}}])

    with pytest.raises(StalePlanError):
        record(head)

    assert head_of(tmp_path).version == 1


def test_protocol_that_became_unknown_is_not_written(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create()
    head = head_of(tmp_path)
    unknown = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["future"]}
    table.commit([{"protocol": unknown}])

    with pytest.raises(UnsupportedFeatureError, match="future"):
        record(head)

    assert head_of(tmp_path).version == 1


def test_endless_race_ends_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TableBuilder(tmp_path).create()
    head = head_of(tmp_path)
    monkeypatch.setattr(transaction, "put_if_absent", lambda *_: False)

    with pytest.raises(CommitError, match="lost the race"):
        record(head)


@pytest.mark.parametrize("fault", [LostAnswer, LostConnection, Conflict])
def test_record_of_which_the_answer_misleads_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[FaultyStore]
) -> None:
    TableBuilder(tmp_path).create()
    head = head_of(tmp_path)
    fault(monkeypatch)

    assert record(head) == head_of(tmp_path).version == 1


def test_store_that_takes_no_commit_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TableBuilder(tmp_path).create()
    head = head_of(tmp_path)
    Conflict(monkeypatch, times=1_000)

    with pytest.raises(CommitError, match="cannot be written"):
        record(head)
