"""Real tables by other writers: our plan and that of delta-spark name the same files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets.errors import MaintError
from maint_assets_tests.chain import files
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.vacuum.conftest import ChainOf

TABLES = Path(os.environ.get("MAINT_ASSETS_TABLES", "missing"))
NAMES = sorted(path.parent.name for path in TABLES.glob("*/_delta_log"))
LONG_AGO = 1_600_000_000

DIFFERENT: dict[str, str] = {}
"""Tables that delta-spark refuses and we plan, and why that is right."""

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


def age(table: Path) -> None:
    for path in table.rglob("*"):
        if "_delta_log" not in path.parts:
            os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.mark.parametrize("name", NAMES)
def test_plan_is_that_of_delta_spark(
    spark: SparkSession, copied_table: Callable[[str], Path], chain_of: ChainOf, name: str
) -> None:
    table = copied_table(name)
    age(table)
    chain = chain_of(table)

    try:
        theirs = delta_spark.planned_files(spark, table, 0)
    except (Py4JJavaError, PySparkException):
        if name not in DIFFERENT:
            with pytest.raises(MaintError):
                chain.plan()
        return

    assert files(chain.plan()) == theirs
