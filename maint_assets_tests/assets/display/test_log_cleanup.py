"""The display of a log cleanup: each stop reason, the versions that are lost, short lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from maint_assets.assets.display.log_cleanup import ends_line, expired_line, since_line, stop_line
from maint_assets.assets.stages.log_cleanup import ExpiredLogsSummary
from maint_assets.log_cleanup.plan import STOP_REASONS, LogCleanupPlan

DAGSTER_SHOWS = 1_000
"""Characters of Markdown that the UI shows; it hides longer texts behind a click."""

PLAN = LogCleanupPlan(
    table="/lake/orders",
    table_id="id",
    version=40,
    mode="protocol",
    cutoff_ms=1_792_713_600_000,
    retention_ms=30 * 86_400_000,
    table_retention_ms=30 * 86_400_000,
    planned_ms=1_795_341_600_000,
    digest="0123456789abcdef" * 2,
    files=3_210,
    bytes=12_345_678,
    anchor_version=10,
    creates_anchor=False,
    stop_reason=None,
    earliest_version_before=0,
    earliest_version_after=10,
)
SUMMARY = ExpiredLogsSummary(
    plan=PLAN,
    by_kind={"compaction": 1, "commit": 1_600, "checksum": 1_600, "v2_checkpoint": 9},
    bytes_by_kind={},
    cutoff_version=13,
    versions_ending=10,
    ending=[(0, 9)],
    rejected=[],
    notes=[],
    log_files=5_000,
    log_bytes=23_456_789,
    log_commits=41,
    log_checkpoints=4,
)


def planned(*, ending: list[tuple[int, int]], **changed: Any) -> ExpiredLogsSummary:
    count = sum(last - first + 1 for first, last in ending)
    plan = replace(PLAN, **changed)
    return replace(SUMMARY, plan=plan, ending=ending, versions_ending=count)


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_each_stop_reason_is_shown_with_its_name(reason: str) -> None:
    assert f"({reason})" in stop_line(replace(PLAN, stop_reason=reason))


def test_the_cutoff_of_kept_versions_is_shown() -> None:
    assert since_line(SUMMARY) == (
        "Versions are kept for 30 days: since 2026-10-23 00:00:00 UTC, "
        "when version 13 was the newest"
    )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"ending": [(0, 9)]},
            "The log then begins with checkpoint 10; versions 0 to 9 can no longer be read",
        ),
        (
            {"ending": [(0, 2), (5, 5), (7, 9)]},
            "The log then begins with checkpoint 10; "
            "versions 0 to 2, 5 and 7 to 9 can no longer be read",
        ),
        (
            {"ending": [(0, 2), (4, 4), (6, 6), (8, 8)]},
            "The log then begins with checkpoint 10; 6 versions from 0 to 8 can no longer be read",
        ),
        (
            {"ending": [(9, 9)]},
            "The log then begins with checkpoint 10; version 9 can no longer be read",
        ),
        (
            {"ending": []},
            "The log then begins with checkpoint 10; "
            "every version that can be read now stays readable",
        ),
        (
            {"creates_anchor": True, "ending": [(0, 9)]},
            "The log then begins with checkpoint 10, which is written first; "
            "versions 0 to 9 can no longer be read",
        ),
        (
            {"mode": "spark", "ending": [(0, 13)]},
            "As delta-spark does it, versions 0 to 13 can no longer be read, "
            "also 13, which was the newest then",
        ),
        (
            {"mode": "spark", "ending": [(0, 40)], "earliest_version_after": None},
            "As delta-spark does it, no version can be read any more",
        ),
    ],
)
def test_versions_that_become_unreadable_are_shown(changed: dict[str, Any], expected: str) -> None:
    assert ends_line(planned(**changed)) == expected


def test_a_summary_has_short_lines_and_is_never_hidden() -> None:
    wrong = "checkpoint {:020}.checkpoint.parquet cannot be read (it is not a parquet file at all)"
    rejected = [wrong.format(version) for version in range(20)]

    line = expired_line(replace(SUMMARY, rejected=rejected))

    assert "and 19 checkpoints more not sound" in line
    assert len(line) < DAGSTER_SHOWS
    assert all(len(each.strip()) <= 60 for each in line.splitlines())
