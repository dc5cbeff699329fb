"""The ledger keeps the outcomes that the deleting task records, even if it was taken for dead."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.intents import open_intents
from maint_assets.datasets.ledger import recording, settle
from maint_assets.storage.location import Location
from maint_assets.storage.write import Deletion
from maint_assets.vacuum.deletion import DELETION_SCHEMA

SCHEMA = arrow_schema(DELETION_SCHEMA)


def test_a_slow_batch_that_another_host_took_for_dead_records_its_outcomes_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "a").touch()
    ledger, table = Location.of(str(tmp_path / "ledger")), Location.of(str(tmp_path / "t"))
    rows = pa.Table.from_pylist([{"path": "a", "kind": "orphan"}], SCHEMA)

    with recording(ledger, rows, schema=SCHEMA, table=table.uri) as outcomes:
        assert settle(ledger, schema=SCHEMA, table=table, is_over=lambda _: True) == 0
        (tmp_path / "t" / "a").unlink()
        outcomes.append(Deletion("deleted", None))

    found = ds.dataset(sorted(Path(ledger.path).glob("*.parquet"))).to_table()
    assert sorted(zip(found["path"].to_pylist(), found["outcome"].to_pylist(), strict=True)) == [
        ("a", "deleted"),
        ("a", "skipped"),
    ]
    assert not list(open_intents(ledger))
