"""Real tables by other writers: compacted where the features allow it, with the same rows after."""

import os
import shutil
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets.compaction.columns.physical import has_variants
from maint_assets.delta.features import feature_names
from maint_assets.delta.schema import TableSchema
from maint_assets.delta.stats import indexed_columns, is_skipping_eligible
from maint_assets.errors import MaintError
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.long]

TABLES = sorted(
    path.parent.name
    for path in Path(os.environ.get("MAINT_ASSETS_TABLES", "nowhere")).glob("*/_delta_log")
)


@pytest.mark.parametrize("order", [False, True], ids=["as they are", "Z-ordered"])
@pytest.mark.parametrize("name", TABLES)
def test_rows_are_the_same_after_a_compaction(
    name: str,
    order: bool,
    spark: SparkSession,
    shared_tables: Path,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    path = shutil.copytree(shared_tables / name, tmp_path / name)
    columns = some_columns(path) if order else []
    if order and not columns:
        pytest.skip("no column has an order, or it is clustered")
    try:
        rows = [repr(row) for row in delta_spark.rows(spark, path)]
    except (PySparkException, Py4JJavaError) as error:
        pytest.skip(f"delta-spark cannot read it: {str(error)[:80]}")
    chain = compacting(path, verify_rows="full", zorder_by=columns)

    try:
        report = chain.compact()
    except MaintError as error:
        assert error.exit_code == 3, error
        assert any(word in str(error) for word in ("feature", "does not allow")), error
        return

    assert report.error is None and report.done is not None
    by_arrow = report.done.bins_by_engine.get("arrow", 0)
    assert (report.done.not_committed, report.done.verified_bins) == ({}, by_arrow)
    assert [repr(row) for row in delta_spark.rows(spark, path)] == rows
    if order and report.done.bins_by_engine.get("spark"):
        chain.compact()  # this run orders what Spark rewrote
        assert [repr(row) for row in delta_spark.rows(spark, path)] == rows
    assert chain.compact().planned.plan.bins == 0


def some_columns(path: Path) -> list[str]:
    """The first two columns by which a table may be Z-ordered."""
    try:
        head = table_head(Location.of(str(path)))
        mapped = head.properties.column_mapping_mode != "none"
        schema = TableSchema.of(head.metadata, mapped=mapped, table=head.table)
        if "clustering" in feature_names(head.protocol) or has_variants(schema.data):
            return []
        indexed = indexed_columns(schema, head.properties)
    except MaintError:
        return []
    fields = [field for field in schema.data.fields if is_skipping_eligible(field.type)]
    found = [f"`{field.name}`" for field in fields if (field.physical_name,) in indexed]
    return found[:2]
