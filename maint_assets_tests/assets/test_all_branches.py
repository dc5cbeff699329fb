"""What holds for the plans of all three branches: digests, and a single execution."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from maint_assets.assets.approval import plan_digest
from maint_assets.cli.compaction import execute_compaction, plan_compaction
from maint_assets.compaction.plan import CompactionPlan, Selection
from maint_assets.config import LogCleanupSettings, VacuumSettings
from maint_assets.errors import StalePlanError
from maint_assets.log_cleanup.plan import LogCleanupPlan
from maint_assets.vacuum.plan import VacuumPlan
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import Chain

_VACUUM = VacuumPlan("t", "i", 1, 2, 3, False, 4, 5, "", 6, 7, 8, 9, 10, 11, None)
_COMPACTION = CompactionPlan("t", "i", 1, "m", 2, "", Selection(), 3, 4, 5, 6, 7, {}, {})
_LOG = LogCleanupPlan("t", "i", 1, "protocol", 2, 3, 4, 5, "", 6, 7, 8, False, None, 9, 10)
_OTHER = {"selection": Selection(purge=True), "left_out": {"a": 1}, "left_out_bytes": {"a": 1}}

Branch = tuple[
    Callable[[Path, Path], Chain], Callable[[Chain], Any], Callable[[Chain, Any], Any], str
]
BRANCHES: dict[str, Branch] = {
    "vacuum": (Chain.of, Chain.plan, Chain.execute, "diff"),
    "compaction": (
        Chain.compacting,
        lambda chain: plan_compaction(chain.launcher, chain.table),
        lambda chain, found: execute_compaction(chain.launcher, chain.table, found, by="a test"),
        "bins",
    ),
    "log_cleanup": (Chain.cleaning, Chain.plan_cleanup, Chain.clean, "expired"),
}


STAGES_OF = {
    "vacuum": ("diff", "deletion"),
    "compaction": ("compaction_bins", "rewritten_files"),
    "log_cleanup": ("expired_logs", "deleted_logs"),
}


@pytest.mark.parametrize("plan", [_VACUUM, _COMPACTION, _LOG], ids=lambda plan: type(plan).__name__)
def test_another_value_of_any_field_gives_another_digest(plan: Any) -> None:
    before = plan_digest(plan, "rows")

    for field in fields(plan):
        changed = replace(plan, **{field.name: _OTHER.get(field.name, "another value")})
        same = field.name == "digest"
        assert (plan_digest(changed, "rows") == before) is same, field.name
    assert plan_digest(plan, "other rows") != before


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    """Two removed files, two small ones, and a log that begins with a checkpoint."""
    built = TableBuilder(tmp_path / "t").at(days_ago=41).create().add("old.parquet", "a.parquet")
    built.remove("old.parquet").add("b.parquet").checkpoint().at(days_ago=1).add("c.parquet")
    return built


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("branch", list(BRANCHES))
def test_an_executed_plan_stays_executed_when_dagster_has_forgotten_it(
    table: TableBuilder, tmp_path: Path, branch: str
) -> None:
    of, plan, execute, dataset = BRANCHES[branch]
    chain = of(table.path, tmp_path / "out")
    report = plan(chain)
    execute(chain, report)
    planned, done = STAGES_OF[branch]
    instance, key = chain.launcher.instance, chain.launcher.key
    instance.wipe_assets([key(chain.table, done)])
    again = {"dataset": getattr(report, dataset).location.path}
    asset = dg.AssetMaterialization(key(chain.table, planned), metadata=again)
    instance.report_runless_asset_event(asset)

    with pytest.raises(StalePlanError, match="was executed by run"):
        execute(chain, report)


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("branch", list(BRANCHES))
def test_a_plan_that_is_not_whole_any_more_is_refused_in_a_sentence_and_nothing_touched(
    table: TableBuilder, tmp_path: Path, branch: str
) -> None:
    of, plan, execute, dataset = BRANCHES[branch]
    chain = of(table.path, tmp_path / "out")
    report = plan(chain)
    place = Path(getattr(report, dataset).location.path)
    (part,) = place.glob("rows/*.parquet")
    before = tree(table.path)

    for file in ("summary.json", "rows.json", f"rows/{part.name}"):
        for damage in (Path.unlink, _truncated, lambda each: each.write_bytes(b"\xff junk")):
            kept = (place / file).read_bytes()
            damage(place / file)
            with pytest.raises(
                StalePlanError, match=f"{Path(file).name} of this dataset cannot be read"
            ):
                execute(chain, report)
            (place / file).write_bytes(kept)

    assert tree(table.path) == before


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("branch", "now"),
    [
        ("vacuum", {"vacuum": VacuumSettings(mode="lite")}),
        ("log_cleanup", {"log_cleanup": LogCleanupSettings(mode="spark")}),
    ],
)
def test_a_plan_of_another_mode_than_the_settings_ask_for_now_is_refused(
    table: TableBuilder, tmp_path: Path, branch: str, now: dict[str, Any]
) -> None:
    of, plan, execute, _ = BRANCHES[branch]
    report = plan(chain := of(table.path, tmp_path / "out"))
    before = tree(table.path)

    with pytest.raises(StalePlanError, match="the settings ask for mode"):
        execute(replace(chain, table=chain.table.model_copy(update=now)), report)

    assert tree(table.path) == before


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("field", ["version", "planned_ms", "files"])
@pytest.mark.parametrize("branch", list(BRANCHES))
def test_a_plan_whose_summary_was_edited_is_refused(
    table: TableBuilder, tmp_path: Path, branch: str, field: str
) -> None:
    of, plan, execute, dataset = BRANCHES[branch]
    chain = of(table.path, tmp_path / "out")
    report = plan(chain)
    summary = getattr(report, dataset).location.file("summary.json")
    told = json.loads(summary.read_text())
    told["plan"][field] += 1
    summary.write_text(json.dumps(told))
    before = tree(table.path)

    with pytest.raises(StalePlanError, match=r"fields of plan .* are not those"):
        execute(chain, report)

    assert tree(table.path) == before
