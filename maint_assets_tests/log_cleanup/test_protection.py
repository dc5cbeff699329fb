"""Checkpoint protection: what the RFC forbids is kept; tests show what Delta allows beyond it.

Versions up to 13 have expired, as in test_expired_logs; checkpoints are at 5 and 10.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from maint_assets_tests.log_cleanup.logs import daily_log, of_versions, planned, single
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import rewrite

UNKNOWN = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["fromTheFuture"],
    "writerFeatures": ["fromTheFuture", "checkpointProtection"],
}


def _protected(path: Path, before: int, *, checksums: bool = True) -> TableBuilder:
    key = "delta.requireCheckpointProtectionBeforeVersion"
    return daily_log(
        path,
        checkpoints=(5, 10),
        checksums=checksums,
        features=("checkpointProtection",),
        configuration={key: str(before)},
    )


def _unknown_between(builder: TableBuilder, first: int, last: int) -> None:
    """Put an unknown protocol into the versions from ``first`` to ``last``."""
    for version in (first, last + 1):
        file = builder.log / f"{version:020d}.json"
        protocol = UNKNOWN if version == first else builder.protocol
        rewrite(file, file.read_text() + json.dumps({"protocol": protocol}) + "\n")
    for version in range(first, last + 1):
        crc = builder.log / f"{version:020d}.crc"
        if crc.exists():
            rewrite(crc, json.dumps(json.loads(crc.read_text()) | {"protocol": UNKNOWN}))


GONE = of_versions(*range(10)) | {single(5)}


@pytest.mark.parametrize("before", [0, 1, 10, 12, 99])
def test_versions_whose_protocols_are_all_known_may_go(tmp_path: Path, before: int):
    _protected(tmp_path, before)

    assert planned(tmp_path)[0] == GONE


def test_without_checksums_protocols_are_looked_up_in_commits(tmp_path: Path):
    builder = _protected(tmp_path, 15, checksums=False)
    _unknown_between(builder, 3, 4)

    names, found = planned(tmp_path)

    assert (names, found.stop_reason) == (set(), "checkpoint_protection")


def test_an_unknown_protocol_keeps_all_versions_before_the_protected_one(tmp_path: Path):
    _unknown_between(_protected(tmp_path, 15), 3, 4)

    assert planned(tmp_path)[1].stop_reason == "checkpoint_protection"


def test_an_unknown_protocol_is_no_matter_when_all_before_goes_at_once(tmp_path: Path):
    _unknown_between(_protected(tmp_path, 10), 3, 4)

    assert planned(tmp_path)[0] == GONE


def test_an_unknown_protocol_after_the_anchor_is_no_matter(tmp_path: Path):
    _unknown_between(_protected(tmp_path, 15), 12, 13)

    assert planned(tmp_path)[0] == GONE


def test_a_property_without_the_feature_protects_nothing(tmp_path: Path):
    configuration: dict[str, Any] = {"delta.requireCheckpointProtectionBeforeVersion": "15"}
    builder = daily_log(tmp_path, checkpoints=(5, 10), configuration=configuration)
    _unknown_between(builder, 3, 4)

    assert planned(tmp_path)[0] == GONE


def test_delta_takes_a_checkpoint_at_the_boundary_for_enough(tmp_path: Path):
    _unknown_between(_protected(tmp_path, 15), 3, 4)

    assert planned(tmp_path, mode="spark")[0] == GONE
