"""Features: an unknown one is refused, a known one is handled by its row."""

import pytest

from maint_assets.delta.actions import Protocol
from maint_assets.delta.features import (
    FEATURES,
    Operation,
    feature_names,
    reader_feature_names,
    unsupported,
    writer_feature_names,
)

CHANGES = [operation for operation in Operation if operation is not Operation.READ]


def named(*names: str) -> Protocol:
    """The protocol of a table with these features, each in the lists where it belongs."""
    readers = [name for name in names if name not in FEATURES or FEATURES[name].reader]
    return Protocol(3, 7, readers, list(names))


def forbidden(protocol: Protocol) -> set[Operation]:
    return {operation for operation in Operation if unsupported(protocol, operation)}


@pytest.mark.parametrize(
    ("versions", "readers", "writers"),
    [
        ((1, 1), (), ()),
        ((1, 2), (), ("appendOnly", "invariants")),
        ((1, 3), (), ("appendOnly", "checkConstraints", "invariants")),
        ((2, 2), ("columnMapping",), ("appendOnly", "invariants")),
        (
            (2, 6),
            ("columnMapping",),
            (
                "appendOnly",
                "changeDataFeed",
                "checkConstraints",
                "columnMapping",
                "generatedColumns",
                "identityColumns",
                "invariants",
            ),
        ),
    ],
)
def test_legacy_versions_imply_their_features(
    versions: tuple[int, int], readers: tuple[str, ...], writers: tuple[str, ...]
) -> None:
    protocol = Protocol(*versions)

    assert reader_feature_names(protocol) == readers
    assert writer_feature_names(protocol) == writers
    assert feature_names(protocol) == tuple(sorted({*readers, *writers}))
    assert not forbidden(protocol)


def test_named_versions_imply_nothing() -> None:
    assert feature_names(Protocol(3, 7, [], [])) == ()
    assert feature_names(Protocol(1, 7, None, ["rowTracking"])) == ("rowTracking",)


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("deletionVectors", set[Operation]()),
        ("vacuumProtocolCheck", set[Operation]()),
        ("rowTracking", set[Operation]()),
        ("icebergCompatV1", set[Operation]()),
        ("icebergCompatV2", {Operation.REWRITE}),
        ("geospatial", {Operation.REWRITE}),
        ("collations", {Operation.REWRITE}),
        ("timestampNanos", set(CHANGES)),
        ("catalogManaged", set(CHANGES)),
        ("catalogOwned-preview", set(CHANGES)),
        ("coordinatedCommits-preview", set(CHANGES)),
        ("redirectWriterOnly-preview", set(CHANGES)),
        ("redirectReaderWriter-preview", set(Operation)),
        ("adaptiveMetadata-preview", set(Operation)),
        ("invented", set(Operation)),
        ("DeletionVectors", set(Operation)),
    ],
)
def test_feature_forbids_operations(name: str, operations: set[Operation]) -> None:
    assert forbidden(named(name)) == operations


@pytest.mark.parametrize("name", FEATURES)
def test_feature_row_is_sound(name: str) -> None:
    row = FEATURES[name]

    assert row.reason
    assert forbidden(named(name)) == set(Operation) - row.operations


def test_unknown_writer_feature_leaves_the_table_readable() -> None:
    assert forbidden(Protocol(1, 7, None, ["invented"])) == set(CHANGES)


@pytest.mark.parametrize(
    ("protocol", "operations"),
    [
        (Protocol(0, 2), set(Operation)),
        (Protocol(4, 7, [], []), set(Operation)),
        (Protocol(3, 7, None, []), set(Operation)),
        (Protocol(1, 0), set(CHANGES)),
        (Protocol(1, 8, None, []), set(CHANGES)),
        (Protocol(1, 7), set(CHANGES)),
        (Protocol(3, 7, ["deletionVectors"], []), set(CHANGES)),
        (Protocol(3, 6, ["deletionVectors"]), set(CHANGES)),
    ],
)
def test_unsound_protocol_forbids(protocol: Protocol, operations: set[Operation]) -> None:
    assert forbidden(protocol) == operations


def test_reasons_name_each_feature_once() -> None:
    assert unsupported(named("invented", "catalogManaged"), Operation.VACUUM) == [
        "reader feature 'invented' is unknown",
        "catalogManaged does not allow vacuum: the catalog owns the commits",
    ]
