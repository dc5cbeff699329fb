"""Tables that no reader can read, through the whole chain: refused and left unchanged."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.delta.features import FEATURES, Operation
from maint_assets.errors import CorruptLogError, LogGapError, MaintError, UnsupportedFeatureError
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import files
from maint_assets_tests.vacuum.conftest import ChainOf

Damage = Callable[[TableBuilder], object]

pytestmark = pytest.mark.usefixtures("spark")


def story(path: Path) -> TableBuilder:
    """Live and removed files around a checkpoint, and an untracked file; all old."""
    table = TableBuilder(path).at(days_ago=9).create().add("a", "b").remove("a").checkpoint()
    return table.add("c").remove("b").stray("stray").age("**/*", 9)


def cut(table: TableBuilder, version: int) -> None:
    """Cut off a commit in the middle of its last line."""
    file = table.log / f"{version:020}.json"
    file.write_bytes(file.read_bytes()[:-9])


def rewrite(table: TableBuilder, version: int, old: str, new: str) -> None:
    file = table.log / f"{version:020}.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def without_paths(table: TableBuilder) -> None:
    """Remove the paths of a checkpoint's adds: its files would look untracked."""
    file = table.log / f"{2:020}.checkpoint.parquet"
    rows = pq.read_table(file)
    adds = [add and {**add, "path": None} for add in rows["add"].to_pylist()]
    column = pa.array(adds, rows.schema.field("add").type)
    pq.write_table(rows.set_column(rows.schema.get_field_index("add"), "add", column), file)


def garbage_adds(table: TableBuilder) -> None:
    """Fill the column of the adds' paths in a checkpoint with garbage; all else is sound."""
    file = table.log / f"{2:020}.checkpoint.parquet"
    group, content = pq.read_metadata(file).row_group(0), bytearray(file.read_bytes())
    chunks = [group.column(at) for at in range(group.num_columns)]
    [path] = [chunk for chunk in chunks if chunk.path_in_schema == "add.path"]
    first = path.dictionary_page_offset or path.data_page_offset
    content[first : first + path.total_compressed_size] = b"x" * path.total_compressed_size
    file.write_bytes(bytes(content))


DAMAGED: dict[str, tuple[Damage, type[MaintError], str]] = {
    "truncated newest commit": (lambda t: cut(t, 4), CorruptLogError, f"{4:020}.json"),
    "truncated commit after the checkpoint": (
        lambda t: cut(t, 3),
        CorruptLogError,
        f"{3:020}.json",
    ),
    "garbage in a commit": (
        lambda t: (t.log / f"{4:020}.json").write_bytes(b"\xff\x00garbage\n"),
        CorruptLogError,
        f"{4:020}.json",
    ),
    "an add without a path": (
        lambda t: rewrite(t, 3, '"path"', '"paht"'),
        CorruptLogError,
        f"{3:020}.json",
    ),
    "a size that is a text": (
        lambda t: rewrite(t, 3, '"size":', '"size":"x", "was":'),
        CorruptLogError,
        f"{3:020}.json",
    ),
    "a hole": (lambda t: (t.log / f"{3:020}.json").unlink(), LogGapError, f"{3:020}.json"),
    "a checkpoint without paths": (without_paths, CorruptLogError, "add.path is null"),
    "garbage in a checkpoint's adds": (garbage_adds, CorruptLogError, "checkpoint"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_table_is_one_sentence_and_nothing_is_touched(
    tmp_path: Path, chain_of: ChainOf, what: str
) -> None:
    table = story(tmp_path)
    damage, kind, named = DAMAGED[what]
    damage(table)
    before = tree(tmp_path)

    with pytest.raises(kind) as caught:
        chain_of(tmp_path).vacuum()

    assert named in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert tree(tmp_path) == before


def test_damage_among_adds_before_the_checkpoint_does_not_matter(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    rewrite(table, 1, '"size":', '"size":"x", "was":')

    assert files(chain_of(tmp_path).plan()) == {"a", "b", "stray"}


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_is_vacuumed_like_any_table_or_refused_by_name(
    tmp_path: Path, chain_of: ChainOf, feature: str
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a", "b").remove("a")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    if FEATURES[feature].reader:
        protocol |= {"minReaderVersion": 3, "readerFeatures": [feature]}
    table.commit([{"protocol": protocol}]).age("**/*", 9)
    before = tree(tmp_path)

    if Operation.VACUUM in FEATURES[feature].operations:
        assert files(chain_of(tmp_path).plan()) == {"a"}
    else:
        with pytest.raises(UnsupportedFeatureError, match=feature) as caught:
            chain_of(tmp_path).vacuum()
        assert caught.value.exit_code == 3
    assert tree(tmp_path) == before


def test_uniform_metadata_stays(tmp_path: Path, chain_of: ChainOf) -> None:
    uniform = {"delta.universalFormat.enabledFormats": "iceberg"}
    table = TableBuilder(tmp_path).at(days_ago=9)
    table.create(features=["icebergCompatV2", "columnMapping"], configuration=uniform)
    table.add("a", "b").remove("a").stray("metadata/v1.metadata.json").stray("x/metadata/y")
    table.age("**/*", 9)

    assert files(chain_of(tmp_path).plan()) == {"a"}


def test_a_clone_keeps_the_files_of_its_source(tmp_path: Path, chain_of: ChainOf) -> None:
    """A shallow clone names the files of its source by absolute paths outside its own root."""
    source = TableBuilder(tmp_path / "source").at(days_ago=9).create().add("a")
    clone = TableBuilder(tmp_path / "clone").at(days_ago=9).create()
    clone.add("own").remove("own")
    add = json.loads(json.dumps(source.live["a"])) | {"path": f"file:{source.path}/a"}
    clone.commit([{"add": add}]).stray("stray").age("**/*", 9)

    done = chain_of(clone.path).vacuum()

    assert files(done) == {"own", "stray"}
    assert (source.path / "a").exists()
