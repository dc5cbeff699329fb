"""Text that is held as dictionaries on its way: the same rows, statistics and bounds of memory."""

import io
import json
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.compaction import data_files, new_file, rewrite
from maint_assets.compaction.data_files import DataFiles
from maint_assets.compaction.dictionaries import (
    as_dictionary,
    dictionaries_of,
    dictionary_columns,
    held_bytes,
)
from maint_assets.compaction.new_file import NewFile
from maint_assets.compaction.rewriting import Rewriting, rewriting
from maint_assets_tests.builder import TableBuilder
from maint_assets_tests.commit.rewriting import head_of, live

FIELDS = {"id": "long", "cat": "string", "raw": "binary", "free": "string"}
SCHEMA = pa.schema({"id": pa.int64(), "cat": pa.string(), "raw": pa.binary(), "free": pa.string()})


def text_of(values: Sequence[str | None], *, start: int = 0) -> pa.Table:
    """Rows with these texts in a column of few values, the same as bytes, and as unique text."""
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
    """A table of data files with these rows."""
    table = TableBuilder(path).create(fields=FIELDS)
    for number, rows in enumerate(files):
        table.add(f"{number}.parquet", rows=1, stats=json.dumps({"numRecords": rows.num_rows}))
        pq.write_table(rows, path / f"{number}.parquet", **how)
    return table


def opened(path: Path) -> list[pa.RecordBatch]:
    """The live rows of a table's files as a rewrite reads them."""
    head, batches = head_of(path), []
    files = DataFiles(head.location, rewriting(head).files, dictionaries=True)
    for add in live(path).values():
        with closing(files.open(add)) as file:
            batches += file.rows()
    return batches


def rewritten(path: Path, how: Rewriting) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """The new file of all live rows of a table, and its statistics."""
    output, _ = rewrite._output(list(live(path).values()), how)
    assert output is not None and output.stats is not None
    return pq.ParquetFile(path / output.path), json.loads(output.stats)


def plainly(path: Path, how: Rewriting) -> tuple[pa.Table, dict[str, Any]]:
    """The same without dictionaries: the rows and the statistics."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "dictionary_columns", lambda _: ())
        file, statistics = rewritten(path, how)
    return file.read(), statistics


def refuse_difference(path: Path) -> pq.ParquetFile:
    """The new file of a table, after it was found to be as one that never saw a dictionary."""
    how = rewriting(head_of(path))
    expected, statistics = plainly(path, how)
    file, found = rewritten(path, how)
    assert file.schema_arrow.equals(expected.schema, check_metadata=True)
    assert file.read().equals(expected)
    assert found == statistics
    return file


def column_of(file: pq.ParquetFile, name: str, group: int = 0) -> Any:
    return file.metadata.row_group(group).column(file.schema_arrow.get_field_index(name))


def test_columns_of_few_values_stay_dictionaries(tmp_path: Path) -> None:
    table_of(
        tmp_path,
        text_of(["b", "a", None, "é"] * 200),
        text_of(["c", "a", "b"] * 200, start=800),
        text_of([None] * 300, start=1400),
    )

    names = [dictionaries_of(batch.schema) for batch in opened(tmp_path)]
    file = refuse_difference(tmp_path)

    assert names[:2] == [("cat", "raw"), ("cat", "raw")]
    for name in ("cat", "raw"):
        column = column_of(file, name)
        assert column.has_dictionary_page and column.total_uncompressed_size < 1_000
        assert (column.statistics.null_count, column.num_values) == (500, 1_700)
    assert column_of(file, "cat").statistics.min == "a"
    assert column_of(file, "cat").statistics.max == "é"


def test_values_of_deleted_rows_do_not_count(tmp_path: Path) -> None:
    table = table_of(tmp_path, text_of(["m", "n"] * 300 + ["z", "a"]), text_of(["k", "l"] * 300))
    table.delete_rows("0.parquet", 600, 601)

    file = refuse_difference(tmp_path)

    cat = column_of(file, "cat").statistics
    assert (cat.min, cat.max) == ("k", "n")


@pytest.mark.parametrize("plain_first", [True, False])
def test_files_of_many_and_of_few_values_meet(tmp_path: Path, plain_first: bool) -> None:
    many = text_of([f"{number:07d}" for number in range(700)])
    few = text_of(["x", "y", None] * 300, start=700)
    table_of(tmp_path, *((many, few) if plain_first else (few, many)))

    names = [dictionaries_of(batch.schema) for batch in opened(tmp_path)]
    refuse_difference(tmp_path)

    assert sorted(names) == [(), ("cat", "raw")]


@pytest.mark.parametrize("plain_first", [True, False])
def test_later_row_groups_are_held_as_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_first: bool
) -> None:
    monkeypatch.setattr(new_file, "ROW_GROUP_ROWS", 600)
    many = text_of([f"{number:07d}" for number in range(700)])
    few = text_of(["x", "y", None] * 300, start=700)
    table_of(tmp_path, *((many, few) if plain_first else (few, many)))

    file = refuse_difference(tmp_path)

    assert file.num_row_groups == 2
    if not plain_first:
        assert column_of(file, "cat", 0).has_dictionary_page


def test_random_files_come_out_as_without_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(17)
    for story in range(25):
        monkeypatch.setattr(new_file, "ROW_GROUP_ROWS", chance.choice([50, 400, 10_000]))
        path, start, files = tmp_path / str(story), 0, []
        for _ in range(chance.randint(1, 5)):
            most = chance.choice([1, 3, 40, 5_000])
            width = chance.choice([1, 30, 300])
            rows = chance.choice([1, 60, 900])
            values = [
                None if chance.random() < 0.1 else f"{chance.randrange(most)}" * width
                for _ in range(rows)
            ]
            files.append(text_of(values, start=start))
            start += rows
        table = table_of(path, *files, row_group_size=chance.choice([100, 1_000]))
        if files[0].num_rows > 1:
            table.delete_rows("0.parquet", *chance.sample(range(files[0].num_rows), 1))

        refuse_difference(path)


def twice_in_its_dictionary(path: Path, created_by: bytes) -> list[str]:
    """Makes a data file in whose dictionary a value stands twice; the rows it holds."""
    own = pq.read_metadata(path).created_by.encode()
    pq.write_table(
        text_of(["1first", "2other", "3third"] * 300), path, compression="none", use_dictionary=True
    )
    data = path.read_bytes()
    # Entries of a dictionary follow their length; statistics hold the values too.
    for name in (b"2other", b"\x06\0\0\x002other"):
        assert name in data
    data = data.replace(b"\x06\0\0\x002other", b"\x06\0\0\x001first", 2)
    path.write_bytes(data.replace(own, created_by.ljust(len(own))))
    return ["1first", "1first", "3third"] * 300


def test_a_dictionary_that_holds_a_value_twice_is_not_read_as_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, text_of(["-"] * 900))
    path = tmp_path / "0.parquet"
    rows = twice_in_its_dictionary(path, b"some writer")

    with pq.ParquetFile(path, read_dictionary=["cat"]) as misread, pytest.raises(pa.ArrowException):
        misread.read(["cat"])["cat"].to_pylist()
    with pq.ParquetFile(path) as file:
        assert dictionary_columns(file) == ()

    file, _ = rewritten(table.path, rewriting(head_of(table.path)))

    assert file.read()["cat"].to_pylist() == rows


def held(values: Sequence[str]) -> pa.RecordBatch:
    """Rows whose two columns of few values hold dictionaries."""
    rows = text_of(values)
    for name in ("cat", "raw"):
        at = rows.schema.get_field_index(name)
        kind = as_dictionary(SCHEMA.field(name))
        rows = rows.set_column(at, kind, rows[name].dictionary_encode())
    return rows.combine_chunks().to_batches()[0]


@pytest.mark.parametrize("value", ["short", "x" * 5_000])
def test_memory_is_counted_as_of_plain_text(value: str) -> None:
    values = [value] * 900 + ["y"] * 100

    found, plain = held_bytes(held(values)), text_of(values).to_batches()[0].nbytes

    assert plain * 0.9 <= found <= plain * 1.1


def test_row_groups_and_batches_are_bounded_as_those_of_plain_text(tmp_path: Path) -> None:
    rows = text_of(["x" * 4_000] * 20_000).drop_columns(["free"])
    table = table_of(tmp_path, rows)

    batches = opened(tmp_path)
    file, _ = rewritten(table.path, rewriting(head_of(table.path)))

    assert {dictionaries_of(batch.schema) for batch in batches} == {("cat", "raw")}
    assert max(held_bytes(batch) for batch in batches) <= 32 << 20
    assert file.num_row_groups == 3  # of 160 MB


def test_a_dictionary_that_is_too_large_for_the_writer_becomes_plain(tmp_path: Path) -> None:
    values = [f"{number:06d}" * 40 for number in range(8_000)] * 2
    how = rewriting(head_of(TableBuilder(tmp_path).create(fields=FIELDS).path))
    sink = io.BytesIO()

    with NewFile(sink, how) as file:
        file.append(held(values))

    found = pq.ParquetFile(io.BytesIO(sink.getvalue()))
    assert found.read().equals(text_of(values))
    assert column_of(found, "cat").statistics.max == "007999" * 40
