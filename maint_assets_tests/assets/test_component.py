"""The chain as a component of a Dagster project."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

import maint_assets
from maint_assets import DeltaMaintenanceComponent, StageStore
from maint_assets.assets.spark_resource import spark_resource

# This call is Dagster's.
pytestmark = pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated")

TABLES = """
tables:
  - {name: orders, uri: "{{ env.LAKE }}/orders", depends_on: [raw/orders]}
  - {name: events, uri: lake/events, vacuum: {approval: auto}}
defaults:
  schedule: "0 3 * * *"
  vacuum: {retention: 8 days}
"""


def component(text: str) -> DeltaMaintenanceComponent:
    return DeltaMaintenanceComponent.resolve_from_yaml(text)


def definitions(found: DeltaMaintenanceComponent) -> dg.Definitions:
    return found.build_defs(dg.ComponentTree.for_test().load_context)


def project(*parts: dg.Definitions) -> dg.Definitions:
    store = StageStore(base_uri="/out", pyspark=spark_resource({}))
    return dg.Definitions.merge(*parts, dg.Definitions(resources={"maintenance": store}))


def test_attributes_are_the_keys_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")

    found = component(TABLES)

    assert [table.uri for table in found.tables] == ["s3://lake/orders", "lake/events"]
    assert found.tables[1].vacuum.approval == "auto"


@pytest.mark.parametrize(
    "defaults",
    [
        "compaction: {approval: auto}",
        "log_cleanup: {min_keep_version: 3}",
        "storage: {credentials: {access_key_id: $K, secret_access_key: $S}}",
    ],
)
def test_defaults_have_the_keys_of_a_table(defaults: str) -> None:
    found = component(f"tables: [{{name: a, uri: 's3://b/a'}}]\ndefaults: {{{defaults}}}")

    dg.Definitions.validate_loadable(project(definitions(found)))


def test_credentials_are_names_of_variables_in_a_component_too() -> None:
    keys = "credentials: {access_key_id: $K, secret_access_key: '${S}'}"
    found = component(f"tables: [{{name: a, uri: 's3://b/a', storage: {{{keys}}}}}]")

    (table,) = found.tables
    names = table.storage.credentials
    assert (names.access_key_id, names.secret_access_key) == ("K", "S")
    with pytest.raises(Exception, match="no secret belongs here"):
        component(f"tables: [{{name: a, uri: x, storage: {{{keys.replace('$K', 'AKIA')}}}}}]")


def test_definitions_have_neither_executor_nor_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")

    defs = definitions(component(TABLES))

    assert defs.executor is None
    assert not defs.resources
    assert {job.name for job in defs.jobs or ()} == {"maintenance_plan", "maintenance_execute"}
    (schedule,) = defs.schedules or ()
    assert schedule.name.startswith("maintenance_0_3_any_any_any_")


def test_two_components_with_other_prefixes_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")
    both = [definitions(component(TABLES + f"\nkey_prefix: [{name}]")) for name in ("a", "b")]

    merged = project(*both)

    dg.Definitions.validate_loadable(merged)
    assert merged.resolve_asset_graph().get(dg.AssetKey(["b", "events", "diff"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: [{name: a, url: a}]", "url"),
        ("tables: [{name: a, uri: a, vacuum: {retention: soon}}]", "a duration reads like"),
        ("tables: [{name: a, uri: a}]\ndefaults: {vacuum: {aproval: auto}}", "aproval"),
        ("tables: [{name: a, uri: a}]\nworkspace: x", "workspace"),
    ],
)
def test_a_wrong_attribute_is_refused(text: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        component(text)


def test_a_defs_yaml_is_loaded_with_the_defaults_merged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=DeltaMaintenanceComponent)
        (path / "defs.yaml").write_text(
            "type: maint_assets.DeltaMaintenanceComponent\nattributes:"
            + TABLES.replace("\n", "\n  ")
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (found, defs):
            graph = project(defs).resolve_asset_graph()

    assert isinstance(found, DeltaMaintenanceComponent)
    events = graph.get(dg.AssetKey(["maintenance", "events", "diff"]))
    assert events.group_name == "events"
    snapshot = graph.get(dg.AssetKey(["maintenance", "events", "snapshot"]))
    assert snapshot.metadata["dagster/uri"].endswith("/lake/events")
    assert Path(snapshot.metadata["dagster/uri"]).is_absolute()


def test_a_subclass_changes_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owned(DeltaMaintenanceComponent):
        def get_asset_spec(
            self, spec: dg.AssetSpec, table: maint_assets.TableSettings
        ) -> dg.AssetSpec:
            return spec.replace_attributes(owners=[f"team:{table.name}"])

    monkeypatch.setenv("LAKE", "s3://lake")

    graph = project(definitions(Owned.resolve_from_yaml(TABLES))).resolve_asset_graph()

    assert graph.get(dg.AssetKey(["maintenance", "orders", "diff"])).owners == ["team:orders"]


def test_importing_the_package_costs_nothing() -> None:
    code = (
        "import sys, maint_assets, maint_assets.errors; "
        "print([m for m in ('dagster', 'pyspark') if m in sys.modules])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


def test_a_name_that_is_not_exported_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = maint_assets.nothing


@pytest.mark.slow
def test_dg_lists_the_component() -> None:
    dg_command = Path(sys.executable).with_name("dg")

    found = subprocess.run(
        [dg_command, "list", "components", "--json"], capture_output=True, text=True, check=False
    )

    assert "maint_assets.DeltaMaintenanceComponent" in found.stdout, found.stderr
