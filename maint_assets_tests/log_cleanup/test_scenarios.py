"""The tests that cover each scenario of the upstream suites and each measured weakness."""

import importlib

SCENARIOS: dict[str, list[str]] = {
    # DeltaRetentionSuite
    "startTxnWithManualLogCleanup": [
        "log_cleanup.test_expired_logs::test_nothing_goes_where_the_property_forbids_it_unless_forced"
    ],
    "delete expired logs": [
        "log_cleanup.test_suites::test_expired_logs_stay_until_there_is_a_checkpoint"
    ],
    "log files already deleted shouldn't fail the job": [
        "log_cleanup.test_expired_logs::test_holes_below_the_anchor_do_not_matter",
        "log_cleanup.test_deletion::test_files_that_changed_or_vanished_meanwhile_are_reported",
    ],
    "RemoveFiles persist as tombstones, go when retention passed, retention lesser than default": [
        "commit.checkpoint.test_readers::test_what_has_expired_is_what_delta_leaves_out",
        "commit.checkpoint.test_writer::test_tombstone_exactly_at_the_cutoff_is_left_out",
    ],
    "checkpoint and checksum for version 0 should be cleaned": [
        "log_cleanup.test_suites::test_checkpoint_and_checksum_of_version_0_go"
    ],
    "expire transaction identifiers": [
        "commit.checkpoint.test_writer::"
        "test_expired_tombstones_removed_domains_and_old_applications_are_left_out"
    ],
    "sidecar file cleanup": [
        "log_cleanup.test_suites::test_sidecars_go_day_by_day_with_their_checkpoints",
        "log_cleanup.checkpoints.test_sidecars::test_a_shared_sidecar_stays",
    ],
    "cleanup does not delete the checkpoint required by non-expired versions": [
        "log_cleanup.test_suites::test_the_checkpoint_that_versions_since_the_cutoff_need_stays"
    ],
    "incomplete multi-part checkpoint": [
        "log_cleanup.test_suites::test_incomplete_parts_let_no_commit_go",
    ],
    "respects requireCheckpointProtectionBeforeVersion": [
        "log_cleanup.test_suites::test_checkpoint_protection_by_what_is_known",
        "log_cleanup.test_modes::test_random_logs_lose_the_same_by_mode_spark_and_by_delta_spark",
    ],
    "allowed if a checkpoint exists at the boundary": [
        "log_cleanup.test_protection::test_delta_takes_a_checkpoint_at_the_boundary_for_enough"
    ],
    "protocol validation positive, negative": [
        "log_cleanup.test_protection::test_an_unknown_protocol_after_the_anchor_is_no_matter",
        "log_cleanup.test_protection::test_an_unknown_protocol_keeps_all_versions_before_the_protected_one",
    ],
    "incomplete CRCs": [
        "log_cleanup.test_protection::test_without_checksums_protocols_are_looked_up_in_commits"
    ],
    "unbackfilled expired commits are always retained": [
        "log_cleanup.test_suites::test_commits_that_are_not_published_yet_stay"
    ],
    # Kernel's MetadataCleanupSuite
    "kernel: commits only, checkpoints of all kinds": [
        "log_cleanup.test_suites::test_kernel_minutes"
    ],
    "kernel: log starting with a multi-part checkpoint": [
        "log_cleanup.test_suites::test_a_log_that_begins_with_parts_loses_them_all_together"
    ],
    "kernel: incomplete checkpoint": [
        "log_cleanup.test_suites::test_an_incomplete_checkpoint_is_no_anchor_and_goes_with_the_next_one"
    ],
    "kernel: negative retention": [
        "log_cleanup.test_deletion::test_a_retention_that_is_too_short_is_refused"
    ],
    # Metadata cleanup
    "the measured matrix": [
        "log_cleanup.test_modes::test_what_goes_by_protocol_and_what_by_delta_spark",
        "oracles.test_log_cleanup::test_spark_deletes_what_was_measured",
        "oracles.test_log_cleanup::test_delta_rs_deletes_what_was_measured",
    ],
    "delta-rs takes a broken checkpoint as anchor": [
        "log_cleanup.test_modes::test_ours_keeps_ten_versions_that_delta_rs_loses"
    ],
    "readable checkpoints with wrong content": [
        "log_cleanup.test_modes::test_ours_keeps_what_repairs_a_checkpoint_of_another_version",
        "log_cleanup.checkpoints.test_content::test_a_checkpoint_that_commits_contradict_is_no_anchor",
        "log_cleanup.checkpoints.test_content::test_checkpoints_by_delta_rs_are_what_the_commits_make",
        "commit.checkpoint.test_random_tables::"
        "test_every_action_is_that_of_deltas_own_and_both_are_what_the_commits_make",
    ],
    "times in commits from the middle on": [
        "log_cleanup.test_run_time::"
        "test_times_since_the_cutoff_have_their_version_where_commits_tell_theirs_from_the_middle_on"
    ],
    "1 boundary": [
        "log_cleanup.test_modes::test_ours_keeps_versions_since_the_cutoff_that_delta_spark_loses"
    ],
    "2, 3 late times, with and without checksums": [
        "log_cleanup.test_expired_logs::test_late_file_times_keep_versions_longer",
        "log_cleanup.test_modes::test_a_late_commit_stays_that_delta_spark_lets_go",
    ],
    "4 parts leak": [
        "log_cleanup.test_expired_logs::test_parts_go_together_and_incomplete_ones_with_them"
    ],
    "5 compactions and temporary files": [
        "log_cleanup.test_expired_logs::test_compactions_and_staged_commits_go_up_to_the_anchor",
        "log_cleanup.test_expired_logs::test_old_temporary_files_go_young_and_foreign_ones_stay",
    ],
    "6 foreign file in _staged_commits": [
        "log_cleanup.test_expired_logs::test_compactions_and_staged_commits_go_up_to_the_anchor"
    ],
    "7 two checkpoints per version": [
        "log_cleanup.test_suites::test_of_two_checkpoints_of_the_anchors_version_both_stay"
    ],
    "8 copied table, times in commits": [
        "log_cleanup.test_suites::test_a_copied_table_keeps_all_as_nobody_knows_how_old_it_is",
        "log_cleanup.test_expired_logs::test_times_in_commits_count_not_those_of_files",
    ],
    "9 sidecars that nobody names": [
        "log_cleanup.checkpoints.test_sidecars::test_an_old_sidecar_that_nobody_names_goes_a_young_one_stays"
    ],
    "11 plan, ledger, hint": [
        "log_cleanup.test_deletion::test_exactly_the_plan_goes_and_all_that_is_kept_reads_as_before",
        "log_cleanup.test_suites::test_the_hint_does_not_matter",
    ],
    "12 zero-byte, truncated anchor; anchor with a missing sidecar": [
        "log_cleanup.test_expired_logs::test_an_anchor_that_is_not_sound_is_passed_over_for_an_older_one",
        "log_cleanup.checkpoints.test_sidecars::test_an_anchor_without_one_of_its_sidecars_is_passed_over",
    ],
    "13 commits before their checkpoint": [
        "log_cleanup.test_expired_logs::test_the_order_of_deletion_leaves_a_log_at_each_step"
    ],
    "14 VACUUM LITE": [
        "log_cleanup.test_expired_logs::test_a_vacuum_lite_that_lags_behind_is_reported"
    ],
    "15 low-commit tables": [
        "log_cleanup.test_deletion::test_an_anchor_is_written_first_where_it_is_asked_for"
    ],
    "16 catalog-managed": ["log_cleanup.test_deletion::test_a_table_of_a_catalog_is_left_to_it"],
    "crash after each deletion class, rerun": [
        "log_cleanup.test_killed::test_every_kept_version_is_readable_when_all_is_killed_after_a_class"
    ],
    # CheckpointsSuite
    "checkpoint schema threshold, last checkpoint V2 thresholds": [
        "commit.checkpoint.test_readers::test_hint_is_deltas_own_and_delta_takes_it"
    ],
    "empty checkpoints": ["commit.checkpoint.test_readers::test_v2_without_files_is_readable"],
    "V2 write, tags, equivalence": [
        "commit.checkpoint.test_readers::test_readers_find_in_ours_what_they_find_in_deltas_own",
        "commit.checkpoint.test_writer::test_same_columns_as_deltas_own_checkpoint",
    ],
    "multipart v2, default part size": [
        "commit.checkpoint.test_writer::test_log_with_many_sidecars_has_every_action_once"
    ],
    "checkpoint with DVs, without cdc": [
        "commit.checkpoint.test_writer::test_delta_reads_from_a_checkpoint_all_that_the_commits_hold"
    ],
    "createCheckpointAtVersion": [
        "commit.checkpoint.test_readers::test_old_version_is_read_from_its_checkpoint_alone"
    ],
    "FindLastCompleteCheckpoint, CheckpointInstance": [
        "snapshot.test_segments::"
        "test_newest_complete_checkpoint_is_taken_and_incomplete_ones_are_not",
        "snapshot.test_segments::test_hint_is_never_the_authority",
    ],
}

NOT_OURS: dict[str, str] = {
    "compat file created when checkpoints are deleted": "a plan deletes; a client too old for V2 "
    "checkpoints meets the protocol in the next commit or not at all, and cannot read either way",
    "DeltaLogMinorCompactionSuite": "compactions are never read: only plain commits",
    "multipart checkpoints, part size": "deprecated, forbidden with V2: never written",
    "isGCSPath": "object stores are not maintained yet",
    "preserve variant stats": "tables with variants are rewritten by Spark; checkpoints keep texts",
}


def test_every_scenario_has_tests_that_are_there() -> None:
    assert SCENARIOS.keys().isdisjoint(NOT_OURS.keys())
    for names in SCENARIOS.values():
        for name in names:
            module, _, test = name.partition("::")
            found = importlib.import_module(f"maint_assets_tests.{module}")
            assert callable(getattr(found, test, None)), name
