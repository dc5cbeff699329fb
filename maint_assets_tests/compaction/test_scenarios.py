"""The tests that cover each scenario of the upstream suites."""

import importlib

SCENARIOS: dict[str, list[str]] = {
    # OptimizeCompactionSuite
    "optimize command": ["compaction.test_compaction::test_files_of_a_partition_become_one"],
    "predicate on non-partition column": [
        "compaction.test_compaction::test_predicates_of_anything_else_are_refused"
    ],
    "all partitions": ["compaction.test_compaction::test_files_of_a_partition_become_one"],
    "with deletion vectors": [
        "compaction.planning.test_sizes::test_files_with_enough_deleted_rows_are_rewritten_beside_small_ones"
    ],
    "interleaved, first and last, only first": [
        "compaction.test_partitions::test_only_parts_of_many_files_become_one_file_in_one_commit"
    ],
    "selected partitions": [
        "compaction.test_compaction::test_only_partitions_that_match_are_rewritten"
    ],
    "null partition columns": [
        "compaction.test_partitions::test_no_value_is_one_partition_and_empty_text_another"
    ],
    "multiple partition columns": [
        "compaction.test_partitions::test_only_parts_of_many_files_become_one_file_in_one_commit"
    ],
    "multiple jobs start at once": [
        "compaction.test_partitions::test_what_many_tasks_wrote_is_in_one_commit"
    ],
    "multiple predicates": [
        "compaction.test_compaction::test_only_partitions_that_match_are_rewritten"
    ],
    "batching": [
        "compaction.test_compaction::test_commits_are_as_large_as_asked",
        "compaction.test_partitions::test_batches_are_made_of_the_partitions_that_were_asked_for",
    ],
    "empty table": [
        "compaction.test_partitions::test_a_table_without_files_has_nothing_to_compact"
    ],
    "catalog-managed": ["compaction.test_purge::test_commits_that_a_catalog_owns_are_refused"],
    "normalized partition values": [
        "compaction.test_partitions::test_timestamps_are_merged_where_their_zone_is_known",
        "delta.test_partitions::test_spellings_of_one_value_are_one",
    ],
    "missing path": ["compaction.test_purge::test_what_is_no_table_is_refused"],
    "missing predicate, no boolean": [
        "compaction.test_compaction::test_predicates_of_anything_else_are_refused"
    ],
    "partition value with space": [
        "compaction.test_partitions::test_no_value_is_one_partition_and_empty_text_another",
        "compaction.test_feature_tables::test_rows_are_the_same_and_writers_go_on",
    ],
    # OptimizeZOrderSuite, StatsCollectionSuite, DeltaVariantSuite
    "Z-order: missing, partition column": [
        "compaction.test_ordering::test_columns_that_help_no_reader_are_refused_by_name"
    ],
    "Z-order: column without stats": [
        "compaction.test_ordering::test_columns_without_statistics_or_bounds_are_refused_as_by_delta"
    ],
    "Z-order: nested, dotted, mapped columns": [
        "compaction.test_ordering::test_nested_and_quoted_names_are_found_whatever_files_call_them"
    ],
    "Z-order: null partition, batching": [
        "compaction.test_ordering::test_partitions_are_ordered_one_by_one_in_as_many_commits_as_asked"
    ],
    "Z-order: empty table": ["compaction.test_ordering::test_an_empty_table_has_nothing_to_order"],
    "Z-order: interleaving": [
        "compaction.test_ordering::test_a_file_takes_each_range_of_a_table_exactly"
    ],
    "Z-order: variant": [
        "compaction.test_ordering::test_variants_are_no_order_here_nor_with_delta"
    ],
    "Z-order: metrics and history": [
        "compaction.test_ordering::test_metrics_are_deltas_but_for_the_strategy",
        "compaction.test_ordering::test_the_commit_info_equals_deltas",
    ],
    "Z-order: row ids": ["compaction.test_ordering::test_row_ids_are_kept"],
    "Z-order respects the target size": [
        "compaction.test_ordering::test_rows_stay_and_lookups_by_each_column_read_few_files"
    ],
    # ClusteredTableClusteringSuite, IncrementalZCubeClusteringSuite, ClusteringProviderSuite
    "clustered table, one and more columns": [
        "compaction.test_ordering::test_a_clustered_table_is_clustered_as_delta_does",
        "compaction.test_ordering::test_a_clustering_is_the_same_behind_a_checkpoint",
    ],
    "a single unsealed cube": ["compaction.ordering.test_cubes::test_a_cube_alone_stays"],
    "incremental clustering": [
        "compaction.test_ordering::test_one_row_more_makes_delta_rewrite_the_whole_cube_and_us_the_row",
        "compaction.ordering.test_cubes::test_a_cube_joins_in_when_it_is_no_larger_than_what_is_ordered_anyway",
    ],
    "sealed cubes": [
        "compaction.ordering.test_cubes::test_a_large_table_is_cut_into_cubes_that_are_not_touched_again"
    ],
    "changed columns, FULL": [
        "compaction.test_ordering::test_after_the_columns_have_changed_old_cubes_wait_for_full",
        "compaction.ordering.test_cubes::test_what_is_clustered_otherwise_waits_for_full",
    ],
    "FULL where there is no order": ["compaction.test_ordering::test_full_needs_an_order"],
    "WHERE and ZORDER BY on a clustered table": [
        "compaction.test_ordering::test_a_clustered_table_is_not_z_ordered"
    ],
    "clustering metrics": ["compaction.test_ordering::test_metrics_of_a_clustering_are_deltas"],
    "provider behind a checkpoint": [
        "compaction.test_ordering::test_a_clustering_is_the_same_behind_a_checkpoint"
    ],
    # MultiDimClusteringSuite and the curves
    "curves": [
        "compaction.ordering.test_curve::test_z_order_is_deltas",
        "compaction.ordering.test_curve::test_the_hilbert_curve_is_deltas",
        "compaction.ordering.test_curve::test_the_hilbert_curve_visits_each_point_once_in_unit_steps",
    ],
    "range ids, nulls, few values": [
        "compaction.ordering.test_positions::test_one_column_gives_its_order_with_nulls_first",
        "compaction.ordering.test_positions::test_no_rows_and_no_values_have_an_order_too",
    ],
    "noise reduces skew": [
        "compaction.ordering.test_positions::test_ties_are_spread_always_in_the_same_way"
    ],
    # OptimizeConflictSuite
    "DELETE between prepare and commit": [
        "compaction.test_compaction::test_a_bin_whose_file_went_meanwhile_is_dropped_alone",
        "commit.rewrite.test_committing::test_only_the_bin_that_lost_an_input_is_dropped",
        "commit.rewrite.test_with_spark::test_winners_of_delta_mean_what_the_rules_say",
    ],
    # OptimizeMetricsSuite
    "history metrics": [
        "commit.rewrite.test_with_spark::test_delta_reads_the_commit_and_goes_on",
        "commit.rewrite.test_metrics::test_percentiles_are_elements_at_their_share_of_the_count",
    ],
    "metric values are real sizes": [
        "compaction.reporting.test_metrics::test_numbers_are_those_of_delta"
    ],
    "exact output schema": ["compaction.reporting.test_metrics::test_numbers_are_those_of_delta"],
    "metrics of a second run": [
        "compaction.reporting.test_metrics::test_a_run_without_work_has_no_batch"
    ],
    "columns with statistics": [
        "compaction.reporting.test_metrics::test_columns_with_statistics_are_those_that_new_files_have_them_of",
        "compaction.reporting.test_metrics::test_metrics_that_delta_gets_wrong_are_right",
    ],
    "metrics of deletion vectors": [
        "compaction.reporting.test_metrics::test_numbers_are_those_of_delta",
        "commit.rewrite.test_committing::test_bin_without_live_rows_commits_its_removes_alone",
    ],
    # DeltaReorgSuite
    "purge merges files with vectors": [
        "compaction.test_purge::test_files_with_deleted_rows_are_merged_once_and_for_all"
    ],
    "second purge": [
        "compaction.test_purge::test_files_with_deleted_rows_are_merged_once_and_for_all"
    ],
    "purge without vectors": [
        "compaction.test_compaction::test_purge_rewrites_files_with_deleted_rows_only"
    ],
    "purge of some partitions": [
        "compaction.test_purge::test_files_with_deleted_rows_are_merged_once_and_for_all"
    ],
    "dropped column physically gone": [
        "compaction.planning.test_dropped_columns::test_the_files_of_deltas_own_purge_are_taken"
    ],
    "renamed column kept": [
        "compaction.planning.test_dropped_columns::test_the_files_of_deltas_own_purge_are_taken",
        "compaction.test_schemas::test_columns_that_came_went_and_were_renamed",
    ],
    "purge of a catalog-managed table": [
        "compaction.test_purge::test_commits_that_a_catalog_owns_are_refused"
    ],
    # RowTrackingCompactionSuite, RowIdSuite, RowTrackingBackfillConflictsSuite
    "fresh and materialised ids": [
        "compaction.test_row_tracking::test_ids_stay_where_only_some_rows_hold_theirs",
        "compaction.test_feature_tables::test_rows_are_the_same_and_writers_go_on",
        "commit.rewrite.test_with_spark::test_row_ids_stay_the_same",
    ],
    "backfill-enabled tables": [
        "compaction.test_row_tracking::test_ids_stay_after_a_backfill_and_where_only_some_rows_hold_theirs"
    ],
    "tracking disabled": [
        "compaction.test_row_tracking::test_row_ids_follow_the_tables_properties_and_are_never_assigned_twice"
    ],
    "snapshot isolation with the domain": [
        "compaction.test_row_tracking::test_ids_stay_after_a_backfill_and_where_only_some_rows_hold_theirs",
        "commit.rewrite.test_committing::test_commit_info_says_what_was_done_in_the_order_of_delta",
    ],
    "backfill wins": [
        "commit.rewrite.test_committing::test_backfill_gives_the_removes_its_row_ids",
        "commit.rewrite.test_committing::test_row_ids_that_changed_after_they_were_copied_lose_the_bin",
    ],
    # CDCReaderSuite, DeltaSourceSuite, DeltaVariantSuite
    "no changes in the feed": [
        "compaction.test_readers::test_streams_and_change_feeds_see_no_compaction",
        "commit.rewrite.test_with_spark::test_delta_reads_the_commit_and_goes_on",
    ],
    "no new rows in a stream": [
        "compaction.test_readers::test_streams_and_change_feeds_see_no_compaction",
        "compaction.test_streams::test_a_stream_gets_each_row_once_whenever_it_begins",
        "compaction.test_streams::test_streams_and_feeds_get_what_they_get_over_deltas_own_optimize",
    ],
    "variants": ["compaction.engines.test_spark::test_variants_are_rewritten_by_spark"],
    # delta-rs: command_optimize.rs, test_optimize.py
    "conflict for concurrent remove": [
        "compaction.test_compaction::test_a_bin_whose_file_went_meanwhile_is_dropped_alone"
    ],
    "none for append": [
        "commit.rewrite.test_committing::test_winner_that_touches_no_input_is_tolerated"
    ],
    "commit interval": ["compaction.test_compaction::test_commits_are_as_large_as_asked"],
    "idempotent with several bins": [
        "compaction.planning.test_sizes::test_a_second_run_finds_nothing_where_a_partition_had_several_bins",
        "compaction.planning.test_packing::test_planning_settles_when_each_bin_becomes_one_file",
    ],
    "no merge across a large file": [
        "compaction.planning.test_sizes::test_large_files_do_not_part_small_ones_as_they_do_for_delta_rs"
    ],
    "live rows kept with vectors": [
        "compaction.test_compaction::test_a_file_with_many_deleted_rows_is_rewritten_alone"
    ],
    "tombstones keep vectors": [
        "commit.rewrite.test_committing::test_removes_tell_the_logical_file_as_the_log_had_it"
    ],
    "schema-evolved tables": [
        "compaction.test_schemas::test_columns_that_came_went_and_were_renamed"
    ],
    "nested field named like a partition column": [
        "compaction.test_schemas::test_columns_that_came_went_and_were_renamed"
    ],
    "nullable nested field by Spark": [
        "compaction.test_schemas::test_columns_that_came_went_and_were_renamed"
    ],
    "delta-rs goes on": ["compaction.test_readers::test_delta_rs_goes_on"],
    # our own scenarios
    "EXISTS_DEFAULT not applied": [
        "compaction.reading.test_data_files::test_defaults_of_columns_are_never_applied"
    ],
    "INT96 far dates": ["compaction.reading.test_data_files::test_int96_is_exact_far_from_today"],
    "NaN in statistics": [
        "compaction.columns.test_statistics::test_nan_is_the_greatest_number_and_bounds_hold_zeros_of_both_signs"
    ],
    "row-count guard": [
        "compaction.test_compaction::test_a_file_with_other_rows_than_the_log_says_is_left",
        "commit.rewrite.test_soundness::test_batch_that_is_not_sound_is_refused",
    ],
    "lost response": ["commit.rewrite.test_faults::test_lost_response_is_known_by_its_transaction"],
    "row tracking is enabled meanwhile": [
        "commit.rewrite.test_committing::test_winner_that_changes_the_table_is_a_conflict"
    ],
    "two lost races": ["commit.rewrite.test_committing::test_lost_races_number_rows_and_time_anew"],
    "all-null and void columns": [
        "compaction.test_schemas::test_columns_that_came_went_and_were_renamed"
    ],
    "lone file with a vector": [
        "compaction.test_compaction::test_a_file_with_many_deleted_rows_is_rewritten_alone"
    ],
    "all rows deleted": [
        "compaction.test_compaction::test_files_whose_rows_are_all_deleted_go_without_a_new_one"
    ],
    "raw and normalised partition strings": [
        "compaction.test_compaction::test_partition_values_are_compared_as_their_type"
    ],
    "vectors inline, absolute, relative": [
        "compaction.reading.test_deleted_rows::test_vector_of_each_place_gives_its_rows",
        "compaction.reading.test_deleted_rows::test_vector_by_a_relative_path_gives_its_rows",
    ],
    "absolute paths": [
        "compaction.test_readers::test_a_clone_is_compacted_and_its_source_is_not_touched"
    ],
    "killed between any two steps": [
        "compaction.test_killed::test_rows_stay_the_next_run_finishes_and_no_file_leaks",
        "compaction.test_clustered::test_a_clustering_that_was_killed_is_done_by_the_next_run",
    ],
    "encodings, pages of version 2, codecs, bloom filters": [
        "compaction.test_encodings::test_files_of_any_encoding_become_one_in_which_the_same_rows_are_found",
        "compaction.engines.test_spark::test_text_that_sparks_fast_reader_garbles_is_kept",
    ],
    "transactions of applications": [
        "compaction.test_transactions::test_a_job_that_runs_again_writes_nothing_twice",
        "commit.checkpoint.test_readers::test_what_has_expired_is_what_delta_leaves_out",
    ],
    "clustered by turns": [
        "compaction.test_clustered::test_delta_goes_on_where_we_clustered_and_we_where_delta_did",
        "compaction.test_clustered::test_other_columns_wait_for_full_and_none_ends_the_clustering",
    ],
}
NOT_OURS = {
    "database and table name": "names of a catalog: ours are locations",
    "leftover threads": "bins are tasks of one Spark job",
    "AutoCompactSuite": "a hook of Delta's own writer",
    "UPGRADE UNIFORM": "metadata of Iceberg is refused",
}


def test_every_scenario_has_tests_that_are_there() -> None:
    assert SCENARIOS.keys().isdisjoint(NOT_OURS.keys())
    for names in SCENARIOS.values():
        for name in names:
            module, _, test = name.partition("::")
            found = importlib.import_module(f"maint_assets_tests.{module}")
            assert callable(getattr(found, test, None)), name
