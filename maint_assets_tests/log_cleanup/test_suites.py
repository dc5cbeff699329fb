"""The scenarios of DeltaRetentionSuite and of Kernel's MetadataCleanupSuite."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from maint_assets.log_cleanup.expired_logs import expired_logs
from maint_assets.log_cleanup.plan import Terms
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import DAY_MS
from maint_assets_tests.support.log_builder import LogBuilder

MINUTE_MS = 60_000
NOON_MS = 1_800_014_400_000
KINDS: dict[str, tuple[str, int]] = {
    "classic": ("classic", 1),
    "parts": ("classic", 3),
    "v2 json": ("v2-json", 2),
    "v2 parquet": ("v2-parquet", 2),
}

Gone = dict[str, list[int]]


def log_of(path: Path, ages_days: list[float], **settings: Any) -> LogBuilder:
    """A log with one commit of each age."""
    log = LogBuilder(path, now_ms=NOON_MS, features=["v2Checkpoint"], **settings)
    return log.commits(ages_days, checksums=True)


def clean(log: LogBuilder, *, days: float = 30, **asked: Any) -> Gone:
    """Delete what is planned, and return the versions of the deleted files by kind."""
    terms = Terms(
        planned_ms=asked.pop("now_ms", NOON_MS),
        retention_ms=int(days * DAY_MS),
        table_retention_ms=0,
        has_sidecars=True,
        **asked,
    )
    rows, _ = expired_logs(Location.of(str(log.path)), terms)
    gone: Gone = {}
    for row in rows.to_pylist():
        (log.path / row["path"]).unlink()
        name = row["path"].rpartition("/")[2]
        version = log.sidecars[name] if row["kind"] == "sidecar" else row["version"]
        gone.setdefault(row["kind"], []).append(version)
    return {kind: sorted(versions) for kind, versions in gone.items()}


def readable(log: LogBuilder) -> list[int]:
    """The versions that delta-rs reads with all their files."""
    found: list[int] = []
    for version in range(log.version + 1):
        try:
            files = DeltaTable(log.path, version=version).file_uris()
        except Exception:  # noqa: BLE001 - delta-rs has many
            continue
        found += [version] if len(files) == version else []
    return found


def test_expired_logs_stay_until_there_is_a_checkpoint(tmp_path: Path) -> None:
    log = log_of(tmp_path, [36, 35, 34, 33, 32])

    assert clean(log) == {}

    log.checkpoint(4).hint()
    assert clean(log) == {"commit": [0, 1, 2, 3], "checksum": [0, 1, 2, 3]}
    assert {file.name[:20] for file in log.log.glob("0*")} == {f"{4:020d}"}


def test_checkpoint_and_checksum_of_version_0_go(tmp_path: Path) -> None:
    log = log_of(tmp_path, [36, 35, 34, 33, 32]).checkpoint(0).checkpoint(3).hint()

    assert clean(log) == {"commit": [0, 1, 2], "checksum": [0, 1, 2], "checkpoint": [0]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_checkpoint_that_versions_since_the_cutoff_need_stays(
    tmp_path: Path, kind: str
) -> None:
    name, parts = KINDS[kind]
    log = log_of(tmp_path, [*[60.0] * 16, *[20.0] * 10])
    log.checkpoint(10, name, parts=parts).checkpoint(20, name, parts=parts).hint()

    gone = clean(log)

    assert gone == {"commit": [*range(10)], "checksum": [*range(10)]}
    assert readable(log) == [*range(10, 26)]


def test_incomplete_parts_let_no_commit_go(tmp_path: Path) -> None:
    log = log_of(tmp_path, [60.0] * 12).checkpoint(10, parts=3, missing={2})

    assert clean(log) == {}


@pytest.mark.parametrize("name", ["v2-json", "v2-parquet"])
def test_sidecars_go_day_by_day_with_their_checkpoints(tmp_path: Path, name: str) -> None:
    log = LogBuilder(tmp_path, now_ms=NOON_MS, features=["v2Checkpoint"])
    left: dict[int, list[int]] = {}
    for day in range(14):
        log.commit(at_ms=NOON_MS + day * DAY_MS).checkpoint(day, name, parts=1).hint()
        clean(log, days=6, now_ms=NOON_MS + day * DAY_MS + 60_000)
        there = {file.name for file in (log.log / "_sidecars").iterdir()}
        left[day] = sorted(log.sidecars[sidecar] for sidecar in there)

    # The table as of midnight six days ago is the version committed on the day before.
    assert left[6] == [*range(7)]
    assert left[10] == [*range(3, 11)]
    assert left[13] == [*range(6, 14)]
    assert readable(log) == [*range(6, 14)]


@pytest.mark.parametrize(
    ("before", "known", "is_gone"),
    [(2, False, True), (6, False, True), (7, False, False), (9, False, False),
     (20, False, False), (7, True, True), (20, True, True), (0, False, True)],
)  # fmt: skip
def test_checkpoint_protection_by_what_is_known(
    tmp_path: Path, before: int, *, known: bool, is_gone: bool
) -> None:
    log = log_of(tmp_path, [*[40.0] * 8, *[10.0] * 8])
    log.checkpoint(6).checkpoint(8).hint()
    if not known:
        _forget_protocol(log, 3)

    gone = clean(log, protection_before=before)

    expected: Gone = {"commit": [*range(6)], "checksum": [*range(6)]}
    assert gone == (expected if is_gone else {})


def _forget_protocol(log: LogBuilder, version: int) -> None:
    """Put an unknown protocol into one version; the next one changes it back."""
    future = {"minReaderVersion": 9, "minWriterVersion": 9}
    for number, protocol in ((version, future), (version + 1, log.table.protocol)):
        file = log.log / f"{number:020d}.json"
        line = json.dumps({"protocol": protocol}) + "\n"
        log.write(file.name, file.read_text() + line, log.commit_ms(number))


def test_commits_that_are_not_published_yet_stay(tmp_path: Path) -> None:
    log = log_of(tmp_path, [60.0] * 7).checkpoint(5).hint()
    log.staged(6).staged(5).staged(4)

    assert clean(log)["staged_commit"] == [4, 5]


Written = Callable[[LogBuilder, int], object]

HYBRID: dict[int, tuple[str, int]] = {
    3: ("classic", 1), 6: ("classic", 3), 9: ("v2-json", 2), 12: ("v2-parquet", 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, "hybrid"])
@pytest.mark.parametrize(
    ("kept", "anchor", "older"),
    [(80, 3, []), (60, 6, [3]), (40, 9, [3, 6]), (0, 12, [3, 6, 9]), (200, 0, [])],
)
def test_kernel_minutes(
    tmp_path: Path, kind: str, kept: int, anchor: int, older: list[int]
) -> None:
    """Version v was committed in minute 10 * v; now is minute 130."""
    log = LogBuilder(tmp_path, now_ms=NOON_MS, features=["v2Checkpoint"])
    start_ms = NOON_MS - 130 * MINUTE_MS
    for version in range(13):
        log.commit(at_ms=start_ms + version * 10 * MINUTE_MS)
        if version and version % 3 == 0:
            name, parts = HYBRID[version] if kind == "hybrid" else KINDS[kind]
            log.checkpoint(version, name, parts=parts)

    gone = clean(log, days=kept / 1440, granularity="minute")

    checkpoints = {v for name, found in gone.items() if name.find("check") >= 0 for v in found}
    assert gone.get("commit", []) == [*range(anchor)]
    assert sorted(checkpoints) == older
    assert readable(log) == [*range(anchor, 13)]


def test_a_log_that_begins_with_parts_loses_them_all_together(tmp_path: Path) -> None:
    log = log_of(tmp_path, [60.0] * 30).checkpoint(20, parts=3).checkpoint(25, parts=4).hint()
    log.drop(*(f"{v:020d}.{end}" for v in range(20) for end in ("json", "crc")))

    assert clean(log)["checkpoint_part"] == [20, 20, 20]


def test_an_incomplete_checkpoint_is_no_anchor_and_goes_with_the_next_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, [60.0] * 9).checkpoint(3, parts=3, missing={1}).checkpoint(6).hint()

    assert clean(log)["checkpoint_part"] == [3, 3]
    assert readable(log) == [6, 7, 8]


@pytest.mark.parametrize("hint", ["", "no JSON", '{"version":99,"size":1}', None])
def test_the_hint_does_not_matter(tmp_path: Path, hint: str | None) -> None:
    log = log_of(tmp_path, [60.0] * 12).checkpoint(5).checkpoint(10)
    if hint is not None:
        log.write("_last_checkpoint", hint, NOON_MS)

    assert clean(log)["commit"] == [*range(10)]


def test_a_copied_table_keeps_all_as_nobody_knows_how_old_it_is(tmp_path: Path) -> None:
    log = log_of(tmp_path, [0.5] * 12).checkpoint(5).checkpoint(10).hint()

    assert clean(log) == {}


def test_of_two_checkpoints_of_the_anchors_version_both_stay(tmp_path: Path) -> None:
    log = log_of(tmp_path, [60.0] * 12).checkpoint(5).checkpoint(10)
    log.checkpoint(10, "v2-json", parts=1).hint()

    assert clean(log) == {"commit": [*range(10)], "checksum": [*range(10)], "checkpoint": [5]}
