"""``maintenance.yaml``: schema; an invalid file is refused with line and nearest key."""

from __future__ import annotations

import difflib
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from maint_assets.config_values import Age, Duration, Place, RowExtent, Size
from maint_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9_]+")
_S3 = re.compile(r"s3[an]?://([^/]+)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)

DEFAULT_CONFIG = "maintenance.yaml"


def milliseconds(length: timedelta) -> int:
    """A length of time in whole milliseconds."""
    return length // timedelta(milliseconds=1)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VacuumSettings(_Model):
    """How a table is vacuumed; ``retention`` None means the table's own."""

    retention: Duration | None = None
    allow_short_retention: bool = False
    mode: Literal["full", "lite", "inventory"] = "full"
    inventory: str | None = Field(default=None, min_length=1)
    approval: Literal["manual", "auto"] = "manual"
    max_delete_share: float = Field(default=0.5, ge=0, le=1)
    max_delete_files: int | None = Field(default=None, ge=0)
    plan_max_age: Age = timedelta(hours=24)
    log_commits: bool = True
    allow_missing_files: bool = False
    allow_clock_skew: bool = False

    @model_validator(mode="after")
    def _inventory_fits_the_mode(self) -> VacuumSettings:
        if (self.mode == "inventory") != (self.inventory is not None):
            raise ValueError("mode inventory and an inventory go together")
        return self


class CompactionSettings(_Model):
    """How a table's files are rewritten; ``min_file_size`` None means half of the target."""

    target_file_size: Size = 256 << 20
    min_file_size: Size | None = None
    max_deleted_rows_ratio: float = Field(default=0.05, ge=0, le=1)
    purge: bool = False
    where: str | None = None
    zorder_by: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    full: bool = False
    approval: Literal["manual", "auto"] = "manual"
    plan_max_age: Age = timedelta(hours=24)
    max_bytes_per_run: Size | None = None
    max_bytes_per_commit: Size = 64 << 30
    allow_clock_skew: bool = False
    verify_rows: RowExtent = "sampled"

    @model_validator(mode="after")
    def _sizes_fit(self) -> CompactionSettings:
        if self.min_file_size is not None and self.min_file_size > self.target_file_size:
            raise ValueError("min_file_size is larger than target_file_size")
        if self.purge and (self.zorder_by or self.full):
            raise ValueError("a purge keeps rows in their order: leave out zorder_by and full")
        return self


class LogCleanupSettings(_Model):
    """How a table's log is cleaned; ``retention`` None means the table's own.

    ``force`` cleans although ``delta.enableExpiredLogCleanup`` is false.
    """

    retention: Duration | None = None
    allow_short_retention: bool = False
    mode: Literal["protocol", "spark"] = "protocol"
    granularity: Literal["day", "hour", "minute"] = "day"
    create_anchor_checkpoint: bool = False
    min_keep_version: int | None = Field(default=None, ge=0)
    force: bool = False
    approval: Literal["manual", "auto"] = "manual"
    plan_max_age: Age = timedelta(hours=24)
    allow_clock_skew: bool = False

    @model_validator(mode="after")
    def _mode_fits(self) -> LogCleanupSettings:
        is_ours = self.create_anchor_checkpoint or self.min_keep_version is not None
        if self.mode == "spark" and is_ours:
            raise ValueError("mode spark has no create_anchor_checkpoint and no min_keep_version")
        return self


def _variable_name(text: object) -> object:
    """The name of ``$NAME`` or ``${NAME}``. Raises ValueError, which must not show the text."""
    match = _VARIABLE.fullmatch(text) if isinstance(text, str) else None
    if text is not None and match is None:
        raise ValueError("give the name of an environment variable, $NAME: no secret belongs here")
    return None if match is None else match[1] or match[2]


VariableName = Annotated[
    str | None,
    BeforeValidator(_variable_name),
    PlainSerializer(lambda name: None if name is None else f"${{{name}}}"),
    WithJsonSchema({"type": "string", "pattern": r"^\$(\w+|\{[^}]*\})$"}),
]


class CredentialSettings(_Model):
    """Credentials for an object store; by default those of the environment.

    ``access_key_id``, ``secret_access_key`` and ``session_token`` are names of environment
    variables, which the driver and each executor must have. ``anonymous`` signs no request.
    """

    access_key_id: VariableName = None
    secret_access_key: VariableName = None
    session_token: VariableName = None
    anonymous: bool = False

    @model_validator(mode="after")
    def _is_one_way(self) -> CredentialSettings:
        key, secret = self.access_key_id is not None, self.secret_access_key is not None
        if key != secret or (self.session_token is not None and not key):
            raise ValueError("access_key_id and secret_access_key go together")
        if self.anonymous and key:
            raise ValueError("either anonymous or an access key")
        return self


def _credentials(value: object) -> object:
    """The settings that a word stands for."""
    if value is None or value == "environment":
        return {}
    return {"anonymous": True} if value == "anonymous" else value


Credentials = Annotated[
    CredentialSettings,
    BeforeValidator(
        _credentials,
        json_schema_input_type=Literal["environment", "anonymous"] | CredentialSettings | None,
    ),
]


CommitSetting = Literal["conditional", "exclusive"]


class StorageSettings(_Model):
    """How the object store of a table is reached; what is not set is taken from the environment.

    ``kms_key_id`` is the key for ``encryption`` of new objects by ``aws:kms``. ``commit`` says who
    else writes the table: ``conditional``, only writers that never overwrite a commit;
    ``exclusive``, nobody while we do. Without it a VACUUM commits nothing, and a rewrite only if
    all recent commits are of writers known to be conditional.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    requester_pays: bool = False
    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    kms_key_id: str | None = None
    commit: CommitSetting | None = None
    credentials: Credentials = CredentialSettings()

    @model_validator(mode="after")
    def _is_complete(self) -> StorageSettings:
        if self.endpoint is not None and not re.match(r"https?://[^@/]+/?$", self.endpoint):
            raise ValueError("endpoint reads like 'https://host:port', without a user")
        if self.kms_key_id is not None and not (self.encryption or "").startswith("aws:kms"):
            raise ValueError("kms_key_id goes with encryption aws:kms or aws:kms:dsse")
        return self


class TableSettings(_Model):
    """One table: its name in keys and the UI, where it lies, and what is done to it."""

    name: str
    uri: Place
    depends_on: tuple[str, ...] = ()
    vacuum: VacuumSettings = VacuumSettings()
    compaction: CompactionSettings = CompactionSettings()
    log_cleanup: LogCleanupSettings = LogCleanupSettings()
    storage: StorageSettings = StorageSettings()
    schedule: str | None = None
    owners: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _name_fits_dagster(self) -> TableSettings:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a table name has letters, digits and _, not '{self.name}'")
        return self


_MODELS: dict[str, type[BaseModel]] = {
    "tables": TableSettings,
    "vacuum": VacuumSettings,
    "compaction": CompactionSettings,
    "log_cleanup": LogCleanupSettings,
    "storage": StorageSettings,
    "credentials": CredentialSettings,
}


class Maintenance(_Model):
    """The whole config: workspace, Spark settings, and the tables with defaults applied."""

    workspace: Place = "./.maint"
    key_prefix: tuple[str, ...] = ("maintenance",)
    spark: dict[str, str] = Field(default_factory=dict)
    tables: tuple[TableSettings, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Maintenance:
        names = [table.name.lower() for table in self.tables]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tables have the name '{name}'")
        return self

    def table(self, name: str) -> TableSettings:
        """The table of that name; ConfigError when there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        near = difflib.get_close_matches(name, [table.name for table in self.tables], 1)
        raise ConfigError(
            "config",
            f"there is no table '{name}'",
            f"did you mean '{near[0]}'?" if near else "see the names under tables:",
        )


def json_schema() -> dict[str, Any]:
    """The JSON schema of the config, for editors; ``docs/maintenance.schema.json`` is its copy."""
    schema = Maintenance.model_json_schema()
    table = schema["$defs"]["TableSettings"]
    optional = {name: value for name, value in table["properties"].items() if name != "name"}
    schema["properties"]["defaults"] = {
        "type": "object",
        "additionalProperties": False,
        "description": "What holds for each table that does not say otherwise.",
        "properties": optional,
    }
    return schema


def load(path: str | Path) -> Maintenance:
    """The config in a YAML file; relative paths in it are relative to the file.

    Raises ConfigError naming file, line and the nearest known key.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(str(path), f"cannot be read ({why})", "give a config file") from None
    return parse(text, source=str(path), base=file.resolve().parent)


def parse(text: str, *, source: str, base: Path) -> Maintenance:
    """The config in a YAML text; ``source`` names it in errors."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values: Any = yaml.safe_load(text) or {}
        again = _repeated(node)
    except RecursionError:
        found = "is nested too deeply, or an alias in it refers to itself"
        raise ConfigError(source, found, "write it out plainly") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(source, f"is not YAML{line}", "correct the YAML syntax") from None
    if not isinstance(values, dict):
        raise ConfigError(source, "is not a mapping of keys", "see docs/config.md")
    if again is not None:
        where = f"{source}:{again.start_mark.line + 1}"
        raise ConfigError(where, f"the key '{again.value}' is duplicated", "keep one of them")
    if not isinstance(values.get("defaults") or {}, dict):
        where = f"{source}:{_line(node, ('defaults',))}"
        raise ConfigError(where, "defaults: should be a mapping of keys", "correct that value")
    try:
        settings = Maintenance.model_validate(with_defaults(values))
    except ValidationError as error:
        raise _config_error(error, source=source, node=node) from None
    return resolved(settings, base, source=source)


def with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """The values with ``defaults`` merged into each table; a table's own keys win."""
    rest = {key: value for key, value in values.items() if key != "defaults"}
    defaults = values.get("defaults") or {}
    if isinstance(defaults, dict) and isinstance(rest.get("tables"), list):
        rest["tables"] = [
            _merged(defaults, table) if isinstance(table, dict) else table
            for table in rest["tables"]
        ]
    return rest


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        merged[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return merged


def resolved(settings: Maintenance, base: Path, *, source: str) -> Maintenance:
    """The settings with environment variables expanded and relative paths below ``base``."""
    tables = tuple(
        _with_spark_storage(
            table.model_copy(update={"uri": _absolute(table.uri, base, source=source)}),
            settings.spark,
        )
        for table in settings.tables
    )
    workspace = _absolute(settings.workspace, base, source=source)
    return settings.model_copy(update={"workspace": workspace, "tables": tables})


def _with_spark_storage(table: TableSettings, spark: Mapping[str, str]) -> TableSettings:
    """The table with ``spark.hadoop.fs.s3a.*`` for what its ``storage`` leaves open; no secrets."""
    match, own = _S3.match(table.uri), table.storage
    if match is None:
        return table

    def of_spark(key: str) -> str | None:
        of_bucket = spark.get(f"spark.hadoop.fs.s3a.bucket.{match[1]}.{key}")
        return spark.get(f"spark.hadoop.fs.s3a.{key}") if of_bucket is None else of_bucket

    endpoint, style = of_spark("endpoint"), of_spark("path.style.access")
    if endpoint and "://" not in endpoint:
        is_plain = of_spark("connection.ssl.enabled") == "false"
        endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
    values = {
        "endpoint": endpoint or None,
        "region": of_spark("endpoint.region"),
        "path_style": None if style is None else style == "true",
        "requester_pays": of_spark("requester.pays.enabled") == "true" or None,
    }
    unset = {name for name in values if name not in own.model_fields_set}
    found = {name: values[name] for name in unset if values[name] is not None}
    return table.model_copy(update={"storage": own.model_copy(update=found)}) if found else table


def _absolute(uri: str, base: Path, *, source: str) -> str:
    for plain, braced in _VARIABLE.findall(uri):
        if (plain or braced) not in os.environ:
            found = f"the environment variable {plain or braced} is not set"
            raise ConfigError(source, found, f"set it, or correct '{uri}'")
    expanded = os.path.expandvars(uri)
    if re.match(r"^[A-Za-z][A-Za-z0-9+.-]*:", expanded):
        return expanded
    try:
        return str(base / Path(expanded).expanduser())
    except RuntimeError:
        found = f"the home directory in '{uri}' is unknown"
        raise ConfigError(source, found, "give the whole path") from None


def _config_error(error: ValidationError, *, source: str, node: yaml.Node | None) -> ConfigError:
    found = error.errors()
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    place = first["loc"]
    line = _line(node, place)
    where = f"{source}:{line}" if line else source
    key = ".".join(str(part) for part in place) or "config"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(place[-1]), _known_keys(place), 1, 0.5)
        remedy = (
            f"did you mean '{near[0]}'?" if near else "known keys: " + ", ".join(_known_keys(place))
        )
        return ConfigError(where, f"unknown key '{place[-1]}'", remedy)
    message = first["msg"].removeprefix("Value error, ")
    return ConfigError(where, f"{key}: {message[0].lower()}{message[1:]}", "correct that value")


def _known_keys(place: tuple[int | str, ...]) -> list[str]:
    names = [part for part in place[:-1] if isinstance(part, str)]
    model: type[BaseModel] = _MODELS.get(names[-1] if names else "", Maintenance)
    return [*model.model_fields, *(["defaults"] if model is Maintenance else [])]


def _line(node: yaml.Node | None, place: tuple[int | str, ...]) -> int | None:
    """The line of a key; one that came from ``defaults`` is looked up there."""
    found = _find(node, place)
    if found is None and place[:1] == ("tables",):
        found = _find(node, ("defaults", *place[2:]))
    if found is None:
        found = _find(node, place[:-1])
    return None if found is None else found.start_mark.line + 1


def _repeated(node: yaml.Node | None) -> yaml.Node | None:
    """A key that its mapping already has: YAML would silently take the last one."""
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        keys = [key for key, _ in node.value]
        seen = [key.value for key in keys]
        below = [value for _, value in node.value]
        again = [key for at, key in enumerate(keys) if key.value in seen[:at]]
        if again:
            return again[0]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    return next((key for key in map(_repeated, below) if key is not None), None)


def _find(node: yaml.Node | None, place: tuple[int | str, ...]) -> yaml.Node | None:
    at = node
    for index, part in enumerate(place):
        if isinstance(at, yaml.MappingNode):
            pair = next((p for p in at.value if p[0].value == part), None)
            if pair is None:
                return None
            at = pair[0] if index == len(place) - 1 else pair[1]
        elif isinstance(at, yaml.SequenceNode) and isinstance(part, int):
            at = at.value[part]
        else:
            return None
    return at
