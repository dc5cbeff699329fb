"""Partition values: which spellings are one value, and how directories are named."""

import pytest

from maint_assets.delta.partitions import canonical, canonical_values, directory, log_path
from maint_assets.delta.schema import Decimal, Field, Primitive

TIMESTAMP = Primitive("timestamp")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Primitive("date"), "", None),
        (Primitive("integer"), "01", "1"),
        (Primitive("long"), "+7", "7"),
        (Decimal(9, 2), "1.5", "1.50"),
        (Primitive("double"), "1E1", "10.0"),
        (Primitive("boolean"), "TRUE", "true"),
        (TIMESTAMP, "2000-01-01 12:00:00Z", "2000-01-01T12:00:00.000000Z"),
        (Primitive("timestamp_ntz"), "2000-01-01T12:00:00.5", "2000-01-01 12:00:00.500000"),
    ],
)
def test_spellings_of_one_value_are_one(
    kind: Primitive, one: str | None, other: str | None
) -> None:
    assert canonical(one, kind) == canonical(other, kind)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Primitive("string"), "", None),
        (Primitive("binary"), "", None),
        (Primitive("string"), "01", "1"),
        (Primitive("string"), "a", "A"),
        (Decimal(9, 2), "1.505", "1.51"),
        (Primitive("double"), "-0.0", "0.0"),
        (Primitive("integer"), "1_0", "10"),
        (Primitive("integer"), "\uff11", "1"),
        (Primitive("double"), " 1.0", "1.0"),
        (TIMESTAMP, "\uff12000-01-01 12:00:00Z", "2000-01-01T12:00:00Z"),
        (TIMESTAMP, "2000-01-01 12:00:00", "2000-01-01T12:00:00.000000Z"),
        (TIMESTAMP, "2000-01-01T12:00:00+01:00", "2000-01-01T12:00:00Z"),
        (TIMESTAMP, "2000-01-01T12:00:00.0000001Z", "2000-01-01T12:00:00Z"),
    ],
)
def test_values_that_may_differ_stay_apart(kind: Primitive, one: str, other: str | None) -> None:
    assert canonical(one, kind) != canonical(other, kind)


def test_values_are_those_of_physical_names_in_the_order_of_the_columns() -> None:
    columns = [Field(name, f"col-{name}", Primitive("integer"), None, {}) for name in ("b", "a")]

    found = canonical_values({"col-a": "01", "col-b": "", "c": "x"}, columns)

    assert list(found.items()) == [("col-b", None), ("col-a", "1")]
    named = {"col-b": None, "col-a": "x=%y z/é"}
    expected = "b=__HIVE_DEFAULT_PARTITION__/a=x%3D%25y z%2Fé/"
    assert directory(named, columns) == expected
    assert log_path(expected) == "b=__HIVE_DEFAULT_PARTITION__/a=x%253D%2525y%20z%252F%C3%A9/"
