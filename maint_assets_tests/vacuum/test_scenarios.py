"""The scenarios of Delta's own suites on tables by delta-spark, with one clock for both."""

import importlib
from pathlib import Path

import pytest

from maint_assets.errors import NotADeltaTableError, RetentionError
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import directories, files
from maint_assets_tests.support.story import Story
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.slow

AT_ONCE = {"retention": "0 hours", "allow_short_retention": True}
DAYS = 7


def data(story: Story, *, vectors: bool = False) -> int:
    """The number of data files, or of deletion vector files, on the storage."""
    kind = ".bin" if vectors else ".parquet"
    return sum(name.endswith(kind) for name in story.data_files())


@pytest.mark.long
def test_a_stray_goes_when_it_is_older_than_the_retention(story: Story) -> None:
    story.create().append(1).stray("stray").wait(days=DAYS, hours=-1)
    assert files(story.plan()) == story.delta_plan() == set()

    story.wait(hours=2)

    assert story.delta_plan(mode="LITE") == files(story.plan(mode="lite")) == set()
    assert story.delta_plan() == {"stray"}
    story.expect(gone={"stray"}, report=story.vacuum())
    assert len(story.rows()) == 1


def test_a_removed_file_goes_when_its_removal_is_older_than_the_retention(story: Story) -> None:
    story.create(partition="p").append(1, p="a").append(2, p="b").wait(days=DAYS)
    [file] = [name for name in story.data_files() if name.startswith("p=a")]
    story.delete("p = 'a'").wait(days=DAYS, hours=-1)
    assert files(story.plan()) == story.delta_plan() == set()

    story.wait(hours=2)

    assert story.delta_plan() == story.delta_plan(mode="LITE") == {file}
    done = story.vacuum()
    story.expect(gone={file}, report=done)
    assert directories(done) == {"p=a"}, "also what Hadoop hides beside the file is gone"
    assert story.readable() == [0, 3, 4, 5]


@pytest.mark.long
def test_removing_a_file_does_not_delete_it_before_it_is_asked_to(story: Story) -> None:
    [file] = story.create().append(1).data_files()
    story.append(2).delete("id = 1").wait(hours=1)
    assert files(story.plan()) == set()
    with pytest.raises(RetentionError, match="allow"):
        story.plan(retention="0 hours")

    planned = story.delta_plan(hours=0.0)

    assert file in planned
    story.expect(gone=planned, report=story.vacuum(**AT_ONCE))
    assert [row["id"] for row in story.rows()] == [2]


@pytest.mark.long
def test_after_a_purge_only_the_newest_files_stay(story: Story) -> None:
    story.create(enableDeletionVectors="true")
    for first in range(0, 10, 2):
        story.append(first, first + 1)
    story.delete("id IN (0, 2, 4, 6)").purge().wait(hours=1)
    rows = story.rows()
    assert data(story) == 6
    assert data(story, vectors=True)
    lite = story.delta_plan(hours=0.0, mode="LITE")
    assert files(story.plan(mode="lite", **AT_ONCE)) == lite

    planned = story.delta_plan(hours=0.0)

    story.expect(gone=planned, report=story.vacuum(**AT_ONCE))
    assert (data(story), data(story, vectors=True)) == (2, 0)
    assert story.rows() == rows


@pytest.mark.long
def test_vectors_go_with_the_versions_that_need_them(story: Story) -> None:
    story.create(enableDeletionVectors="true", deletedFileRetentionDuration="interval 1 hours")
    story.append(*range(10)).append(*range(10, 20)).wait(hours=1)
    for where in ("id IN (0, 10)", "id = 1", "id >= 10"):
        story.delete(where).wait(hours=1)
    story.purge()
    kept = []
    for _ in range(5):
        ours = files(story.plan())
        assert ours == story.delta_plan()
        story.expect(gone=ours, report=story.vacuum())
        kept.append((data(story), data(story, vectors=True)))
        assert story.rows()
        story.wait(hours=1)
    assert kept[0] > kept[-1]
    assert kept[-1] == (1, 0)
    assert files(story.plan(**AT_ONCE)) == story.delta_plan(hours=0.0) == set()


@pytest.mark.long
def test_vectors_that_are_in_use_stay(story: Story) -> None:
    story.create(partition="p", enableDeletionVectors="true")
    for part in "abcd":
        story.append(1, 2, 3, 4, p=part)
    story.delete("id = 1").wait(hours=1)
    assert files(story.plan(**AT_ONCE)) == story.delta_plan(hours=0.0) == set()

    story.delete("id = 2 AND p = 'a'").delete("p IN ('b', 'c')").wait(hours=1)

    planned = story.delta_plan(hours=0.0)
    assert planned
    story.expect(gone=planned, report=story.vacuum(**AT_ONCE))
    assert sorted((row["p"], row["id"]) for row in story.rows()) == [
        ("a", 3), ("a", 4), ("d", 2), ("d", 3), ("d", 4),
    ]  # fmt: skip


@pytest.mark.long
def test_change_data_goes_by_its_age(story: Story) -> None:
    story.create(enableChangeDataFeed="true").append(1, 2).update("p = 'new'", "id = 1")
    story.merge(2, 3).delete("id = 3").wait(days=DAYS - 1)
    assert files(story.plan()) == story.delta_plan() == set()
    story.wait(days=1, hours=1)

    planned = story.delta_plan()

    report = story.vacuum()
    story.expect(gone=planned, report=report)
    assert report.planned.by_kind["cdc"] >= 2
    assert {row["id"] for row in story.rows()} == {1, 2}
    changes = story.spark.read.format("delta").option("readChangeFeed", "true")
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        changes.option("startingVersion", "2").load(str(story.path)).collect()


@pytest.mark.long
def test_optimized_files_go_and_the_report_says_which_versions_end(story: Story) -> None:
    story.create().append(1).append(2).optimize().wait(hours=1)
    rows = story.rows()

    report = story.vacuum(**AT_ONCE)

    assert len(files(report)) == 2
    assert report.planned.time_travel_ends_before == 3
    assert [version for version in story.readable() if version < 3] == [0]
    assert story.rows() == rows


@pytest.mark.long
def test_versions_with_vectors_stay_readable_once_the_feature_is_dropped(story: Story) -> None:
    story.create(enableDeletionVectors="true").append(*range(10)).delete("id = 0")
    before = story.rows()
    story.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    story.purge().sql("ALTER TABLE {t} DROP FEATURE deletionVectors").wait(days=DAYS - 1)

    assert files(story.plan()) == story.delta_plan() == set()

    assert story.rows(2) == before
    story.wait(days=1, hours=1)
    planned = story.delta_plan()
    story.expect(gone=planned, report=story.vacuum())
    assert story.rows() == before


@pytest.mark.long
def test_a_restored_file_stays_and_its_second_removal_counts(story: Story) -> None:
    [file] = story.create().append(1).data_files()
    story.append(2).delete("id = 1").wait(days=DAYS - 2).restore(1)
    story.wait(days=3)
    assert files(story.plan()) == story.delta_plan()
    story.delete("id = 1").wait(days=DAYS, hours=-1)
    assert files(story.plan()) == story.delta_plan()
    story.wait(hours=2)

    planned = story.delta_plan()

    story.expect(gone=planned, report=story.vacuum())
    assert file in planned


@pytest.mark.long
def test_a_clone_lives_on_what_its_source_keeps(story: Story, tmp_path: Path) -> None:
    story.create().append(1).append(2)
    clone = story.clone(tmp_path / "clone").delete("id = 1").append(3)
    clone.wait(days=DAYS + 1)

    planned = clone.delta_plan()

    clone.expect(gone=planned, report=clone.vacuum())
    assert sorted(row["id"] for row in clone.rows()) == [2, 3]
    assert sorted(row["id"] for row in story.rows()) == [1, 2]


@pytest.mark.long
def test_a_checkpoint_changes_no_plan(story: Story) -> None:
    story.create(partition="p").append(1).append(2).delete("id = 1").update("p = 'b'", "id = 2")
    story.wait(days=DAYS + 1).stray("x", age_days=8)
    planned = story.delta_plan()
    assert files(story.plan()) == planned

    story.checkpoint()

    assert files(story.plan()) == story.delta_plan() == planned


def test_a_table_without_columns_has_nothing_to_vacuum(story: Story) -> None:
    story.sql("CREATE TABLE {t} USING delta")

    assert files(story.plan(**AT_ONCE)) == story.delta_plan(hours=0.0) == set()


def test_unknown_actions_and_fields_are_passed_over(tmp_path: Path, chain_of: ChainOf) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a", "b", newField={"x": [1]})
    table.commit([{"someAction": {"path": "a"}}, *[table.removed("b", table.clock_ms)]])
    table.age("**/*", 9)

    assert files(chain_of(tmp_path).vacuum()) == {"b"}
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize("place", ["", "p=1", "nowhere"])
def test_what_is_no_table_is_refused(story: Story, place: str) -> None:
    story.create(partition="p").append(1, p="1")
    if not place:
        (story.path / "_delta_log").rename(story.path / "elsewhere")
    before = story.data_files()

    with pytest.raises(NotADeltaTableError):
        story.chain_of(story.path / place).plan()

    assert story.data_files() == before


HERE = "vacuum.test_scenarios"
SCENARIOS: dict[str, list[int]] = {
    f"{HERE}::test_removing_a_file_does_not_delete_it_before_it_is_asked_to": [1, 2, 5, 21],
    f"{HERE}::test_a_stray_goes_when_it_is_older_than_the_retention": [16, 51],
    f"{HERE}::test_a_removed_file_goes_when_its_removal_is_older_than_the_retention": [16],
    f"{HERE}::test_what_is_no_table_is_refused": [7, 22, 29],
    f"{HERE}::test_after_a_purge_only_the_newest_files_stay": [24, 33],
    f"{HERE}::test_vectors_go_with_the_versions_that_need_them": [27],
    f"{HERE}::test_vectors_that_are_in_use_stay": [28],
    f"{HERE}::test_change_data_goes_by_its_age": [30, 31],
    f"{HERE}::test_versions_with_vectors_stay_readable_once_the_feature_is_dropped": [42],
    f"{HERE}::test_optimized_files_go_and_the_report_says_which_versions_end": [44],
    f"{HERE}::test_unknown_actions_and_fields_are_passed_over": [45],
    f"{HERE}::test_a_table_without_columns_has_nothing_to_vacuum": [46],
    f"{HERE}::test_a_restored_file_stays_and_its_second_removal_counts": [57],
    "vacuum.test_paths::test_hidden_names_and_what_is_below_them_stay": [8, 9, 26],
    "vacuum.test_paths::test_partition_values_of_all_kinds_protect_and_go": [20],
    "vacuum.test_paths::test_foreign_paths_are_untouched_and_no_failure": [16, 54],
    "vacuum.test_paths::test_every_spelling_of_a_path_protects_its_file": [54],
    "vacuum.test_paths::test_root_with_a_strange_path_is_vacuumed": [43],
    "vacuum.test_paths::test_uniform_keeps_metadata_at_any_depth": [25],
    "vacuum.test_paths::test_nested_table_is_left_alone_where_delta_spark_would_delete_it": [55],
    "vacuum.test_directories::test_emptied_directories_go_in_one_run_and_all_others_stay": [14, 19],
    "vacuum.test_directories::test_delta_spark_needs_more_runs_for_nested_directories": [14],
    "vacuum.test_directories::test_root_stays_when_everything_goes": [15],
    "vacuum.test_inventory::test_an_inventory_that_lacks_something_is_refused": [10],
    "vacuum.test_inventory::test_plan_is_that_of_delta_where_nothing_is_hidden": [11, 12, 13],
    "vacuum.test_inventory::test_rows_that_are_no_longer_true_are_skipped": [11],
    "vacuum.test_inventory::test_a_path_listed_twice_is_deleted_only_if_it_is_old_both_times": [39],
    "vacuum.test_inventory::test_nested_hidden_names_stay_where_delta_takes_them": [55],
    "test_large_tables::test_large_plan_is_executed_whole": [17],
    "test_config_values::test_a_duration_without_number_or_known_unit_is_refused": [18],
    "vacuum.test_retention::test_retention_below_the_property_is_refused": [18, 21, 23],
    "vacuum.test_retention::test_retain_24_is_honoured_where_delta_spark_ignores_it": [38],
    "vacuum.test_retention::test_long_retention_protects_tombstones_that_the_checkpoint_dropped": [
        60
    ],
    "vacuum.test_retention::test_file_at_the_cutoff_stays_and_one_before_goes": [58],
    "vacuum.test_deletion::test_history_shows_start_and_end_as_delta_writes_them": [32, 50],
    "vacuum.test_deletion::test_no_commits_where_none_are_wanted": [32],
    "vacuum.test_deletion::test_failed_deletion_is_reported_and_the_next_run_finishes": [59],
    "vacuum.test_deletion::test_what_came_since_the_plan_survives": [57],
    "vacuum.test_faults::test_what_a_restore_brings_back_between_two_batches_survives": [57],
    "vacuum.test_damaged_tables::test_each_feature_is_vacuumed_like_any_table_or_refused_by_name": [
        34,
        40,
    ],
    "vacuum.test_lite::test_lite_refuses_a_log_that_lacks_commits": [35, 36],
    "vacuum.test_lite::test_repeated_lite_finds_nothing_more": [37],
    "vacuum.test_lite::test_after_a_complete_run_the_log_before_it_may_go": [56],
    "vacuum.test_lite::test_what_was_not_deleted_is_found_again": [56],
    "vacuum.test_lite::test_a_removal_dated_later_than_its_commit_is_not_forgotten": [56],
    "vacuum.test_feature_tables::test_plan_is_that_of_delta_and_rows_stay": [52],
    "vacuum.test_deletion_vectors::test_inline_vector_works_where_delta_spark_crashes": [53],
    "vacuum.test_deletion_vectors::test_absolute_vector_stays_where_delta_spark_deletes_it": [53],
    "vacuum.test_deletion_vectors::test_vector_file_shared_by_two_stays_until_both_are_gone": [53],
    "vacuum.test_deletion_vectors::test_live_vectors_stay_and_superseded_ones_go": [53],
}
NOT_OURS = {
    3: "names of a catalog: ours are locations",
    4: "views of a catalog",
    6: "names of a catalog",
    41: "enabling a feature is a writer's",
    47: "file-system options of Hadoop",
    48: "catalogs of Spark",
    49: "the grammar of Spark's SQL",
}


def test_every_scenario_of_the_list_has_a_test_that_is_there() -> None:
    covered = {number for numbers in SCENARIOS.values() for number in numbers}

    assert covered | set(NOT_OURS) == set(range(1, 61))
    for name in SCENARIOS:
        module, _, test = name.partition("::")
        assert hasattr(importlib.import_module(f"maint_assets_tests.{module}"), test), name
