"""Random tables by delta-spark: types, values, features and properties kept in checkpoints."""

from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from maint_assets_tests.oracles.delta_spark import table as quoted

VALUES: dict[str, tuple[str, ...]] = {
    "TINYINT": ("-128Y", "127Y", "0Y"),
    "SMALLINT": ("-32768S", "7S"),
    "INT": ("-2147483648", "2147483647", "1"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "FLOAT": ("float('NaN')", "float('-Infinity')", "float(0.1)", "float(-0.0)", "float(1e38)"),
    "DOUBLE": ("double('NaN')", "double('Infinity')", "0.1D", "-0.0D", "1e308D", "5e-324D"),
    "DECIMAL(5,2)": ("-999.99BD", "0.10BD"),
    "DECIMAL(18,0)": ("999999999999999999BD", "-1BD"),
    "DECIMAL(38,18)": ("12345678901234567890.123456789012345678BD", "-0.000000000000000001BD"),
    "STRING": ("''", "'a b/é%=\"'", "repeat('ü', 60)", "'\\n\\t'", "repeat('\U0001f600', 40)"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("DATE'0001-01-01'", "DATE'1582-10-04'", "DATE'9999-12-31'", "DATE'2026-02-28'"),
    "TIMESTAMP": (
        "TIMESTAMP'0001-01-03 00:00:00Z'",
        "TIMESTAMP'1900-01-01 00:00:00.123456Z'",
        "TIMESTAMP'9999-12-30 23:59:59.999999Z'",
        "TIMESTAMP'2026-02-03 04:05:06.789Z'",
    ),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'0001-01-03 00:00:00'",
        "TIMESTAMP_NTZ'2026-02-03 04:05:06.789001'",
        "TIMESTAMP_NTZ'9999-12-30 23:59:59.999999'",
    ),
    "BINARY": ("X''", "X'00FF41'"),
}
NESTED: dict[str, tuple[str, ...]] = {
    "ARRAY<INT>": ("array(1, null)", "array()"),
    "MAP<STRING, INT>": ("map('a', 1)",),
    "STRUCT<x: DOUBLE, y: STRUCT<z: STRING, w: DATE>>": (
        "named_struct('x', double('NaN'), 'y', named_struct('z', 'q', 'w', DATE'2020-01-01'))",
        "named_struct('x', 1.5D, 'y', null)",
    ),
}
STATS = "delta.checkpoint.writeStatsAs"
NAMES = ("a", "b c", "d.e", "f", "Ä", "g-h", "i", "j")


def random_table(spark: SparkSession, path: Path, rng: Random) -> None:
    """Make a table with commits of many kinds and no checkpoint."""
    mapped = rng.random() < 0.5
    names = list(NAMES if mapped else ("a", "b", "d", "f", "Ä", "g", "i", "j"))
    kinds = {"id": "BIGINT"}
    for name in names[: rng.randint(3, 8)]:
        kinds[name] = rng.choice([*VALUES, *VALUES, *NESTED])
    layout, clause = _layout(rng, kinds)
    columns = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    stored = _properties(rng, mapped=mapped, clustered=clause.startswith("CLUSTER"))
    statements = [f"CREATE TABLE {{t}} ({columns}) USING delta {clause} TBLPROPERTIES ({stored})"]
    statements += [_insert(rng, kinds)]
    for _ in range(rng.randint(3, 6)):
        statements.append(_step(rng, kinds, layout))
    for statement in statements:
        spark.sql(statement.replace("{t}", quoted(path))).collect()
    _transaction(spark, path, rng)


def _layout(rng: Random, kinds: dict[str, str]) -> tuple[list[str], str]:
    """The partition columns, and the clause for them or for a clustering."""
    plain = [name for name, kind in kinds.items() if kind in VALUES and name != "id"]
    if plain and rng.random() < 0.6:
        some = rng.sample(plain, min(len(plain), rng.randint(1, 2)))
        if len(some) < len(kinds) - 1:
            return some, f"PARTITIONED BY ({', '.join(f'`{name}`' for name in some)})"
    return [], "CLUSTER BY (id)" if rng.random() < 0.4 else ""


def _properties(rng: Random, *, mapped: bool, clustered: bool) -> str:
    found = {"delta.checkpointInterval": "1000"}
    found |= {"delta.columnMapping.mode": rng.choice(("name", "id"))} if mapped else {}
    for name, chance in (("enableDeletionVectors", 0.6), ("enableRowTracking", 0.5)):
        found |= {f"delta.{name}": "true"} if rng.random() < chance else {}
    found |= {"delta.checkpointPolicy": "v2"} if rng.random() < 0.3 else {}
    for form in ("Json", "Struct"):
        found |= {f"{STATS}{form}": rng.choice(("true", "false"))} if rng.random() < 0.7 else {}
    if rng.random() < 0.3 and not clustered:
        found["delta.dataSkippingNumIndexedCols"] = str(rng.randint(0, 3))
    return ", ".join(f"'{key}' = '{value}'" for key, value in found.items())


def _insert(rng: Random, kinds: dict[str, str]) -> str:
    rows = []
    for number in range(rng.randint(1, 4)):
        values = [str(rng.randrange(1000) * 10 + number)]
        values += [_value(rng, kind) for name, kind in kinds.items() if name != "id"]
        rows.append(f"({', '.join(values)})")
    return f"INSERT INTO {{t}} VALUES {', '.join(rows)}"


def _value(rng: Random, kind: str) -> str:
    return "null" if rng.random() < 0.2 else rng.choice((VALUES | NESTED)[kind])


def _step(rng: Random, kinds: dict[str, str], partitions: list[str]) -> str:
    texts = [n for n, k in kinds.items() if k == "STRING" and n not in partitions]
    steps = [
        _insert(rng, kinds),
        _insert(rng, kinds),
        f"DELETE FROM {{t}} WHERE id % 10 = {rng.randrange(3)}",
        "OPTIMIZE {t}",
        f"UPDATE {{t}} SET id = id + 1 WHERE id % 3 = {rng.randrange(3)}",
        "ALTER TABLE {t} SET TBLPROPERTIES ('some' = 'ünicode')",
        *(f"UPDATE {{t}} SET `{name}` = 'z' WHERE id % 2 = 0" for name in texts[:1]),
    ]
    return rng.choice(steps)


def _transaction(spark: SparkSession, path: Path, rng: Random) -> None:
    if rng.random() < 0.5:
        rows = spark.read.format("delta").load(str(path)).limit(1)
        rows.write.format("delta").mode("append").option("txnAppId", "app").option(
            "txnVersion", "7"
        ).save(str(path))
