"""Parsing of actions: strict where the state depends on it, lenient elsewhere."""

import json
import os
from pathlib import Path

import pytest

from maint_assets.delta.actions import Action, Add, actions, parse_action
from maint_assets.errors import CorruptLogError

DV = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 40, "cardinality": 2}


def parsed(action: object) -> Action:
    return parse_action(json.dumps(action).encode(), table="t", file="0.json")


def test_add_has_its_fields_and_skips_unknown_ones() -> None:
    add = parsed({
        "add": {
            "path": "p=1/x%20y",
            "size": 9,
            "partitionValues": {"p": None},
            "modificationTime": 5,
            "dataChange": True,
            "stats": "{}",
            "deletionVector": {**DV, "offset": 4},
            "defaultRowCommitVersion": 3,
            "invented": [1],
        }
    }).add

    assert add is not None
    assert (add.path, add.size, add.partition_values) == ("p=1/x%20y", 9, {"p": None})
    assert (add.modification_time, add.default_row_commit_version) == (5, 3)
    assert add.deletion_vector is not None
    assert add.deletion_vector.unique_id == "ux@4"


@pytest.mark.parametrize(("offset", "unique_id"), [(None, "ux"), (0, "ux@0"), (7, "ux@7")])
def test_unique_id_has_an_offset_that_is_not_null(offset: int | None, unique_id: str) -> None:
    remove = parsed({"remove": {"path": "a", "deletionVector": {**DV, "offset": offset}}}).remove

    assert remove is not None
    assert remove.deletion_vector is not None
    assert remove.deletion_vector.unique_id == unique_id


def test_action_of_an_unknown_kind_is_empty() -> None:
    assert parsed({"invented": {"path": 1}, "add": None}) == Action()


def test_action_of_adaptive_metadata_is_recognised() -> None:
    assert parsed({"checkpoint": {"a": 1}}).checkpoint is not None


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"null",
        b"[]",
        b'{"add":{"path":"x"}}',
        b'{"add":{"path":"x","size":1.0}}',
        b'{"add":{"path":"x","size":"1"}}',
        b'{"add":{"path":"x","size":9223372036854775808}}',
        b'{"add":{"path":"\xff","size":1}}',
        b'{"add":{"path":"x","size":1}} {"add":null}',
        b'{"remove":{"path":"x","deletionTimestamp":"5"}}',
        b'{"protocol":{"minReaderVersion":1}}',
        b'{"commitInfo":{"inCommitTimestamp":"5"}}',
        b'{"commitInfo":{"inCommitTimestamp":5.0,"timestamp":"x"}}',
        b'{"commitInfo":5}',
        b'{"add":5}',
        b'{"add":{"path":null,"size":1}}',
        b'{"add":{"path":"x","size":null}}',
        b'{"add":{"path":"x","size":1,"partitionValues":{"p":1}}}',
    ],
)
def test_action_of_an_invalid_line_is_an_error_with_the_file(line: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"^t: 0\.json has an invalid line"):
        parse_action(line, table="t", file="0.json")


def test_commit_info_drops_odd_provenance_but_keeps_the_rest() -> None:
    odd = {"timestamp": "now", "operation": 1, "engineInfo": "e", "inCommitTimestamp": 5}

    info = parsed({"commitInfo": odd}).commitInfo

    assert info is not None
    assert (info.timestamp, info.operation) == (None, None)
    assert (info.engine_info, info.in_commit_timestamp) == ("e", 5)


def test_statistics_that_are_no_text_are_read_as_their_json() -> None:
    line = (
        b'{"add":{"path":"x","size":1,"modificationTime":null,"stats":{"numRecords": 2,"x":1.10}}}'
    )

    add = parse_action(line, table="t", file="0.json").add

    assert add is not None
    assert (add.stats, add.num_records, add.modification_time) == (
        '{"numRecords": 2,"x":1.10}', 2, 0,
    )  # fmt: skip


def test_commit_is_read_with_any_line_ends_and_blank_lines() -> None:
    add = b'{"add":{"path":"x","size":1}}'

    found = list(actions(add + b"\r\n\r\n  \n" + add, table="t", file="0.json"))

    assert found == [Action(add=Add("x", 1))] * 2
    assert list(actions(b"", table="t", file="0.json")) == []


def test_commit_of_real_tables_is_read() -> None:
    tables = os.environ.get("MAINT_ASSETS_TABLES")
    if tables is None:
        pytest.skip("MAINT_ASSETS_TABLES names no folder of tables")

    for commit in Path(tables).glob("*/_delta_log/*.json"):
        found = list(actions(commit.read_bytes(), table=tables, file=str(commit)))
        assert all(action != Action() for action in found)


@pytest.mark.parametrize(
    ("stats", "physical", "live"),
    [
        ('{"numRecords":5,"minValues":{"a":1}}', 5, 3),
        ("{}", None, None),
        ('{"numRecords":"5"}', None, None),
        ("{", None, None),
        (None, None, None),
    ],
)
def test_add_counts_its_rows_as_far_as_the_statistics_tell(
    stats: str | None, physical: int | None, live: int | None
) -> None:
    add = parsed({"add": {"path": "a", "size": 1, "stats": stats, "deletionVector": DV}}).add

    assert add is not None
    assert (add.num_records, add.live_records) == (physical, live)
