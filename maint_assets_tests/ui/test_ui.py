"""The Dagster UI: the lineage of a table, its plan, plots over time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page

from maint_assets.cli.compaction import execute_compaction, plan_compaction
from maint_assets.cli.launcher import Launcher
from maint_assets.cli.vacuum import execute_vacuum, plan_vacuum
from maint_assets.config import load
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.points import points
from maint_assets_tests.ui.browser import (
    INSTANCE,
    Shown,
    executed,
    materialized,
    opened,
    planned_digest,
    shoot,
)
from maint_assets_tests.ui.webserver import ROOT, serving

pytestmark = [pytest.mark.ui, pytest.mark.slow]

STAGES = (
    "snapshot", "valid_files", "listing", "diff", "deletion", "compaction_bins", "rewritten_files",
    "expired_logs", "deleted_logs",
)  # fmt: skip
CONFIG = """
workspace: out
tables:
  - {name: orders, uri: lake/orders, depends_on: [raw/orders], vacuum: {max_delete_share: 1}}
  - name: points
    uri: lake/points
    compaction: {zorder_by: [x, y], target_file_size: 20KB}
"""


def maintained(home: Path) -> str:
    """Run the chain into a DAGSTER_HOME; returns the digest of the plan that was executed."""
    (home / "dagster.yaml").write_text(INSTANCE)
    (home / "maintenance.yaml").write_text(CONFIG)
    table = TableBuilder(home / "lake" / "orders").at(days_ago=30)
    table.create(partition_columns=["day"])
    days = [f"2026-10-{number:02}" for number in range(1, 9)]
    for day in days:
        table.add("part-0.parquet", "part-1.parquet", partition={"day": day}, rows=2_000)
    for day in days[:4]:
        table.add("late-0.parquet", "late-1.parquet", partition={"day": day}, rows=2_000)
    hours = [f"hour-{number}.parquet" for number in range(10)]
    table.add(*hours, partition={"day": days[7]}, rows=100_000)
    for day in days[:5]:
        table.at(days_ago=20).remove(f"day={day}/part-0.parquet")
    settings = load(home / "maintenance.yaml")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        launcher = Launcher(settings, instance)
        plan_vacuum(launcher, settings.tables[0])
        for day in days[5:]:
            table.at(days_ago=12).remove(f"day={day}/part-1.parquet")
        table.stray(
            "day=2026-10-03/part-of-a-failed-job.parquet", age_days=15, content=b"x" * 9_000
        )
        report = plan_vacuum(launcher, settings.tables[0])
        execute_vacuum(launcher, settings.tables[0], report, by="ada@example.org")
        points(home / "lake" / "points", rows=4000)
        order = plan_compaction(launcher, settings.tables[1])
        execute_compaction(launcher, settings.tables[1], order, by="ada@example.org")
    return report.planned.plan.digest


@pytest.fixture(scope="module")
def shown(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("home")
    digest = maintained(home)
    env = {"DAGSTER_HOME": str(home), "MAINT_ASSETS_CONFIG": str(home / "maintenance.yaml")}
    command = ["dagster-webserver", "-w", str(ROOT / "workspace.yaml")]
    with serving(command, env, home / "webserver.log") as address:
        yield Shown(address, digest)


@pytest.mark.long
def test_a_compaction_is_planned_approved_and_executed(page: Page, shown: Shown) -> None:
    """Runs first, so that the lineage shows this branch as materialized."""
    assert materialized(page, shown, "compaction_bins") == "SUCCESS"
    opened(page, shown, "compaction_bins")
    plan = planned_digest(page)
    assert page.get_by_text("23 files, 12.9 MB in 5 bins").count() > 0
    assert is_drawn(page, "files by size")
    shoot(page, "compaction_bins", height=1_700)

    assert executed(page, shown, "rewritten_files", plan=plan) == "SUCCESS"
    opened(page, shown, "rewritten_files")
    page.get_by_text("became 5 files").first.wait_for()
    page.get_by_text("grace@example.org").first.wait_for()
    assert is_drawn(page, "files by size")
    shoot(page, "rewritten_files", height=1_700)

    opened(page, shown, "rewritten_files", view="checks")
    page.get_by_text("same_rows").first.click()
    page.get_by_text("bins_with_rows_compared").first.wait_for()
    assert page.get_by_text("Succeeded", exact=True).count() == 2
    shoot(page, "same_rows")


@pytest.mark.long
def test_an_order_shows_how_many_files_lookups_read(page: Page, shown: Shown) -> None:
    opened(page, shown, "rewritten_files", table="points")
    page.get_by_text("became").first.wait_for()
    assert is_drawn(page, "files that a lookup reads")
    shoot(page, "skipping", height=1_700)


def is_drawn(page: Page, title: str) -> bool:
    """Whether a chart is embedded in the page and has a size."""
    picture = page.locator(f"img[alt='{title}']").first
    picture.wait_for()
    return bool(picture.evaluate("image => image.complete && image.naturalHeight > 20"))


def test_the_lineage_shows_three_branches_hung_off_the_users_table(
    page: Page, shown: Shown
) -> None:
    page.goto(f"{shown.address}/locations/maint_assets/asset-groups/orders/lineage")

    for name in STAGES:
        page.get_by_text(name, exact=True).first.wait_for()
    shoot(page, "chain")


def test_the_plan_shows_its_summary_files_and_digest(page: Page, shown: Shown) -> None:
    page.goto(f"{shown.address}/assets/maintenance/orders/diff?view=overview")

    page.get_by_text("can be deleted").first.wait_for()
    page.get_by_text("part-of-a-failed-job.parquet").first.wait_for()
    assert page.get_by_text(shown.digest).count() > 0
    shoot(page, "diff", height=1_700)


def test_the_checks_of_the_plan_are_named(page: Page, shown: Shown) -> None:
    page.goto(f"{shown.address}/assets/maintenance/orders/diff?view=checks")

    page.get_by_text("no_active_file_missing").first.wait_for()
    page.get_by_text("nothing_valid_in_plan").first.wait_for()
    shoot(page, "checks")


def test_numbers_plot_over_time(page: Page, shown: Shown) -> None:
    page.goto(f"{shown.address}/assets/maintenance/orders/diff?view=overview")
    page.get_by_text("Plots", exact=True).first.click()

    page.locator("canvas").first.wait_for()
    assert page.locator("canvas").count() > 3
    shoot(page, "plots", height=1_500)


def test_the_deletion_shows_each_outcome(page: Page, shown: Shown) -> None:
    page.goto(f"{shown.address}/assets/maintenance/orders/deletion?view=overview")

    page.get_by_text("deleted").first.wait_for()
    page.get_by_text("ada@example.org").first.wait_for()
    shoot(page, "deletion", height=1_500)
