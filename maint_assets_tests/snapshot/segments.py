"""The log of a story that can end with checkpoints of all kinds."""

from pathlib import Path

from maint_assets_tests.support.builder import TableBuilder

NOW_MS = 1_767_225_600_000


V2 = {"delta.checkpointPolicy": "v2"}


def story(path: Path) -> TableBuilder:
    table = (
        TableBuilder(path, now_ms=NOW_MS)
        .at(days_ago=9)
        .create(
            features=["v2Checkpoint", "deletionVectors"], configuration=V2, partition_columns=["p"]
        )
    )
    table.add("a", "b", "c", "x y", partition={"p": "é/%"}).remove("b").delete_rows("a", 0)
    # Files named like a version, and like change data of commits after the checkpoint.
    odd = [table.added("f", path="8"), table.added("g", path="_change_data/h")]
    table.commit([table.added("b", partition={"p": "é/%"}), *odd])
    return table.remove("c").delete_rows("a", 0, 1)


def finish(table: TableBuilder) -> None:
    table._uuids = 100  # a checkpoint uses some: the vectors must have the same names without one
    change = {"path": "_change_data/h", "partitionValues": {}, "size": 1, "dataChange": False}
    table.commit([table.added("d"), table.added("e"), {"cdc": change}])
    table.remove("b").delete_rows("x y", 1)
