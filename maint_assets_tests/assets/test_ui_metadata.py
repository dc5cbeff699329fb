"""The metadata that users see of a materialisation."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from maint_assets.assets.factory import stage_key
from maint_assets.assets.numbers import human_bytes, human_count, human_time
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain

STAGES = ("snapshot", "valid_files", "listing", "diff", "deletion")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (14_500, "14.5 KB"),
        (3_200_000_000, "3.2 GB"),
        (5e18, "5000.0 PB"),
    ],
)
def test_sizes_read_as_people_write_them(size: float, shown: str) -> None:
    assert human_bytes(size) == shown


def test_times_and_counts_read_as_people_write_them() -> None:
    assert human_time(0) == "1970-01-01 00:00:00 UTC"
    assert human_time(None) == "-"
    assert [human_count(n, "directory") for n in (1, 1200)] == ["1 directory", "1,200 directories"]


@pytest.fixture(scope="module")
def shown(
    spark: object, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, dg.MetadataValue[Any]]]:
    """The metadata of each stage for a table with 30 files to delete."""
    tmp_path = tmp_path_factory.mktemp("metadata")
    table = TableBuilder(tmp_path / "t").at(days_ago=30).create().add("live", "old").remove("old")
    for number in range(29):
        table.stray(f"stray-{number:02}", age_days=20, content=b"x" * (100 + number))
    chain = Chain.of(table.path, tmp_path / "out", max_delete_share=1)
    chain.vacuum()
    found = {}
    for stage in STAGES:
        key = stage_key(chain.table, stage, ("maintenance",))
        event = chain.launcher.instance.get_latest_materialization_event(key)
        assert event is not None
        assert event.asset_materialization is not None
        found[stage] = dict(event.asset_materialization.metadata)
    return found


def test_the_summary_comes_first_and_is_for_people(shown: dict[str, Any]) -> None:
    first = {stage: next(iter(values)) for stage, values in shown.items()}

    assert set(first.values()) == {"summary"}
    assert "**30 files, " in shown["diff"]["summary"].value
    assert "`approved_plan`:  \n`" + shown["diff"]["digest"].value in shown["diff"]["summary"].value
    assert shown["deletion"]["summary"].value.startswith("**30 files, ")
    assert "1 live file" in shown["snapshot"]["summary"].value


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ("snapshot", ["live_files", "live_bytes", "tombstones"]),
        ("listing", ["files", "bytes", "directories", "seconds", "files_per_second"]),
        ("diff", ["files", "directories", "bytes", "table_bytes", "share", "by_kind/orphan"]),
        ("deletion", ["files", "bytes", "failed", "skipped", "seconds"]),
    ],
)
def test_numbers_stay_numbers_so_that_they_plot(
    shown: dict[str, Any], stage: str, names: list[str]
) -> None:
    kinds = {name: type(shown[stage][name]) for name in names}

    assert set(kinds.values()) <= {dg.IntMetadataValue, dg.FloatMetadataValue}, kinds


@pytest.mark.parametrize("stage", STAGES)
def test_a_preview_is_short_and_has_a_schema(shown: dict[str, Any], stage: str) -> None:
    preview = shown[stage]["preview"]

    assert 0 < len(preview.records) <= 25
    assert {c.name for c in preview.schema.columns} == set(preview.records[0].data)
    assert shown[stage]["dagster/column_schema"].value.columns


def test_a_preview_shows_the_largest_first_with_readable_times(shown: dict[str, Any]) -> None:
    records = [record.data for record in shown["diff"]["preview"].records]

    sizes = [record["size"] for record in records]
    assert sizes == sorted(sizes, reverse=True)
    assert all(str(record["modified"]).endswith(" UTC") for record in records)


def test_times_are_readable_and_not_among_the_plots(shown: dict[str, Any]) -> None:
    assert shown["diff"]["cutoff"].value.endswith(" UTC")
    assert shown["diff"]["retention"].value == "7 days"
    assert not [name for values in shown.values() for name in values if name.endswith("_ms")]


def test_a_stage_without_rows_has_no_preview(spark: object, tmp_path: Path) -> None:
    TableBuilder(tmp_path / "t").create().add("live")
    chain = Chain.of(tmp_path / "t", tmp_path / "out")
    chain.plan()
    key = stage_key(chain.table, "diff", ("maintenance",))

    event = chain.launcher.instance.get_latest_materialization_event(key)

    assert event is not None
    assert event.asset_materialization is not None
    assert "preview" not in event.asset_materialization.metadata
    assert "Nothing to delete" in str(event.asset_materialization.metadata["summary"].value)
