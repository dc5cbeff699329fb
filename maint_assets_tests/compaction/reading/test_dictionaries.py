"""Text read and written as dictionaries: the same rows, statistics and memory limits."""

import json
import random
import shutil
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.compaction.engines import arrow
from maint_assets.compaction.reading import data_files, dictionaries
from maint_assets.compaction.reading.data_files import DataFiles, footer_of
from maint_assets.compaction.reading.dictionaries import (
    as_dictionary,
    bounded,
    held_bytes,
    shared_dictionaries,
)
from maint_assets.compaction.writing import new_file
from maint_assets.compaction.writing.target import Rewriting, rewriting
from maint_assets.errors import StorageError
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import head_of, live

FIELDS = {"id": "long", "cat": "string", "raw": "binary", "free": "string"}
SCHEMA = pa.schema({"id": pa.int64(), "cat": pa.string(), "raw": pa.binary(), "free": pa.string()})


def text_of(values: Sequence[str | None], *, start: int = 0) -> pa.Table:
    """Rows with these texts in a column of few values, also as bytes, and within unique texts."""
    return pa.table(
        {
            "id": range(start, start + len(values)),
            "cat": values,
            "raw": [None if value is None else value.encode() for value in values],
            "free": [f"{value} {number:012d}" for number, value in enumerate(values, start)],
        },
        schema=SCHEMA,
    )


def table_of(path: Path, *files: pa.Table, **how: Any) -> TableBuilder:
    """A table with one data file for each of these tables of rows."""
    table = TableBuilder(path).create(fields=FIELDS)
    for number, rows in enumerate(files):
        pq.write_table(rows, path / f"{number}.parquet", **how)
        tell(table, f"{number}.parquet", rows=rows.num_rows)
    return table


def tell(table: TableBuilder, name: str, *, rows: int) -> None:
    """Commit the add of a file that is already in place."""
    add = table.added("any.parquet", stats=json.dumps({"numRecords": rows}))["add"]
    (table.path / "any.parquet").unlink()
    size = (table.path / name).stat().st_size
    table.commit([{"add": add | {"path": name, "size": size}}], operation="WRITE")


def shared(path: Path) -> tuple[str, ...]:
    """The columns that are dictionary-encoded in all live files of a table."""
    head = head_of(path)
    files = [partial(footer_of, head.location, add.path) for add in live(path).values()]
    return shared_dictionaries(files, rewriting(head).files)


def opened(path: Path) -> list[pa.RecordBatch]:
    """The live rows of a table's files as a rewrite reads them."""
    head, batches = head_of(path), []
    files = DataFiles(head.location, rewriting(head).files)
    files.keep_dictionaries(live(path).values())
    for add in live(path).values():
        with closing(files.open(add)) as file:
            batches += file.rows()
    return batches


def rewritten(path: Path, how: Rewriting) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """Rewrite all live rows of a table; the new file and its statistics."""
    output, _ = arrow._output(list(live(path).values()), how)
    assert output is not None and output.stats is not None
    return pq.ParquetFile(path / output.path), json.loads(output.stats)


def plainly(path: Path, how: Rewriting) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """The same, read and written without dictionaries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "shared_dictionaries", lambda *_: ())
        return rewritten(path, how)


def refuse_difference(path: Path, *, groups: bool = True) -> pq.ParquetFile:
    """Assert that the new file equals one written without dictionaries, and return it.

    ``groups`` compares the row groups too; they differ if batches end at other rows.
    """
    how = rewriting(head_of(path))
    expected, statistics = plainly(path, how)
    file, found = rewritten(path, how)
    assert file.schema_arrow.equals(expected.schema_arrow, check_metadata=True)
    assert file.read().equals(expected.read())
    assert found == statistics
    assert not groups or rows_of_groups(file) == rows_of_groups(expected)
    return file


def rows_of_groups(file: pq.ParquetFile) -> list[int]:
    return [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]


def column_of(file: pq.ParquetFile, name: str, group: int = 0) -> Any:
    return file.metadata.row_group(group).column(file.schema_arrow.get_field_index(name))


def test_columns_of_few_values_stay_dictionaries(tmp_path: Path) -> None:
    table_of(
        tmp_path,
        text_of(["b", "a", None, "é"] * 2_000),
        text_of(["c", "a", "b"] * 2_000, start=8_000),
    )

    file = refuse_difference(tmp_path)

    assert shared(tmp_path) == ("cat", "raw")
    for name in ("cat", "raw"):
        column = column_of(file, name)
        assert column.has_dictionary_page and column.total_uncompressed_size < 10_000
        assert (column.statistics.null_count, column.num_values) == (2_000, 14_000)
    assert column_of(file, "cat").statistics.min == "a"
    assert column_of(file, "cat").statistics.max == "é"


def test_values_of_deleted_rows_do_not_count(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, text_of(["m", "n"] * 3_000 + ["z", "a"]), text_of(["k", "l"] * 3_000)
    )
    table.delete_rows("0.parquet", 6_000, 6_001)

    file = refuse_difference(tmp_path)

    assert shared(tmp_path) == ("cat", "raw")
    cat = column_of(file, "cat").statistics
    assert (cat.min, cat.max) == ("k", "n")


@pytest.mark.parametrize(
    ("differ", "text", "few"),
    [
        (2_000, "city of the event", True),
        (9_000, "city of the event", False),
        (9_000, "", False),
    ],
)
def test_text_of_some_thousand_values_stays_a_dictionary(
    tmp_path: Path, differ: int, text: str, few: bool
) -> None:
    chance = random.Random(3)
    values = [f"{text} {chance.randrange(differ) * 7_919:08d}" for _ in range(12_000)]
    table_of(tmp_path, text_of(values))

    refuse_difference(tmp_path)

    assert shared(tmp_path) == (("cat", "raw") if few else ())


@pytest.mark.parametrize(("most", "kept"), [(20_000, 2), (7, 1), (3, 0)])
def test_footers_that_were_looked_at_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, kept: int
) -> None:
    table_of(tmp_path, *[text_of(["a", "b"] * 3_000)] * 2)
    monkeypatch.setattr(data_files, "_MOST_CHUNKS", most)
    footers: list[pq.FileMetaData | None] = []
    original = pq.ParquetFile

    def opened_with(*args: Any, **how: Any) -> pq.ParquetFile:
        footers.append(how.get("metadata"))
        return original(*args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", opened_with)
        arrow._output(list(live(tmp_path).values()), rewriting(head_of(tmp_path)))

    assert len(footers) == 4
    assert sum(footer is not None for footer in footers) == kept


FEW = text_of(["x", "y", None] * 3_000)
OTHERS = {
    "many": text_of([f"{number:07d}" for number in range(7_000)]),
    "absent": FEW.drop_columns(["cat", "raw"]),
    "of-another-type": FEW.set_column(1, "cat", FEW["id"]).drop_columns(["raw"]),
    "nested": FEW.set_column(1, "cat", pa.array([{"a": 1}] * 9_000)).drop_columns(["raw"]),
    "twice": pa.table([*FEW.columns, FEW["cat"], FEW["raw"]], [*FEW.column_names, "cat", "raw"]),
    "sparse": text_of([None if at % 30 else f"{at:090d}" for at in range(9_000)]),
    "few-rows": text_of(["x", "y"] * 1_000),
    "large-text": FEW.cast(SCHEMA.set(1, pa.field("cat", pa.large_string()))).drop_columns(["raw"]),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_what_one_file_does_not_hold_as_a_dictionary_is_read_plainly(
    tmp_path: Path, other: str, first: bool
) -> None:
    table_of(tmp_path, *((OTHERS[other], FEW) if first else (FEW, OTHERS[other])))

    assert shared(tmp_path) == ()
    if other in {"of-another-type", "nested", "twice"}:
        how = rewriting(head_of(tmp_path))
        with pytest.raises(arrow._RefusedError):
            rewritten(tmp_path, how)
    else:
        refuse_difference(tmp_path)


def test_many_small_row_groups_are_read_plainly(tmp_path: Path) -> None:
    table_of(tmp_path, FEW, row_group_size=100)

    assert shared(tmp_path) == ()


def test_pages_that_arrow_cannot_read_as_dictionaries_are_read_plainly(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = "if(id < 300000, concat('status-', id % 7), format_string('order-%09d', id))"
    rows = spark.range(0, 400_000, 1, 1).selectExpr("id", f"{values} AS cat")
    written = tmp_path / "written"
    rows.write.option("parquet.writer.version", "PARQUET_2_0").parquet(str(written))
    table = table_of(tmp_path / "t", FEW)
    (file,) = written.glob("*.parquet")
    shutil.copy(file, table.path / "1.parquet")
    tell(table.remove("0.parquet"), "1.parquet", rows=400_000)
    with pq.ParquetFile(file) as opened:
        encodings = column_of(opened, "cat").encodings
        assert {"DELTA_BYTE_ARRAY", "RLE_DICTIONARY"} <= set(encodings)

    assert shared(table.path) == ()
    refuse_difference(table.path)


def test_random_files_come_out_as_without_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dictionaries, "_LEAST_ROWS", 50)
    chance, seen = random.Random(17), 0
    for story in range(30):
        monkeypatch.setattr(new_file, "ROW_GROUP_ROWS", chance.choice([50, 400, 10_000]))
        monkeypatch.setattr(dictionaries, "_BATCH_BYTES", chance.choice([300, 64 << 20]))
        monkeypatch.setattr(dictionaries, "_SMALL_BYTES", chance.choice([0, 2 << 20]))
        path, start, files = tmp_path / str(story), 0, []
        for _ in range(chance.randint(1, 5)):
            most = chance.choice([1, 3, 40, 5_000] if story % 3 else [1, 3, 9])
            width = chance.choice([1, 30])
            rows = chance.choice([400, 900])
            values = [
                None if chance.random() < 0.1 else f"{chance.randrange(most)}" * width
                for _ in range(rows)
            ]
            files.append(text_of(values, start=start))
            start += rows
        table = table_of(
            path,
            *files,
            row_group_size=chance.choice([100, 1_000]),
            compression=chance.choice(["snappy", "zstd"]),
            # Small pages: those of indices come first, then some of plain text.
            dictionary_pagesize_limit=chance.choice([64, 500, 1 << 20]),
            write_batch_size=chance.choice([16, 1_024]),
            data_page_size=chance.choice([64, 1 << 20]),
        )
        gone = chance.choice([1, 390])
        table.delete_rows("0.parquet", *chance.sample(range(files[0].num_rows), gone))

        seen += bool(shared(path))
        refuse_difference(path, groups=False)
    assert seen > 5


def twice_in_its_dictionary(path: Path, created_by: bytes) -> list[str]:
    """Make a data file with a duplicate value in its dictionary; return the values it holds."""
    own = pq.read_metadata(path).created_by.encode()
    rows = text_of(["1first", "2other", "3third"] * 3_000)
    pq.write_table(rows, path, compression="none", use_dictionary=True)
    data = path.read_bytes()
    # Each dictionary entry follows its length; statistics contain the values too.
    assert b"\x06\0\0\x002other" in data
    data = data.replace(b"\x06\0\0\x002other", b"\x06\0\0\x001first", 2)
    path.write_bytes(data.replace(own, created_by.ljust(len(own))))
    return ["1first", "1first", "3third"] * 3_000


def test_a_dictionary_that_holds_a_value_twice_is_not_read_as_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, FEW)
    path = tmp_path / "0.parquet"
    rows = twice_in_its_dictionary(path, b"some writer")
    tell(table, path.name, rows=len(rows))

    with pq.ParquetFile(path, read_dictionary=["cat"]) as misread, pytest.raises(pa.ArrowException):
        misread.read(["cat"])["cat"].to_pylist()
    file, _ = rewritten(table.path, rewriting(head_of(table.path)))

    assert shared(tmp_path) == ()
    assert file.read()["cat"].to_pylist() == rows


def held(values: Sequence[str | None]) -> pa.RecordBatch:
    """Rows whose two columns of few values are dictionary arrays."""
    rows = text_of(values)
    for name in ("cat", "raw"):
        at = rows.schema.get_field_index(name)
        kind = as_dictionary(SCHEMA.field(name))
        rows = rows.set_column(at, kind, rows[name].dictionary_encode())
    return rows.combine_chunks().to_batches()[0]


@pytest.mark.parametrize("value", ["short", "x" * 5_000, None])
def test_memory_is_counted_as_of_plain_text(value: str | None) -> None:
    values = [value] * 900 + ["y"] * 100

    found, plain = held_bytes(held(values)), text_of(values).to_batches()[0].nbytes

    assert plain * 0.97 <= found <= plain * 1.03


@pytest.mark.slow
def test_a_batch_that_would_be_large_as_plain_text_is_divided() -> None:
    batch = held(["x" * 40_000] * 9_000)  # 720 MB

    parts = list(bounded(batch))

    assert max(held_bytes(part) for part in parts) <= 65 << 20
    assert sum(part.num_rows for part in parts) == 9_000


def test_a_dictionary_of_which_few_rows_are_left_is_made_anew() -> None:
    batch = held([f"{number % 5_000:060d}" for number in range(20_000)])

    (left,) = bounded(batch.slice(0, 20))

    assert len(batch.slice(0, 20)["cat"].dictionary) == 5_000
    assert len(left["cat"].dictionary) == 20
    assert left.to_pylist() == batch.slice(0, 20).to_pylist()


def test_row_groups_and_batches_are_bounded_as_those_of_plain_text(tmp_path: Path) -> None:
    table_of(tmp_path, text_of(["x" * 4_000] * 20_000).drop_columns(["free"]))

    batches = opened(tmp_path)
    file = refuse_difference(tmp_path)

    assert shared(tmp_path) == ("cat", "raw")
    assert max(held_bytes(batch) for batch in batches) <= 32 << 20
    assert file.num_row_groups == 3  # of 160 MB


def test_dictionaries_that_are_large_together_are_written_as_they_are(tmp_path: Path) -> None:
    texts = [[f"{part}-{number:06d}" * 20 for number in range(2_000)] for part in range(4)]
    table_of(tmp_path, *(text_of(values * 90).drop_columns(["raw", "free"]) for values in texts))

    file = refuse_difference(tmp_path)

    assert shared(tmp_path) == ("cat",)
    assert column_of(file, "cat").has_dictionary_page


def test_a_file_that_cannot_be_opened_raises_its_usual_error(tmp_path: Path) -> None:
    table_of(tmp_path, FEW, FEW)
    (tmp_path / "1.parquet").unlink()

    assert shared(tmp_path) == ()
    with pytest.raises(StorageError, match=r"data file 1.parquet is missing"):
        rewritten(tmp_path, rewriting(head_of(tmp_path)))
