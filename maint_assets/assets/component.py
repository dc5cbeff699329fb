"""The chains as a Dagster component: the keys of ``maintenance.yaml`` in a ``defs.yaml``."""

from collections.abc import Sequence
from typing import Annotated, Any

import dagster as dg
from pydantic import ConfigDict, create_model

from maint_assets import config
from maint_assets.assets.jobs import build_table_definitions
from maint_assets.config import TableSettings

_SHARED: dict[str, Any] = {
    name: (field.annotation, field)
    for name, field in TableSettings.model_fields.items()
    if name not in {"name", "uri"}
}

TableDefaults = create_model(
    "TableDefaults",
    __config__=ConfigDict(frozen=True, extra="forbid"),
    __doc__="Defaults for every table of the component.",
    **_SHARED,
)


def _rendered(context: dg.ResolutionContext, model: Any) -> Any:
    """A model with its templates rendered; keys that were not set remain unset."""
    return type(model)(**context.resolve_value(model.model_dump(exclude_unset=True)))


def _rendered_tables(context: dg.ResolutionContext, tables: Sequence[Any]) -> list[Any]:
    return [_rendered(context, table) for table in tables]


class DeltaMaintenanceComponent(dg.Component, dg.Resolvable, dg.Model):
    """Maintenance chains of Delta tables, each downstream of the assets in ``depends_on``.

    The project supplies the resource ``maintenance``, a ``maint_assets.StageStore``: where plans
    and ledgers are kept, and how Spark is started. Relative paths are relative to ``defs.yaml``.
    """

    # Any: Dagster accepts fewer types in a model than a config needs; the resolver's type counts.
    tables: Annotated[
        Sequence[Any],
        dg.Resolver(_rendered_tables, model_field_type=Sequence[TableSettings]),
    ]
    defaults: Annotated[Any, dg.Resolver(_rendered, model_field_type=TableDefaults)] = (
        TableDefaults()
    )
    key_prefix: Sequence[str] = ("maintenance",)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, jobs and schedules of the tables, without executor and resources."""
        values = {
            "defaults": self.defaults.model_dump(exclude_unset=True),
            "tables": [table.model_dump(exclude_unset=True) for table in self.tables],
            "key_prefix": self.key_prefix,
        }
        settings = config.Maintenance.model_validate(config.with_defaults(values))
        settings = config.resolved(settings, context.path, source=str(context.path))
        return build_table_definitions(settings, get_asset_spec=self.get_asset_spec)

    def get_asset_spec(self, spec: dg.AssetSpec, table: TableSettings) -> dg.AssetSpec:
        """The spec of a stage; a subclass may change group, owners, tags and automation."""
        return spec
