"""Real logs by other writers: every version that is kept has the same files afterwards."""

import shutil
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from maint_assets.delta.names import commit_name
from maint_assets.errors import LogGapError
from maint_assets.log_cleanup.checkpoints.soundness import soundness_of_each
from maint_assets.log_cleanup.expired_logs import expired_logs
from maint_assets.log_cleanup.log_directory import log_directory
from maint_assets.log_cleanup.plan import DAY_MS
from maint_assets.storage.location import Location
from maint_assets_tests.log_cleanup.logs import terms_of

WITHOUT_ITS_COMMIT = "table-with-domain-metadata"
"""It has a checkpoint but no commit at or after it: delta-spark refuses it as well."""


@pytest.mark.slow
def test_kept_versions_have_the_files_that_they_had(shared_tables: Path, tmp_path: Path) -> None:
    cleaned = 0
    for table in sorted(path.parent for path in shared_tables.glob("*/_delta_log")):
        copy = shutil.copytree(table, tmp_path / table.name)
        before = _versions(copy)
        try:
            terms = terms_of(copy, days=1, now_ms=_in_a_year_ms(), force=True)
        except LogGapError:
            assert table.name == WITHOUT_ITS_COMMIT
            continue

        rows, found = expired_logs(Location.of(str(copy)), terms)
        for path in rows["path"].to_pylist():
            (copy / path).unlink()

        after = _versions(copy)
        first = found.anchor_version or 0
        kept = {version: files for version, files in before.items() if version >= first}
        assert {v: files for v, files in after.items() if v >= first} == kept, table.name
        cleaned += bool(rows.num_rows)
    assert cleaned


def test_no_checkpoint_by_other_writers_is_taken_for_a_wrong_one(shared_tables: Path) -> None:
    compared = 0
    for table in sorted(path.parent for path in shared_tables.glob("*/_delta_log")):
        log = log_directory(Location.of(str(table)))
        for checkpoint in log.checkpoints:
            found = soundness_of_each(log, [checkpoint])[checkpoint]
            assert found.fault is None, table.name
            compared += found.note is None
    assert compared


def _versions(table: Path) -> dict[int, list[str]]:
    """The files of each version that delta-rs can read."""
    found: dict[int, list[str]] = {}
    for file in sorted((table / "_delta_log").glob("[0-9]*.json")):
        if len(file.name) == len(commit_name(0)):
            version = int(file.stem)
            try:
                found[version] = sorted(DeltaTable(table, version=version).file_uris())
            except Exception:  # noqa: BLE001 - delta-rs has many, and reads less than we do
                continue
    return found


def _in_a_year_ms() -> int:
    return time.time_ns() // 1_000_000 + 400 * DAY_MS
