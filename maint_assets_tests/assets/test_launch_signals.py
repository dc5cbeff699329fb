"""A signal that Dagster ignores at the end of a run stops the launcher all the same."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from maint_assets.assets import factory
from maint_assets.assets.chain import STAGES
from maint_assets.assets.launch_signals import recorded_signals
from maint_assets.assets.stage_run import StageRun
from maint_assets.assets.stage_store import Dataset, StageResult
from maint_assets.cli.launcher import Launched, Launcher
from maint_assets.config import CompactionSettings, Maintenance, TableSettings
from maint_assets.errors import StoppedError
from maint_assets_tests.support.stepping import Nothing, idle

TABLE = TableSettings(name="t", uri="/nowhere", compaction=CompactionSettings(approval="auto"))


@pytest.fixture
def unheard() -> Iterator[None]:
    """Ignore the signals of this process, as Dagster does between two stages."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    def worked(run: StageRun, *_: Any) -> StageResult:
        return run.result(Dataset(0, "digest", {}), Nothing())

    stages = {name: idle(stage, worked) for name, stage in STAGES.items()}
    monkeypatch.setattr(factory, "STAGES", stages)
    settings = Maintenance(workspace=str(tmp_path), tables=(TABLE,))
    return Launcher(settings, dg.DagsterInstance.ephemeral())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("unheard")
def test_a_signal_that_another_handler_forgets_is_signalled(number: signal.Signals) -> None:
    with recorded_signals() as is_signalled:
        assert not is_signalled()
        os.kill(os.getpid(), number)
        assert is_signalled()
        assert is_signalled()


def test_a_hangup_is_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGHUP)

    with recorded_signals():
        pass

    assert signal.getsignal(signal.SIGHUP) == before


def _planned(launcher: Launcher) -> Launched:
    return launcher.plan(TABLE, "compaction", stages=["snapshot", "compaction_bins"])


@pytest.mark.usefixtures("unheard")
def test_a_plan_at_whose_end_a_signal_came_is_not_executed(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    materialize = dg.materialize

    def interrupted(*args: Any, **kwargs: Any) -> dg.ExecuteInProcessResult:
        found = materialize(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(dg, "materialize", interrupted)

    found = _planned(launcher)

    assert isinstance(found.error, StoppedError)
    assert "interrupted at its end" in str(found.error)


@pytest.mark.usefixtures("unheard")
def test_a_plan_without_a_signal_has_no_error(launcher: Launcher) -> None:
    assert _planned(launcher).error is None
