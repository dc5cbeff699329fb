"""Conflicts: a commit that no row allows ends the rewrite, a doubtful input counts as lost."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from maint_assets.delta.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from maint_assets.delta.conflicts import (
    HARMLESS_FEATURES,
    HARMLESS_FIELD_METADATA,
    HARMLESS_PROPERTIES,
    CommitEffect,
    RewriteBasis,
    commit_effect,
)
from maint_assets.delta.features import FEATURES, Operation
from maint_assets.delta.paths import TableRoot

DV = DeletionVector("u", "x", 40, 2)
ROOT = TableRoot.of("/t")
PROTOCOL = Protocol(3, 7, ["deletionVectors"], ["deletionVectors", "appendOnly"])


def schema(
    metadata: Mapping[str, object] | None = None, *, kind: str = "long", nullable: bool = True
) -> str:
    column = {"name": "id", "type": kind, "nullable": nullable, "metadata": dict(metadata or {})}
    return json.dumps({"type": "struct", "fields": [column]})


TABLE = Metadata("id", schema(), ["p"], {"delta.appendOnly": "false", "delta.x": "1"})


def meant(*actions: Action, inputs: Mapping[str, Add] | None = None) -> CommitEffect:
    known = {"a": Add("a", 1), "b": Add("b", 1, deletion_vector=DV)}
    planned = RewriteBasis(ROOT, PROTOCOL, TABLE, inputs or known, frozenset({"new"}))
    return commit_effect(actions, planned)


def changed(**fields: Any) -> list[str]:
    return meant(Action(metaData=msgspec.structs.replace(TABLE, **fields))).closed


def configured(**properties: str | None) -> list[str]:
    return changed(configuration={**TABLE.configuration, **properties})


def upgraded(*names: str) -> list[str]:
    readers = [name for name in names if name in FEATURES and FEATURES[name].reader]
    writers = ["deletionVectors", "appendOnly", *names]
    protocol = Protocol(3, 7, ["deletionVectors", *readers], writers)
    return meant(Action(protocol=protocol)).closed


def test_commit_of_other_files_means_nothing() -> None:
    info = CommitInfo(operation="WRITE")
    others = [
        Action(commitInfo=info),
        Action(add=Add("c", 1)),
        Action(remove=Remove("d")),
        Action(cdc=Cdc("_change_data/a")),
        Action(txn=Txn("app", 1)),
        Action(metaData=TABLE),
        Action(protocol=PROTOCOL),
        Action(domainMetadata=DomainMetadata("mine", "{}")),
        Action(),
    ]

    assert meant(*others) == CommitEffect(info=info)


@pytest.mark.parametrize(
    ("actions", "name"),
    [
        ([Action(remove=Remove("a"))], "a"),
        ([Action(remove=Remove("./a"))], "a"),
        ([Action(remove=Remove("file:/t/a"))], "a"),
        ([Action(remove=Remove("%61"))], "a"),
        ([Action(remove=Remove("b", deletion_vector=DV))], "b"),
        ([Action(remove=Remove("b"))], "b"),
        ([Action(add=Add("a", 1, deletion_vector=DV))], "a"),
        ([Action(add=Add("b", 1))], "b"),
        ([Action(add=Add("/t/a", 1))], "a"),
        ([Action(add=Add("a", 1)), Action(remove=Remove("a"))], "a"),
    ],
)
def test_input_is_lost_by_whatever_names_its_file(actions: list[Action], name: str) -> None:
    assert set(meant(*actions).lost) == {name}


@pytest.mark.parametrize(
    "add", [Add("a", 1, base_row_id=5), Add("b", 1, tags={"t": "1"}, deletion_vector=DV)]
)
def test_same_logical_file_that_is_added_again_is_renewed(add: Add) -> None:
    found = meant(Action(add=add))

    assert (found.renewed, found.lost) == ({add.path: add}, {})


def test_escapes_differ_in_case_only() -> None:
    add = Add("x%2fy", 1)

    assert meant(Action(add=add), inputs={"x/y": Add("x%2Fy", 1)}).renewed == {"x/y": add}


def test_new_file_that_somebody_committed_is_recognised() -> None:
    assert meant(Action(add=Add("new", 1))).known == {"new"}


@pytest.mark.parametrize("row", HARMLESS_PROPERTIES, ids=lambda row: row.name)
def test_harmless_property_may_change_to_its_values_only(row: Any) -> None:
    assert row.reason
    assert configured(**{row.name: row.value or "anything"}) == []
    assert configured(**{row.name.upper(): row.value or "anything"}) == []
    assert bool(configured(**{row.name: "other"})) == (row.value is not None)


@pytest.mark.parametrize(
    "key",
    [
        "delta.enableRowTracking",
        "delta.rowTracking.materializedRowIdColumnName",
        "delta.rowTrackingSuspended",
        "delta.columnMapping.mode",
        "delta.enableInCommitTimestamps",
        "delta.enableIcebergCompatV1",
        "delta.universalFormat.enabledFormats",
        "delta.dataSkippingStatsColumns",
        "delta.parquet.compression.codec",
        "delta.constraints.positive",
        "DELTA.invented",
    ],
)
def test_any_other_property_closes(key: str) -> None:
    assert configured(**{key: "true"}) == [f"property {key.lower()} changed from None to true"]


def test_property_that_goes_closes_unless_harmless() -> None:
    without = {"delta.appendOnly": "false"}

    assert changed(configuration=without) == ["property delta.x changed from 1 to None"]
    assert changed(configuration={"delta.x": "1"}) == []


def test_properties_of_users_names_and_comments_may_change() -> None:
    assert configured(owner="me") == []
    assert changed(name="n", description="d", created_time=5) == []


@pytest.mark.parametrize(
    "text",
    [
        schema(kind="string"),
        schema(nullable=False),
        schema({"delta.columnMapping.id": 1}),
        schema({"CURRENT_DEFAULT": "1"}),
        json.dumps({"type": "struct", "fields": []}),
        "",
        None,
    ],
)
def test_schema_that_changes_closes(text: str | None) -> None:
    assert changed(schema_string=text) == ["the schema changed"]


@pytest.mark.parametrize("row", HARMLESS_FIELD_METADATA, ids=lambda row: row.name)
def test_harmless_metadata_of_a_column_may_change(row: Any) -> None:
    assert row.reason
    assert changed(schema_string=schema({row.name: 5})) == []


def test_other_table_and_other_partitions_close() -> None:
    assert changed(id="other") == ["the table was replaced by another one"]
    assert changed(partition_columns=[]) == ["the partition columns changed"]


@pytest.mark.parametrize("name", FEATURES)
def test_feature_that_is_added_closes_unless_harmless(name: str) -> None:
    harmless = {row.name for row in HARMLESS_FEATURES}

    assert bool(upgraded(name)) == (name not in harmless)


def test_harmless_features_are_known_and_may_be_rewritten() -> None:
    rows = [FEATURES[row.name] for row in HARMLESS_FEATURES if row.reason]

    assert len(rows) == len(HARMLESS_FEATURES)
    assert all(Operation.REWRITE in row.operations for row in rows)


def test_unknown_and_removed_features_close() -> None:
    assert upgraded("invented") == [
        "writer feature 'invented' is unknown",
        "feature invented was added",
    ]
    fewer = Protocol(3, 7, ["deletionVectors"], ["deletionVectors"])
    assert meant(Action(protocol=fewer)).closed == ["feature appendOnly was removed"]


@pytest.mark.parametrize(
    ("domain", "closed", "mark"),
    [
        (DomainMetadata("mine"), False, None),
        (DomainMetadata("delta.clustering", "{}"), True, None),
        (DomainMetadata("delta.invented", "{}"), True, None),
        (DomainMetadata("delta.rowTracking", '{"rowIdHighWaterMark":7,"x":1}'), False, 7),
        (DomainMetadata("delta.rowTracking", "{}"), True, None),
        (DomainMetadata("delta.rowTracking", None), True, None),
        (DomainMetadata("delta.rowTracking", '{"rowIdHighWaterMark":7}', removed=True), True, None),
    ],
)
def test_domain_means_what_its_row_says(
    domain: DomainMetadata, *, closed: bool, mark: int | None
) -> None:
    found = meant(Action(domainMetadata=domain))

    assert (bool(found.closed), found.row_id_high_water_mark) == (closed, mark)
