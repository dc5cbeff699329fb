"""Real tables by other writers: delta-spark and we plan the same files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets.errors import MaintError
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.vacuum.planning import planned

TABLES = Path(os.environ.get("MAINT_ASSETS_TABLES", "missing"))
NAMES = sorted(path.parent.name for path in TABLES.glob("*/_delta_log"))
EACH = [
    pytest.param(name, marks=[pytest.mark.long] if at % 3 else []) for at, name in enumerate(NAMES)
]
"""All tables: every third one in CI, the others in ``make stories``."""

LONG_AGO = 1_600_000_000

DIFFERENT: dict[str, str] = {}
"""Tables that delta-spark refuses and we plan, each with the reason: none at present."""

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


def prepare(table: Path) -> None:
    """Age all files; delete Hadoop's checksums: those of cdc_ict_table do not match its commits."""
    for path in table.glob("_delta_log/.*.crc"):
        path.unlink()
    for path in table.rglob("*"):
        if "_delta_log" not in path.parts:
            os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.mark.parametrize("name", EACH)
def test_plan_is_that_of_delta_spark(
    spark: SparkSession, copied_table: Callable[[str], Path], name: str
) -> None:
    table = copied_table(name)
    prepare(table)

    try:
        theirs = delta_spark.planned_files(spark, table, retention_hours=0)
    except (Py4JJavaError, PySparkException):
        if name not in DIFFERENT:
            with pytest.raises(MaintError):
                planned(spark, table)
        return

    assert planned(spark, table).files == theirs
