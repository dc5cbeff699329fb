"""Another process that changes a table through delta-spark, and knows which rows it must have.

    python -m maint_assets_tests.races.writer TABLE FOLDER SEED

It runs random operations until its standard input ends. A line there names the next operation,
and it answers with a line once that is done; between ``hold`` and ``go on`` it runs only those.
At the end it writes what it did: FOLDER/report.json.
"""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark, setup

PARTITIONS = ("0", "1", "2", "3", "4", "5", "6", "7")

WEIGHTS = {
    "insert": 10, "update": 3, "delete": 3, "merge": 2, "optimize": 2, "zorder": 1, "restore": 1,
    "harmless": 1, "vectors": 1,
}  # fmt: skip
"""The operations it chooses itself; all others are only run on request."""

HOLDING = {"hold": True, "go on": False}
WITH_VECTORS = "spark.databricks.delta.{}.deletionVectors.persistent"
BOOLEANS = ("true", "false")
CONFLICTS = ("[DELTA_CONCURRENT_", "[DELTA_METADATA_CHANGED", "[DELTA_PROTOCOL_CHANGED")
NEW_SCHEMA = "DELTA_SCHEMA_CHANGED"
RESTORED_S = 10
"""It restores no older version: a vacuum does not delete files this young."""

Model = dict[int, tuple[int, str]]


@dataclass
class Report:
    """What the writer did: ``rows`` must be in the table, ``streamed`` are all ids of its stream.

    ``row_ids`` are those at the moment when row tracking was first enabled.
    """

    operations: dict[str, int] = field(default_factory=Counter[str])
    conflicts: dict[str, int] = field(default_factory=Counter[str])
    rows: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    appended: list[int] = field(default_factory=list[int])
    streamed: list[int] = field(default_factory=list[int])
    stream_restarts: int = 0
    row_ids: dict[str, int] = field(default_factory=dict[str, int])
    failure: str | None = None


class Writer:
    """One table and its writer: each method is one operation, after which the model is updated."""

    def __init__(self, spark: SparkSession, table: Path, folder: Path, *, seed: int) -> None:
        self.report = Report()
        self._spark, self._table, self._folder = spark, table, folder
        self._random = random.Random(seed)
        self._rows: Model = {}
        self._past: deque[tuple[float, int, Model]] = deque(maxlen=8)
        self._last, self._columns, self._indexed = 0, 0, 32
        self._stream = self._started(processingTime="5 seconds")

    def act(self, kind: str | None) -> None:
        """Run one operation, by default a random one."""
        if kind is None:
            kind = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not self._rows:
            kind = "insert"
        operation: Callable[[], None] = getattr(self, kind.replace(" ", "_"))
        for command in ("delete", "update", "merge"):
            self._spark.conf.set(WITH_VECTORS.format(command), self._random.choice(BOOLEANS))
        operation()
        self.report.operations[kind] += 1
        self._past.append((time.monotonic(), self._version(), dict(self._rows)))
        self._go_on_streaming()

    def insert(self) -> None:
        self._insert(self._new_rows(self._random.randint(4, 16)))

    def update(self) -> None:
        third, p = self._random.randrange(3), self._random.choice(PARTITIONS)
        self._sql(f"UPDATE {{t}} SET value = value + 1 WHERE id % 3 = {third} AND p <= '{p}'")
        for key, (value, where) in self._rows.items():
            if key % 3 == third and where <= p:
                self._rows[key] = (value + 1, where)

    def update_all(self) -> None:
        self._sql("UPDATE {t} SET value = value + 1")
        self._rows = {key: (value + 1, p) for key, (value, p) in self._rows.items()}

    def delete(self) -> None:
        gone = self._some(self._random.randint(1, 6))
        self._sql(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, gone))})")
        for key in gone:
            del self._rows[key]

    def delete_by_vector(self) -> None:
        self._spark.conf.set(WITH_VECTORS.format("delete"), "true")
        self.delete()

    def merge(self) -> None:
        """Update some rows and insert some: the stream skips these commits."""
        new = self._new_rows(self._random.randint(0, 3))
        merged = {key: (self._rows[key][0] + 5, self._rows[key][1]) for key in self._some(3)} | new
        self._sql(
            f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {_values(merged)} AS s(id, value, p)) "
            "s ON t.id = s.id WHEN MATCHED THEN UPDATE SET value = s.value "
            "WHEN NOT MATCHED THEN INSERT (id, value, p) VALUES (s.id, s.value, s.p)"
        )
        self._rows |= merged

    def optimize(self) -> None:
        self._sql("OPTIMIZE {t}")

    def zorder(self) -> None:
        self._sql(f"OPTIMIZE {{t}} WHERE p = '{self._random.choice(PARTITIONS)}' ZORDER BY (value)")

    def restore(self) -> None:
        """Restore an earlier version, after inserting a row so that something is removed."""
        recent = [each for each in self._past if each[0] > time.monotonic() - RESTORED_S]
        self._insert(self._new_rows(1))
        if recent:
            _, version, rows = self._random.choice(recent)
            self._sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
            self._rows = dict(rows)

    def harmless(self) -> None:
        self._sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('mine' = '{self._random.random()}')")
        self._past.clear()

    def vectors(self) -> None:
        """Disable deletion vectors, which ends our rounds, and enable them again."""
        for value in ("false", "true"):
            new = f"'delta.enableDeletionVectors' = '{value}'"
            self._sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({new})")
        self._past.clear()

    def closing(self) -> None:
        self._indexed += 1
        setting = f"'delta.dataSkippingNumIndexedCols' = '{self._indexed}'"
        self._sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({setting})")
        self._past.clear()

    def add_column(self) -> None:
        self._columns += 1
        self._sql(f"ALTER TABLE {{t}} ADD COLUMNS (more{self._columns} STRING)")
        self._past.clear()

    def track(self) -> None:
        self._sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
        self._past.clear()
        if not self.report.row_ids:
            found = self._sql("SELECT id, _metadata.row_id AS row_id FROM {t}")
            self.report.row_ids = {str(row.id): row.row_id for row in found}

    def end(self) -> None:
        """Let the stream read the rest."""
        self._stream.stop()
        while True:
            stream = self._started(availableNow=True)
            try:
                stream.awaitTermination()
            except PySparkException as error:
                self._refuse_other(error)
            else:
                break
        got = self._spark.read.parquet(str(self._folder / "streamed")).collect()
        self.report.streamed = sorted(row.id for row in got)
        self.report.rows = sorted((key, *rest) for key, rest in self._rows.items())

    def _insert(self, rows: Model) -> None:
        self._sql(
            "INSERT INTO {t} (id, value, p) SELECT /*+ COALESCE(1) */ * "
            f"FROM VALUES {_values(rows)} AS s(id, value, p)"
        )
        self.report.appended += rows
        self._rows |= rows

    def _new_rows(self, count: int) -> Model:
        first = self._last + 1
        self._last += count
        return {key: (0, _partition(key)) for key in range(first, self._last + 1)}

    def _some(self, count: int) -> list[int]:
        return self._random.sample(sorted(self._rows), min(count, len(self._rows)))

    def _sql(self, statement: str) -> list[Any]:
        """The result of a statement; it is retried if it lost a conflict against our commit."""
        while True:
            try:
                text = statement.format(t=delta_spark.table(self._table))
                return self._spark.sql(text).collect()
            except (PySparkException, Py4JJavaError) as error:
                if not any(name in str(error) for name in CONFLICTS):
                    raise
                self.report.conflicts[statement.split(maxsplit=1)[0]] += 1

    def _version(self) -> int:
        """A version with the rows of the model: other writers' commits change no rows."""
        names = (path.name for path in (self._table / "_delta_log").glob("*.json"))
        return max(int(name[:20]) for name in names if name[:20].isdigit())

    def _started(self, **trigger: Any) -> Any:
        source = self._spark.readStream.format("delta").option("skipChangeCommits", "true")
        rows = source.option("startingVersion", "0").load(str(self._table)).select("id")
        sink = rows.writeStream.format("parquet").trigger(**trigger)
        sink = sink.option("checkpointLocation", str(self._folder / "state"))
        return sink.start(str(self._folder / "streamed"))

    def _go_on_streaming(self) -> None:
        if self._stream.isActive:
            return
        self._refuse_other(self._stream.exception())
        self._stream = self._started(processingTime="5 seconds")

    def _refuse_other(self, error: Exception | None) -> None:
        """Accept only the end of a stream at a new column, after which it is restarted."""
        if NEW_SCHEMA not in str(error):
            raise AssertionError(f"the stream ended: {error}")
        self.report.stream_restarts += 1


def _partition(key: int) -> str:
    return PARTITIONS[key * 7 % 11 % len(PARTITIONS)]


def _values(rows: Model) -> str:
    return ", ".join(f"({key}L, {value}L, '{p}')" for key, (value, p) in rows.items())


def _session() -> SparkSession:
    builder = SparkSession.builder.appName("races")  # noqa: TID251 - a process of its own
    for key, value in {**setup.spark_conf(), "spark.driver.memory": "1g"}.items():
        builder = builder.config(key, value)
    session = builder.config("spark.driver.extraJavaOptions", setup.jvm_options()).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _asked(lines: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line.strip())
    lines.put(None)


def _run(writer: Writer, answers: IO[str]) -> None:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_asked, args=[lines], daemon=True).start()
    held = False
    while True:
        try:
            asked = lines.get(block=held)
        except queue.Empty:
            writer.act(None)
            continue
        if asked is None:
            return
        if asked in HOLDING:
            held = HOLDING[asked]
        else:
            writer.act(asked)
        print(asked, file=answers, flush=True)


def main() -> None:
    """Write until told to end, and report."""
    table, folder, seed = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of Spark
    writer = Writer(_session(), Path(table), Path(folder), seed=int(seed))
    try:
        _run(writer, answers)
        writer.end()
    except BaseException:  # noqa: BLE001 - whatever it was, the test shows it
        writer.report.failure = traceback.format_exc()
    Path(folder, "report.json").write_bytes(msgspec.json.encode(writer.report))


if __name__ == "__main__":
    main()
