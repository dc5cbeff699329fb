"""The life of one table, written by delta-spark on a clock that moves only between the steps.

    story.create(partition="p").append(1, 2).wait(days=8).delete("id = 1").stray("x", age_days=9)
    story.vacuum().gone == {...}

Delta's own log and VACUUM use the same clock; files get the time at which they were made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from typing_extensions import Self

from maint_assets.cli.vacuum import VacuumReport
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import DAY_MS, HOUR_MS
from maint_assets_tests.support.chain import Chain, files

START_MS = 1_750_000_000_000
SECOND_MS = 1_000


@dataclass
class Story:
    """A table and its steps; methods act at once and return the story."""

    spark: SparkSession
    path: Path
    chain_of: Callable[..., Chain]
    now_ms: int = START_MS
    stamped: set[Path] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return delta_spark.table(self.path)

    def create(
        self, columns: str = "id BIGINT, p STRING", *, partition: str = "", **properties: str
    ) -> Self:
        """Create the table; ``properties`` are Delta's, without the prefix ``delta.``."""
        clause = f"PARTITIONED BY ({partition})" if partition else ""
        listed = ", ".join(f"'delta.{key}' = '{value}'" for key, value in properties.items())
        kept = f"TBLPROPERTIES ({listed})" if listed else ""
        return self.sql(f"CREATE TABLE {{t}} ({columns}) USING delta {clause} {kept}")

    def append(self, *ids: int, p: str = "a") -> Self:
        """Append one file with these rows."""
        values = ", ".join(f"({number}, '{p}')" for number in ids)
        return self.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")

    def append_by_delta_rs(self, *ids: int, p: str = "rs") -> Self:
        """Append by delta-rs, which always uses the machine's clock."""
        rows = pa.table({"id": pa.array(ids, pa.int64()), "p": pa.repeat(p, len(ids))})
        write_deltalake(str(self.path), rows, mode="append")
        return self._stamp()

    def delete(self, where: str = "true") -> Self:
        return self.sql(f"DELETE FROM {{t}} WHERE {where}")

    def update(self, to: str, where: str = "true") -> Self:
        return self.sql(f"UPDATE {{t}} SET {to} WHERE {where}")

    def merge(self, *ids: int, p: str = "merged") -> Self:
        """Update ``p`` in the rows with these ids; missing rows are inserted."""
        values = ", ".join(f"({number}, '{p}')" for number in ids)
        return self.sql(
            f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {values} AS s(id, p)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def restore(self, version: int) -> Self:
        return self.sql(f"RESTORE {{t}} TO VERSION AS OF {version}")

    def optimize(self) -> Self:
        return self.sql("OPTIMIZE {t}")

    def purge(self) -> Self:
        return self.sql("REORG TABLE {t} APPLY (PURGE)")

    def clone(self, target: Path) -> Story:
        """A shallow clone, with its own story."""
        self.sql(f"CREATE TABLE {delta_spark.table(target)} SHALLOW CLONE {{t}}")
        other = Story(self.spark, target, self.chain_of, self.now_ms)
        other._stamp()
        return other

    def checkpoint(self) -> Self:
        delta_spark.log_at(self.spark, self.path, self._clock()).checkpoint()
        return self._stamp()

    def sql(self, statement: str) -> Self:
        """Run a statement about the table ``{t}`` by delta-spark on the story's clock."""
        delta_spark.log_at(self.spark, self.path, self._clock())
        self.spark.sql(statement.format(t=self.name)).collect()
        return self._stamp()

    def stray(self, path: str, *, age_days: float = 0) -> Self:
        """A file that no commit names."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"stray")
        self._stamp()
        at_ns = int(self.now_ms - age_days * DAY_MS) * 1_000_000
        os.utime(file, ns=(at_ns, at_ns))
        return self

    def wait(self, *, days: float = 0, hours: float = 0) -> Self:
        """Advance the clock."""
        self.now_ms += int(days * DAY_MS + hours * HOUR_MS)
        return self

    def vacuum(self, **settings: Any) -> VacuumReport:
        """Plan and execute our vacuum, by default with the table's own retention."""
        done = self.chain(**settings).vacuum()
        self._stamp()
        return done

    def plan(self, **settings: Any) -> VacuumReport:
        """Our plan."""
        return self.chain(**settings).plan()

    def chain(self, **settings: Any) -> Chain:
        """Our chain on the story's clock."""
        wanted = {"retention": None, "allow_short_retention": None, "allow_clock_skew": True}
        return self.chain_of(self.path, now_ms=self.now_ms, **wanted | settings)

    def delta_plan(self, *, hours: float | None = None, mode: str = "FULL") -> set[str]:
        """The files that Delta's VACUUM would delete now."""
        clock = self._clock()
        return delta_spark.planned_files_at(self.spark, self.path, clock, hours=hours, mode=mode)

    def delta_vacuum(self, *, hours: float | None = None, mode: str = "FULL") -> Self:
        """Execute Delta's VACUUM."""
        delta_spark.vacuum_at(self.spark, self.path, self._clock(), hours=hours, mode=mode)
        return self._stamp()

    def rows(self, version: int | None = None) -> list[dict[str, Any]]:
        """The rows of a version, by default the newest."""
        return delta_spark.rows(self.spark, self.path, version)

    def readable(self) -> list[int]:
        """The versions that delta-spark can read."""
        return delta_spark.readable_versions(self.spark, self.path)

    def data_files(self) -> set[str]:
        """All visible files on the storage, relative to the root."""
        found = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        hidden = ("_delta_log", ".")
        return {str(path) for path in found if not any(p.startswith(hidden) for p in path.parts)}

    def expect(self, *, gone: set[str] | None = None, report: VacuumReport) -> Self:
        """Assert that the planned files of a report are gone; ``gone`` are all of them."""
        assert report.error is None
        assert not files(report) & self.data_files()
        if gone is not None:
            assert files(report) == gone
        return self

    def _clock(self) -> Any:
        return delta_spark.clock_at(self.spark, self.now_ms)

    def _stamp(self) -> Self:
        """Set the time of all new files to now, then advance the clock by a second."""
        for path in sorted({*self.path.rglob("*")} - self.stamped):
            if path.suffix == ".json" and path.parent.name == "_delta_log":
                self._date_removals(path)
            for each in (path, path.parent):
                if each.exists():
                    os.utime(each, ns=(self.now_ms * 1_000_000,) * 2)
            self.stamped.add(path)
        self.now_ms += SECOND_MS
        return self

    def _date_removals(self, commit: Path) -> None:
        """Date the removes by the story's clock: some of Delta's commands use the machine's."""
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = self.now_ms
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
