"""Path spellings: files that the log names are kept however spelled, and so are odd names."""

import os
from pathlib import Path
from urllib.parse import unquote

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets.errors import GuardError
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder, encoded, hive_path
from maint_assets_tests.support.chain import directories, files
from maint_assets_tests.vacuum.conftest import ChainOf
from maint_assets_tests.vacuum.planning import planned

ODD = "a b%20#?+:é~&=[x]'^"


def test_every_spelling_of_a_path_protects_its_file(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create()
    uri = tmp_path.as_uri()
    spelled = {
        "encoded x": "encoded%20x",
        "blank x": "blank x",
        "absolute": f"{tmp_path}/absolute",
        "absolute x": f"{tmp_path}/absolute%20x",
        "one slash": f"file:{tmp_path}/one%20slash",
        "three slashes": f"{uri}/three%20slashes",
        "localhost": f"file://localhost{tmp_path}/localhost",
        "upper scheme": f"FILE:{tmp_path}/upper%20scheme",
        "lower%xx/é": "lower%25xx/%c3%a9",
        "upper/É": "upper/%C3%89",
        "raw/é": "raw/é",
        "dots": "./sub/../dots",
        "double/x": "double//x",
        f"odd/{ODD}": f"odd/{encoded(ODD)}",
        "plus+": "plus+",
        "plus2+": "plus2%2B",
    }
    for name, spelling in spelled.items():
        table.add(name, path=spelling)
    table.stray("stray").age("**/*", 9)

    plan = planned(spark, tmp_path)

    assert plan.files == {"stray"}
    assert not plan.missing


@pytest.mark.parametrize("name", ["a%2Fb", "a%2fb", "p=q%3Az/x%20y", "p=q%3az/x%c3%a9"])
def test_name_that_a_writer_did_not_encode_protects_the_file(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create()
    table.add(name, path=name).add("kept").age("**/*", 9)

    assert planned(spark, tmp_path).files == set()


def test_partition_values_of_all_kinds_protect_and_go(spark: SparkSession, tmp_path: Path) -> None:
    values = ["a/b", "a%2Fb", "q/z:é#", "50%", None, "", " ", "a=b"]
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["_p"])
    for number, value in enumerate(values):
        table.add(f"keep{number}", f"go{number}", partition={"_p": value})
    gone = {hive_path({"_p": v}) + f"go{n}" for n, v in enumerate(values)}
    table.remove(*(f"go{number}" for number in range(len(values)))).age("**/*", 9)

    assert planned(spark, tmp_path).files == gone
    assert delta_spark.planned_files(spark, tmp_path, retention_hours=0) == gone


def test_foreign_paths_are_untouched_and_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    source, clone = TableBuilder(tmp_path / "source"), TableBuilder(tmp_path / "clone")
    source.at(days_ago=9).create().add("f")
    clone.at(days_ago=9).create().add("own").add("x", path=f"{tmp_path}/source/f")
    clone.add("y", path="s3://bucket/clone/y").add("z", path="../source/g").age("*", 9)

    assert planned(spark, clone.path).files == {"x", "y", "z"}
    with pytest.raises((Py4JJavaError, PySparkException), match=r"DELTA_FAIL_RELATIVIZE_PATH|s3"):
        delta_spark.planned_files(spark, clone.path, retention_hours=0)


def test_hidden_names_and_what_is_below_them_stay(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["_p"]).add("kept")
    for name in ("_hidden/x", "a/_hidden/x", "a/.x", ".x.crc", "_SUCCESS", "a/_q=1/x", ".d/_p=1/x"):
        table.stray(name)
    visible = {
        "_p=1/x",
        "a/_p=1/x",
        "_change_data/x",
        "a/_change_data/x",
        "_delta_index/x",
        "metadata/x",
    }
    for name in visible:
        table.stray(name)
    table.age("**/*", 9).age("**/.*", 9)

    plan = planned(spark, tmp_path)

    assert plan.files == visible == delta_spark.planned_files(spark, tmp_path, retention_hours=0)
    assert plan.kinds["_change_data/x"] == "cdc"
    assert plan.kinds["_delta_index/x"] == "index"


def test_uniform_keeps_metadata_at_any_depth(spark: SparkSession, tmp_path: Path) -> None:
    iceberg = {"delta.universalFormat.enabledFormats": "iceberg"}
    table = TableBuilder(tmp_path).at(days_ago=9).create(configuration=iceberg).add("kept")
    table.stray("metadata/v1.json").stray("a/metadata/v1.json").stray("metadata2/x").age("**/*", 9)

    assert planned(spark, tmp_path).files == {"metadata2/x"}


@pytest.mark.slow
def test_nested_table_is_left_alone_where_delta_spark_would_delete_it(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("kept").stray("a/stray")
    TableBuilder(tmp_path / "a/nested").at(days_ago=9).create().add("live", "sub/live")
    table.age("**/*", 9)
    theirs = delta_spark.planned_files(spark, tmp_path, retention_hours=0)

    report = chain_of(tmp_path).plan()

    assert files(report) == {"a/stray"}
    assert directories(report) == set()
    assert theirs == {"a/stray", "a/nested/live", "a/nested/sub/live"}


def test_links_and_strange_names_are_never_planned_or_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    outside, root = tmp_path / "outside", tmp_path / "table"
    table = TableBuilder(root).at(days_ago=9).create().add("kept").stray("d/stray")
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    (root / "dir_link").symlink_to(outside)
    (root / "file_link").symlink_to(outside / "precious")
    (root / "dangling").symlink_to(outside / "nothing")
    (root / "only_link").mkdir()
    (root / "only_link/up").symlink_to(root)
    os.mkfifo(root / "pipe")
    for name in (b"caf\xe9", b"bad\xff"):
        Path(os.fsdecode(bytes(root) + b"/" + name)).write_bytes(b"x")
    table.age("*/*", 9).age("kept", 9).age("d", 9).age("only_link", 9)
    for name in os.listdir(bytes(root)):  # noqa: PTH208 - names that are no text
        os.utime(bytes(root) + b"/" + name, (1, 1), follow_symlinks=False)

    plan = planned(spark, root)

    assert plan.files == {"d/stray"}
    assert plan.directories == {"d"}


@pytest.mark.parametrize("link_to", ["root", "parent"])
def test_absolute_paths_through_a_link_protect_their_files(
    spark: SparkSession, tmp_path: Path, link_to: str
) -> None:
    table = TableBuilder(tmp_path / "real/t").at(days_ago=9).create()
    (tmp_path / "link").symlink_to(tmp_path / "real" / ("t" if link_to == "root" else ""))
    root = tmp_path / "link" if link_to == "root" else tmp_path / "link/t"
    table.add("x y", path=f"file:{root}/x%20y").add("d/z", path=f"{root}/d/z").stray("stray")
    table.delete_rows(f"{root}/d/z", 0)
    dead = table.added("dead", path=f"{root}/dead")
    table.commit([dead]).age("**/*", 9)

    plan = planned(spark, root)

    assert not plan.files & {"x y", "d/z", "dead"}
    assert "stray" in plan.files


@pytest.mark.slow
def test_root_with_a_strange_path_is_vacuumed(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    root = tmp_path / "a b%20#é" / "t%C3%A9?"
    table = TableBuilder(root).at(days_ago=9).create().add("x y", "gone").remove("gone")
    table.add("abs", path=f"{root}/abs".replace("%", "%25")).add("uri", path=f"{root.as_uri()}/uri")
    table.stray("stray").age("*", 9)

    done = chain_of(root).vacuum()

    assert {p.name for p in root.iterdir()} == {"_delta_log", "x y", "abs", "uri"}
    assert done.done and done.done.active_missing == 0


def test_file_and_stray_that_differ_in_case_are_distinguished(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("File").stray("file").stray("FILE")
    table.age("*", 9)

    assert planned(spark, tmp_path).files == {"file", "FILE"}


@pytest.mark.parametrize("name", ["b%FF", "b%20%FF"])
def test_a_live_file_whose_name_java_decodes_to_a_replacement_character_stays(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, name: str
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("b")
    live = {**table.live["b"], "path": name}
    decoded = "b \ufffd" if " " in unquote(name) else "b\ufffd"
    (tmp_path / "b").rename(tmp_path / decoded)
    table.commit([table.removed("b", 1), {"add": live}]).age("**/*", 9)

    report = chain_of(tmp_path, allow_missing_files=True).vacuum()

    assert (report.error, files(report)) == (None, set())
    assert len(delta_spark.rows(spark, tmp_path)) == 2


@pytest.mark.parametrize("name", ["/x%00y/z", "d%00/z", "file:///x%00y/z", "z%00"])
def test_a_path_with_a_nul_is_a_missing_file(tmp_path: Path, chain_of: ChainOf, name: str) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("b", "gone").remove("gone")
    table.commit([{"add": {**table.live["b"], "path": name}}]).age("**/*", 9)

    with pytest.raises(GuardError, match="1 active files were not found"):
        chain_of(tmp_path).vacuum()

    assert files(chain_of(tmp_path, allow_missing_files=True).vacuum()) == {"gone"}
