"""Predicates over partitions: what is refused by its text alone."""

from typing import Any

import pytest

from maint_assets.compaction.planning.partition_filter import of_partitions
from maint_assets.delta.schema import Field, Primitive
from maint_assets.errors import PredicateError

NO_ROWS: Any = None
DAY = Field("day", "day", Primitive("date"), None, {})


@pytest.mark.parametrize(
    ("where", "function"),
    [
        ("rand() > 0.5", "rand"),
        ("`rand`() > 0.5", "rand"),
        ("`UUID` /* a comment */ () < '8'", "UUID"),
        ("`system`.`builtin`.`uuid`() < '8'", "uuid"),
        ('"rand"() > 0.5', "rand"),
        ("reflect('java.util.UUID', 'randomUUID') like '0%'", "reflect"),
        ("`java_method`('java.util.UUID', 'randomUUID') like '0%'", "java_method"),
        ("try_reflect('java.util.UUID', 'randomUUID') like '0%'", "try_reflect"),
    ],
)
def test_functions_of_other_values_than_the_partition_s_are_refused(
    where: str, function: str
) -> None:
    with pytest.raises(PredicateError, match=f"uses {function}, whose value does not depend"):
        of_partitions(NO_ROWS, where, partitions=[DAY], table="t")


@pytest.mark.parametrize(
    "where", ["day = 'rand()'", "`rand` in ('1')", '`a rand(` = "uuid()"', "day = 1 -- rand()"]
)
def test_names_of_such_functions_in_texts_and_columns_are_not(where: str) -> None:
    with pytest.raises(AttributeError, match="as_frame"):
        of_partitions(NO_ROWS, where, partitions=[DAY], table="t")
