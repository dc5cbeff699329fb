"""The share of a plan that one task takes."""

import pytest

from maint_assets.compaction.planning.tasks import LEAST_BYTES, TASK_BYTES, task_bytes

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("plan_bytes", "parallelism", "expected"),
    [
        (0, 2, LEAST_BYTES),
        (100 * MB, 2, LEAST_BYTES),
        (512 * MB, 2, 32 * MB),
        (512 * MB, 16, LEAST_BYTES),
        (1024 * 1024 * MB, 2, TASK_BYTES),
    ],
)
def test_tasks_are_many_of_moderate_size(plan_bytes: int, parallelism: int, expected: int) -> None:
    assert task_bytes(plan_bytes, parallelism) == expected
