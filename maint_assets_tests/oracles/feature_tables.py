"""One table per table feature, written by delta-spark, with commits and removed files.

``FEATURE_TABLES[name](spark, path)`` makes a table; each has several commits and files that are
no longer in its newest version.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from maint_assets_tests.oracles.delta_spark import table

TableWriter = Callable[[SparkSession, Path], None]

COLUMNS = "id BIGINT, name STRING"
INSERTS = (
    "INSERT INTO {t} (id, name) SELECT id, concat('n', id) FROM range(0, 10, 1, 2)",
    "INSERT INTO {t} (id, name) SELECT id, concat('n', id) FROM range(10, 20, 1, 1)",
)
UPDATE = "UPDATE {t} SET name = 'new' WHERE id = 3"
DELETE = "DELETE FROM {t} WHERE id = 4"
OPTIMIZE = "OPTIMIZE {t}"
EVERYTHING = (*INSERTS, UPDATE, DELETE, OPTIMIZE)
CHANGES = (INSERTS[0], UPDATE)


def _table(
    statements: Sequence[str] = CHANGES,
    *,
    columns: str = COLUMNS,
    clause: str = "",
    properties: Mapping[str, str] | None = None,
) -> TableWriter:
    """A function that creates a table with these columns and properties and runs the statements."""
    set_to = ", ".join(f"'{key}' = '{value}'" for key, value in (properties or {}).items())
    stored = f"TBLPROPERTIES ({set_to})" if set_to else ""
    create = f"CREATE TABLE {{t}} ({columns}) USING delta {clause} {stored}"
    return partial(_run, [create, *statements])


def _run(statements: Sequence[str], spark: SparkSession, path: Path) -> None:
    for statement in statements:
        spark.sql(statement.format(t=table(path))).collect()


FEATURE_TABLES: dict[str, TableWriter] = {
    "plain": _table(EVERYTHING),
    "partitioned": _table(
        columns=f"{COLUMNS}, p STRING DEFAULT 'a b/é%#'",
        clause=("PARTITIONED BY (p)"),
        properties={"delta.feature.allowColumnDefaults": "supported"},
    ),
    "deletionVectors": _table(
        (*INSERTS, UPDATE, DELETE, "DELETE FROM {t} WHERE id IN (2, 5)"),
        properties={"delta.enableDeletionVectors": "true"},
    ),
    "columnMapping": _table(
        (*CHANGES, "ALTER TABLE {t} RENAME COLUMN name TO `the name`"),
        properties={"delta.columnMapping.mode": "name"},
    ),
    "changeDataFeed": _table(
        (*INSERTS, UPDATE, DELETE), properties={"delta.enableChangeDataFeed": "true"}
    ),
    "v2Checkpoint": _table(
        properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"}
    ),
    "rowTracking": _table(
        (*INSERTS, DELETE, OPTIMIZE), properties={"delta.enableRowTracking": "true"}
    ),
    "inCommitTimestamp": _table(properties={"delta.enableInCommitTimestamps": "true"}),
    "typeWidening": _table(
        (
            *INSERTS,
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "INSERT INTO {t} VALUES (9999999999, 'wide')",
            UPDATE,
            DELETE,
        ),
        columns="id INT, name STRING",
        properties={"delta.enableTypeWidening": "true"},
    ),
    "clustering": _table((*INSERTS, OPTIMIZE, UPDATE, DELETE), clause="CLUSTER BY (id)"),
    # identityColumns, checkConstraints, generatedColumns, allowColumnDefaults
    "writerFeatures": _table(
        (INSERTS[0], "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)", *CHANGES[1:]),
        columns=(
            f"{COLUMNS}, k BIGINT GENERATED ALWAYS AS IDENTITY, "
            "twice BIGINT GENERATED ALWAYS AS (id * 2), state STRING DEFAULT 'open'"
        ),
        properties={"delta.feature.allowColumnDefaults": "supported"},
    ),
    "variantType": _table(
        (
            "INSERT INTO {t} SELECT id, 'n', parse_json('[1, 2]') FROM range(0, 10, 1, 2)",
            UPDATE,
            DELETE,
        ),
        columns=f"{COLUMNS}, v VARIANT",
    ),
    "timestampNtz": _table(
        (*CHANGES, "INSERT INTO {t} VALUES (30, 'late', TIMESTAMP_NTZ'2024-02-29 12:00:00')"),
        columns=f"{COLUMNS}, at TIMESTAMP_NTZ",
    ),
}
