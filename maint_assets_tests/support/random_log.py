"""Random logs: any mixture of files and ages around the retention that delta-spark still loads.

The same seed and clock give the same log, byte for byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from maint_assets.delta.names import LogFile, LogFileKind, commit_name
from maint_assets_tests.support.builder import DAY_MS, HOUR_MS
from maint_assets_tests.support.log_builder import IN_COMMIT_TIMESTAMPS, LogBuilder

MIDNIGHT_MS = 1_799_971_200_000
RETENTIONS: tuple[tuple[str | None, int], ...] = (
    (None, 30 * DAY_MS),
    ("interval 26 days", 26 * DAY_MS),
    ("interval 1 weeks", 7 * DAY_MS),
    ("interval 36 hours", 36 * HOUR_MS),
    ("interval 0 days", 0),
)
"""The text of the property, and its milliseconds."""
_CLASSIC = (("classic", 1), ("classic", 1), ("classic", 2), ("classic", 3))
_V2 = (("v2-json", 0), ("v2-json", 1), ("v2-json", 2), ("v2-parquet", 0), ("v2-parquet", 2))


@dataclass(frozen=True, slots=True)
class _Draw:
    """The random generator, the log it builds, and whether the log's times are in order."""

    rng: Random
    log: LogBuilder
    calm: bool

    def often(self, chance: float) -> bool:
        return self.rng.random() < chance

    def near(self, version: int) -> int:
        """The time of a file that is written after the commit of its version."""
        at_ms, rng = self.log.commit_ms(version), self.rng
        if self.often(0.6):
            return at_ms
        if self.calm or self.often(0.5):
            return at_ms + rng.randrange(10_000)
        return at_ms + rng.randrange(-DAY_MS, 10 * DAY_MS)


def random_log(
    rng: Random, path: Path, *, now_ms: int | None = None, protection: bool = False
) -> LogBuilder:
    """A log of 5 to 40 commits; its ``now_ms`` is the clock for a cleanup.

    By default that is a random time of one fixed day. ``protection`` gives the table the
    feature checkpointProtection over some of its versions.
    """
    now_ms = MIDNIGHT_MS + rng.randrange(DAY_MS) if now_ms is None else now_ms
    retention, retention_ms = rng.choice(RETENTIONS)
    count, v2 = rng.randint(5, 40), rng.random() < 0.4
    features, configuration = _settings(rng, count, v2=v2, protection=protection)
    if retention:
        configuration["delta.logRetentionDuration"] = retention
    log = LogBuilder(path, now_ms=now_ms, features=features, configuration=configuration)
    draw = _Draw(rng, log, calm=rng.random() < 0.5)
    _commits(draw, count, (now_ms - retention_ms) // DAY_MS * DAY_MS)
    complete = list(_checkpoints(draw, _CLASSIC + _V2 if v2 else _CLASSIC))
    _others(draw)
    _hint(draw, complete)
    if complete:
        _holes(draw, sorted(version for version, _ in complete))
    if not draw.calm and draw.often(0.3):
        _young_start(log)
    return log


def _settings(
    rng: Random, count: int, *, v2: bool, protection: bool
) -> tuple[list[str], dict[str, str]]:
    """Features and properties."""
    features: list[str] = []
    configuration: dict[str, str] = {}
    if v2:
        features.append("v2Checkpoint")
        configuration["delta.checkpointPolicy"] = "v2"
    if rng.random() < 0.2:
        features.append("inCommitTimestamp")
        configuration |= IN_COMMIT_TIMESTAMPS
    if protection:
        features.append("checkpointProtection")
        before = str(rng.randrange(count + 5))
        configuration["delta.requireCheckpointProtectionBeforeVersion"] = before
    if rng.random() < 0.1:
        configuration["delta.enableExpiredLogCleanup"] = "false"
    return features, configuration


def _commits(draw: _Draw, count: int, cutoff_ms: int) -> None:
    """The commits, with or without checksums; those of a copied table are as old as the copy."""
    rng, log = draw.rng, draw.log
    copied, checksums = draw.often(0.1), rng.choice((0.0, 0.5, 1.0, 1.0))
    for at_ms in _times(draw, count, cutoff_ms):
        log.commit(at_ms=log.now_ms if copied else at_ms, in_commit_ms=at_ms)
        if draw.often(checksums):
            log.checksum(log.version, at_ms=draw.near(log.version))


def _times(draw: _Draw, count: int, cutoff_ms: int) -> Iterator[int]:
    """Times on both sides of the cutoff, rarely on one only; in a calm log they never decrease."""
    rng = draw.rng
    first_ms = cutoff_ms - rng.randint(0, 15) * DAY_MS
    last_ms = min(cutoff_ms + rng.randint(1, 15) * DAY_MS, draw.log.now_ms)
    grain_ms = rng.choice((1, HOUR_MS, DAY_MS))
    last = first_ms
    for drawn_ms in sorted(rng.randint(first_ms, last_ms) for _ in range(count)):
        at_ms = drawn_ms // grain_ms * grain_ms
        if not draw.calm and draw.often(0.25):
            at_ms = last + rng.choice((0, 0, 1, -1, -DAY_MS, rng.randrange(10 * DAY_MS)))
        last = min(at_ms, draw.log.now_ms)
        yield last


def _checkpoints(
    draw: _Draw, kinds: tuple[tuple[str, int], ...]
) -> Iterator[tuple[int, int | None]]:
    """Checkpoints of one or more kinds at some versions; yields the complete ones."""
    rng, log = draw.rng, draw.log
    chance, damaged = rng.choice((0.1, 0.3, 0.5)), rng.choice((0.0, 0.3))
    older: list[str] = []
    for version in range(log.version + 1):
        if older and draw.often(chance / 2):
            log.shared_checkpoint(version, rng.choice(older), at_ms=draw.near(version))
            older.append(log.written[-1])
            yield version, None
        number = rng.choice((1, 1, 1, 2, 3)) if draw.often(chance) else 0
        for kind, parts in dict.fromkeys(rng.sample(kinds, number)):
            broken = draw.often(damaged)
            numbered = kind == "classic" and parts > 1
            missing = {rng.randint(1, parts)} if broken and numbered and draw.often(0.6) else ()
            at_ms, empty = draw.near(version), broken and not missing
            log.checkpoint(version, kind, parts=parts, missing=missing, empty=empty, at_ms=at_ms)
            if kind == "v2-json" and parts and not broken:
                older.append(log.written[-1])
            if not broken:
                yield version, parts if numbered else None


def _others(draw: _Draw) -> None:
    """Log compactions, staged commits, temporary files, unreferenced sidecars."""
    rng, log = draw.rng, draw.log
    for _ in range(rng.choice((0, 0, 3))):
        start, end = sorted(rng.sample(range(log.version + 1), 2))
        log.compaction(start, end, at_ms=draw.near(end))
    for _ in range(rng.choice((0, 0, 5))):
        log.staged(rng.randrange(log.version + 2))
    if draw.often(0.2):
        version = rng.randrange(log.version + 1)
        log.write(f".{commit_name(version)}.{version}.tmp", "", draw.near(version))
        log.write(f"_commit_{version}.json.tmp", "", draw.near(version))
    for number in range(rng.choice((0, 0, 3))):
        at_ms = draw.near(rng.randrange(log.version + 1))
        log.write(f"_sidecars/{number}.parquet", "", at_ms)


def _hint(draw: _Draw, complete: list[tuple[int, int | None]]) -> None:
    """The hint: mostly right, sometimes stale, without its checkpoint, corrupt or missing."""
    dice = draw.rng.random()
    if complete and dice < 0.85:
        version, parts = max(complete, key=lambda found: found[0])
        draw.log.hint(version, parts=parts)
    elif complete and dice < 0.92:
        version, parts = draw.rng.choice(complete)
        draw.log.hint(version, parts=parts)
    elif 0.92 < dice < 0.94:
        draw.log.hint(draw.rng.randrange(draw.log.version + 1))
    elif 0.94 < dice < 0.95:
        draw.log.write("_last_checkpoint", '{"version":', draw.log.now_ms)


def _holes(draw: _Draw, complete: list[int]) -> None:
    """Delete some commits, or all files before a complete checkpoint, as a cleanup does."""
    rng, log = draw.rng, draw.log
    if draw.often(0.3):
        lost = [version for version in range(complete[-1]) if draw.often(0.1)]
        log.drop(*map(commit_name, lost))
    if draw.often(0.3):
        start = rng.choice(complete)
        log.drop(*(file.name for file in _cleaned(log) if file.version < start))


def _young_start(log: LogBuilder) -> None:
    """Make the first files as young as a compatibility checkpoint written in a cleanup."""
    found = _cleaned(log)
    first = min(file.version for file in found)
    log.touch(log.now_ms, *(file.name for file in found if file.version == first))


def _cleaned(log: LogBuilder) -> list[LogFile]:
    """The files that delta-spark's cleanup considers."""
    known = [LogFile.parse(file.name) for file in log.log.iterdir()]
    return [file for file in known if file and file.kind is not LogFileKind.COMPACTION]
