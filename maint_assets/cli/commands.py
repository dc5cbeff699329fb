"""The command line: parse, call one function, print. Plans by default; ``--execute`` acts."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from maint_assets import config
from maint_assets.errors import ConfigError, MaintError

if TYPE_CHECKING:
    from maint_assets.cli.tables import Consent

out, err = Console(highlight=False), Console(stderr=True, highlight=False)

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
_paths = click.option("--paths", is_flag=True, help="List every planned path.")
_execute = click.option("--execute", is_flag=True, help="Execute the plan; without it, only plan.")
_yes = click.option("--yes", is_flag=True, help="Do not ask: you agree to the plan.")
_workspace = click.option(
    "--workspace", default="./.maint", show_default=True, help="Where plans and ledgers are kept."
)
_at_once = click.option("--execute", "--yes", "_at_once", is_flag=True, hidden=True)
"""Accepted and ignored: ``checkpoint`` acts at once, but people and scripts pass them."""

_OPTIONS = {
    "--target-file-size": "--target-size",
    "--compaction": "--min-size",
    "--log-cleanup": "--mode",
}
"""Options that are named otherwise than their key in the config."""

_NAME_LENGTH = 100
"""A table's name is a directory in the workspace: shorter than 255 bytes with its hash."""

_config_file = click.argument("config_file", default=config.DEFAULT_CONFIG)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show logs and tracebacks.")
@click.version_option(package_name="maint-assets")
def cli(debug: bool) -> None:  # noqa: FBT001
    """Maintain Delta tables: VACUUM, OPTIMIZE and log cleanup, planned first, then executed."""
    logging.basicConfig(level=logging.DEBUG if debug else logging.ERROR, stream=sys.stderr)
    os.environ["MAINT_ASSETS_DEBUG"] = "1" if debug else ""


@cli.command()
@click.argument("table_uri")
@click.option("--retention", help='How long removed files are kept, such as "7 days".')
@click.option("--allow-short-retention", is_flag=True, help="Allow less than the table promises.")
@click.option(
    "--mode",
    type=click.Choice(["full", "lite", "inventory"]),
    help="Take candidates from a listing of all files, from the log, or from an inventory.",
)
@click.option(
    "--allow-missing-files",
    is_flag=True,
    help="Execute even if live files of the table are missing.",
)
@click.option("--inventory", help="A Parquet or Delta path, or a Spark table; see docs/vacuum.md.")
@_execute
@_yes
@_paths
@_json
@_workspace
def vacuum(table_uri: str, workspace: str, **options: Any) -> None:
    """Delete the files that no retained version of a table needs; only plan without --execute."""
    from maint_assets.cli.vacuum import execute_vacuum, plan_vacuum, show_done, show_plan

    asked = {name: options[name] for name in ("allow_short_retention", "allow_missing_files")}
    given = ("retention", "mode", "inventory")
    asked |= {name: options[name] for name in given if options[name] is not None}
    if options["inventory"] is not None:
        asked.setdefault("mode", "inventory")
    settings, table = _one_table(table_uri, workspace, vacuum=asked)
    steps = _Steps(plan_vacuum, show_plan, execute_vacuum, show_done)
    _maintain(settings, table, steps, options=options)


@cli.command()
@click.argument("table_uri")
@click.option("--where", help="Rewrite only partitions that match this Spark SQL predicate.")
@click.option(
    "--purge", is_flag=True, help="Rewrite only the files with deleted rows or dropped columns."
)
@click.option("--zorder-by", help="Z-order rows by these columns, separated by commas.")
@click.option(
    "--full", is_flag=True, help="Order all files again, also those that were ordered before."
)
@click.option("--target-size", help="Size of the new files, such as 256MB.")
@click.option("--min-size", help="Merge files smaller than this; by default half of the target.")
@click.option("--max-bytes", help="Rewrite at most this much; the rest is left to the next run.")
@click.option(
    "--verify-rows",
    type=click.Choice(["off", "sampled", "full"]),
    help="For how many bins rows are compared before the commit; by default sampled.",
)
@_execute
@_yes
@_paths
@_json
@_workspace
def optimize(table_uri: str, workspace: str, **options: Any) -> None:
    """Rewrite many small files into few large ones; only plan without --execute."""
    from maint_assets.cli.compaction import (
        execute_compaction,
        plan_compaction,
        show_bins,
        show_rewritten,
    )
    from maint_assets.compaction.ordering.order import listed_names

    keys = {
        "where": "where",
        "target_size": "target_file_size",
        "min_size": "min_file_size",
        "max_bytes": "max_bytes_per_run",
        "verify_rows": "verify_rows",
    }
    asked = {key: options[name] for name, key in keys.items() if options[name] is not None}
    asked |= {"purge": options["purge"], "full": options["full"]}
    if options["zorder_by"] is not None:
        asked["zorder_by"] = listed_names(options["zorder_by"])
    settings, table = _one_table(table_uri, workspace, compaction=asked)
    steps = _Steps(plan_compaction, show_bins, execute_compaction, show_rewritten)
    _maintain(settings, table, steps, options=options)


@cli.command("clean-log")
@click.argument("table_uri")
@click.option("--retention", help='How long versions are kept, such as "30 days".')
@click.option("--allow-short-retention", is_flag=True, help="Allow less than the table promises.")
@click.option(
    "--mode",
    type=click.Choice(["protocol", "spark"]),
    help="Follow the Delta protocol, or do exactly as delta-spark; by default protocol.",
)
@click.option(
    "--granularity",
    type=click.Choice(["day", "hour", "minute"]),
    help="Round the cutoff down to a whole unit, in UTC; by default day.",
)
@click.option(
    "--create-anchor-checkpoint",
    is_flag=True,
    help="If no checkpoint is as old as the cutoff, write one first.",
)
@click.option("--min-keep-version", type=int, help="Keep this version and all later ones readable.")
@click.option("--force", is_flag=True, help="Clean even if a property of the table disables it.")
@_execute
@_yes
@_paths
@_json
@_workspace
def clean_log(table_uri: str, workspace: str, **options: Any) -> None:
    """Delete the log files that no retained version needs; only plan without --execute."""
    from maint_assets.cli.log_cleanup import (
        execute_log_cleanup,
        plan_log_cleanup,
        show_deleted,
        show_expired,
    )

    names = ("retention", "mode", "granularity", "min_keep_version")
    asked = {name: options[name] for name in names if options[name] is not None}
    flags = ("allow_short_retention", "create_anchor_checkpoint", "force")
    asked |= {name: options[name] for name in flags}
    settings, table = _one_table(table_uri, workspace, log_cleanup=asked)
    steps = _Steps(plan_log_cleanup, show_expired, execute_log_cleanup, show_deleted)
    _maintain(settings, table, steps, options=options)


@cli.command()
@click.argument("table_uri")
@_json
@_workspace
def inspect(table_uri: str, workspace: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a table: version, files, features, and which operations are refused on it."""
    from maint_assets.cli.inspect import inspection, inspection_json, show_inspection

    settings, table = _one_table(table_uri, workspace)
    with _launcher(settings) as launcher:
        seen, _ = inspection(launcher, table)
    if as_json:
        _print_json(inspection_json(seen))
    else:
        show_inspection(out, seen)


@cli.command()
@click.argument("table_uri")
@_at_once
@_json
@_workspace
def checkpoint(table_uri: str, workspace: str, as_json: bool, **_: Any) -> None:  # noqa: FBT001
    """Write a checkpoint of the newest version at once; no file is deleted."""
    from maint_assets.cli import checkpoint as checkpoint_report

    settings, table = _one_table(table_uri, workspace)
    with _launcher(settings) as launcher:
        report = checkpoint_report.checkpoint(launcher, table)
    if as_json:
        _print_json(report.json())
    else:
        checkpoint_report.show_checkpoint(out, report)


@cli.command()
@_config_file
@click.option("--table", "names", multiple=True, help="Only this table; may be repeated.")
@click.option("--only", multiple=True, type=click.Choice(["vacuum", "compaction", "log_cleanup"]))
@_execute
@_yes
@_paths
@_json
def run(config_file: str, names: tuple[str, ...], only: tuple[str, ...], **options: Any) -> None:
    """Maintain the tables of a config; only plan without --execute."""
    from maint_assets.assets.chain import CHAINS, Branch
    from maint_assets.assets.workspace import refuse_same_location, refuse_workspace
    from maint_assets.cli.tables import TableReport, run_tables, show_tables

    settings = config.load(config_file)
    refuse_workspace(settings.workspace, settings.tables, source=config_file)
    refuse_same_location(settings.tables, source=config_file)
    tables = [settings.table(name) for name in dict.fromkeys(names)] or list(settings.tables)
    if not tables:
        raise ConfigError(config_file, "names no tables", "add one under tables:")
    branches: list[Branch] = [branch for branch in CHAINS if not only or branch in only]
    reports: dict[str, TableReport] = {}
    consent = partial(_consent, options=options)
    try:
        with _launcher(settings) as launcher:
            run_tables(
                launcher,
                tables,
                reports,
                branches=branches,
                execute=options["execute"],
                consent=consent,
            )
    finally:  # whatever ended it: what was executed until then is told
        if options["as_json"] and reports:
            _print_json({"tables": {n: r.json(paths=options["paths"]) for n, r in reports.items()}})
        elif reports:
            show_tables(out, reports, paths=options["paths"])
    codes = [error.exit_code for report in reports.values() for error in report.errors.values()]
    if codes:
        sys.exit(1 if 1 in codes else codes[0])


@cli.command()
@_config_file
@_json
def check(config_file: str, as_json: bool) -> None:  # noqa: FBT001
    """Validate a config without touching any table."""
    from maint_assets.assets.jobs import refuse_unloadable
    from maint_assets.assets.workspace import refuse_same_location, refuse_workspace

    settings = config.load(config_file)
    refuse_workspace(settings.workspace, settings.tables, source=config_file)
    refuse_same_location(settings.tables, source=config_file)
    refuse_unloadable(settings, config=config_file)
    names = [table.name for table in settings.tables]
    if as_json:
        _print_json({"config": config_file, "tables": names, "valid": True})
    else:
        shown = f": {config_file}, {len(names)} tables: {', '.join(names) or '-'}"
        out.print(Text.assemble(("valid", "green"), shown))


@cli.command()
@click.option("--directory", default=".demo", show_default=True, help="Directory of the lake.")
def demo(directory: str) -> None:
    """Make a small lake of real Delta tables, maintain it, and show what was done and why."""
    from maint_assets.cli.demo import show_demo

    if not directory.strip():
        raise ConfigError("--directory", "is empty", "name a new or empty directory")
    show_demo(out, Path(directory), launcher=_launcher)


def main() -> None:
    """Run the command line. Each error is one sentence on stderr, and an exit code."""
    debug = "--debug" in sys.argv
    _show_any_name()
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        _fail("stopped; nothing more was done", 1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except MaintError as error:
        if debug:
            raise
        _fail(str(error), error.exit_code)
    except Exception as error:
        if debug:
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        _fail(f"{type(error).__name__}: {first}; run again with --debug for the traceback", 1)


def _show_any_name() -> None:
    """Print names that the encoding of the terminal lacks with escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fail(sentence: str, code: int) -> None:
    err.print(Text.assemble(("error", "red"), f": {sentence}"), soft_wrap=True)
    sys.exit(code)


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value))


def _one_table(
    uri: str, workspace: str, **asked: dict[str, Any]
) -> tuple[config.Maintenance, config.TableSettings]:
    """Settings for one table without a config: its name is made from its location."""
    from maint_assets.assets.workspace import refuse_workspace
    from maint_assets.storage.location import Location

    path = Location.of(uri).uri
    mark = hashlib.sha256(path.encode()).hexdigest()[:8]
    name = re.sub(r"\W", "_", Path(path).name, flags=re.ASCII)[:_NAME_LENGTH] + f"_{mark}"
    try:
        table = config.TableSettings.model_validate({"name": name, "uri": path, **asked})
    except ValidationError as error:
        first = error.errors()[0]
        key = next(str(part) for part in reversed(first["loc"]) if isinstance(part, str))
        option = "--" + key.replace("_", "-")
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(_OPTIONS.get(option, option), message, "correct that value") from None
    refuse_workspace(workspace, [table], source=path)
    place = Location.of(workspace).path
    return config.Maintenance(workspace=place, tables=(table,)), table


class _Steps(NamedTuple):
    """The functions of a branch for one table: plan and execute it, show the outcome of each."""

    plan: Callable[..., Any]
    show_plan: Callable[..., None]
    execute: Callable[..., Any]
    show_done: Callable[..., None]


def _maintain(
    settings: config.Maintenance,
    table: config.TableSettings,
    steps: _Steps,
    *,
    options: dict[str, Any],
) -> None:
    """Plan one table and, with ``--execute`` and consent, execute the plan; raises its error."""
    with _launcher(settings) as launcher:
        report = steps.plan(launcher, table)
        if not options["as_json"]:
            steps.show_plan(out, report, paths=options["paths"])
        if options["execute"] and (given := _consent(report, options)).is_given:
            report = steps.execute(launcher, table, report, by=given.by)
            if not options["as_json"]:
                steps.show_done(out, report)
    if options["as_json"]:
        _print_json(report.json(paths=options["paths"]))
    if report.error is not None:
        raise report.error


@contextlib.contextmanager
def _launcher(settings: config.Maintenance) -> Iterator[Any]:
    """A launcher that shows the progress of stages; Spark's own output goes to a file."""
    from maint_assets.cli.console import progress, quiet_session
    from maint_assets.cli.launcher import launcher
    from maint_assets.storage.location import Location

    with launcher(settings) as found:
        if not os.environ.get("MAINT_ASSETS_DEBUG"):
            with err.status("starting Spark"):
                quiet_session(found.store, Path(Location.of(settings.workspace).path))
        found.around = lambda: progress(err)
        yield found


def _consent(report: Any, options: dict[str, Any]) -> Consent:
    """Ask whether to execute the plan. ``--yes`` is a consent; nobody is asked without a terminal.

    Then the limits of unattended deletions apply.
    """
    from maint_assets.cli.tables import Consent

    if options["yes"]:
        return Consent(is_given=True, by=_user())
    if options["as_json"] or not sys.stdin.isatty() or report.is_empty:
        return Consent(is_given=True)
    return Consent(is_given=click.confirm(report.question, err=True), by=_user())


def _user() -> str:
    """The name of the person who runs the command, or the number of an account without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError before Python 3.13
        return f"uid {os.getuid()}"
