"""The config file: what it accepts, and the errors for everything else."""

import textwrap
from datetime import timedelta
from pathlib import Path

import pytest

from maint_assets import config
from maint_assets.errors import ConfigError


def parsed(text: str, base: Path = Path("/lake")) -> config.Maintenance:
    return config.parse(textwrap.dedent(text), source="m.yaml", base=base)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parsed(text)
    return str(raised.value)


def test_milliseconds_are_whole_and_exact() -> None:
    assert config.milliseconds(timedelta(days=7)) == 604_800_000
    assert config.milliseconds(timedelta(days=1, milliseconds=1)) == 86_400_001


def test_an_empty_config_has_defaults_and_no_tables() -> None:
    found = parsed("")

    assert found == config.Maintenance(workspace="/lake/.maint")


def test_a_table_without_vacuum_keys_waits_for_approval_with_its_own_retention() -> None:
    table = parsed("tables: [{name: orders, uri: orders}]").tables[0]

    assert table.vacuum == config.VacuumSettings()
    assert (table.vacuum.approval, table.vacuum.retention) == ("manual", None)


def test_defaults_are_merged_key_by_key_and_a_table_wins() -> None:
    found = parsed("""
        defaults:
          schedule: "0 3 * * *"
          vacuum: {approval: auto, retention: 30 days, max_delete_share: 0.1}
        tables:
          - {name: a, uri: a}
          - {name: b, uri: b, schedule: "0 4 * * *", vacuum: {retention: 8 days}}
    """)

    assert [table.schedule for table in found.tables] == ["0 3 * * *", "0 4 * * *"]
    assert [table.vacuum.approval for table in found.tables] == ["auto", "auto"]
    assert [table.vacuum.retention for table in found.tables] == [
        timedelta(days=30),
        timedelta(days=8),
    ]
    assert found.table("b").vacuum.max_delete_share == 0.1


def test_a_null_of_a_table_undoes_the_default() -> None:
    found = parsed("""
        defaults: {schedule: "0 3 * * *", vacuum: {retention: 30 days}}
        tables: [{name: a, uri: a, schedule: null, vacuum: {retention: null}}]
    """)

    assert (found.tables[0].schedule, found.tables[0].vacuum.retention) == (None, None)


@pytest.mark.parametrize(
    ("text", "line", "near"),
    [
        ("workspce: x", 1, "workspace"),
        ("tabels: []", 1, "tables"),
        ("defualts: {}", 1, "defaults"),
        ("tables:\n- name: a\n  url: a", 3, "uri"),
        ("tables:\n- name: a\n  uri: a\n  vacuum:\n    retetion: 7 days", 5, "retention"),
        ("defaults:\n  vacuum:\n    aproval: auto\ntables:\n- {name: a, uri: a}", 3, "approval"),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_key(
    text: str, line: int, near: str
) -> None:
    message = refusal(text)

    assert message.startswith(f"m.yaml:{line}: unknown key '")
    assert message.endswith(f"did you mean '{near}'?")


def test_an_unknown_key_near_to_none_names_the_known_ones() -> None:
    assert "known keys: name, uri, depends_on" in refusal("tables: [{name: a, uri: a, xyz: 1}]")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("tables: 7", 1, "tables: "),
        ("tables:\n- 7", 2, "tables.0: "),
        ("tables:\n- uri: a", 2, "tables.0.name: field required"),
        ("tables:\n- name: a\n  uri: a\n  vacuum:\n    approval: yes", 5, "approval: "),
        ("tables:\n- name: a\n  uri: a\n  vacuum:\n    max_delete_share: 2", 5, "max_delete_share"),
        ("tables:\n- name: a\n  uri: a\n  vacuum:\n    retention: 7", 5, "a duration reads like"),
        ("tables:\n- name: a\n  uri: a\n  depends_on: raw/a", 4, "depends_on: "),
        ("workspace: x\ntables:\n- name: a b\n  uri: a", 3, "letters, digits and _, not 'a b'"),
        ("workspace: x\ndefaults: [1]", 2, "defaults: "),
        (
            "workspace: x\ndefaults: {vacuum: {mode: fast}}\ntables: [{name: a, uri: a}]",
            2,
            "mode: ",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    found = refusal(text)

    assert found.startswith(f"m.yaml:{line}: ")
    assert message in found


@pytest.mark.parametrize("second", ["orders", "ORDERS"])
def test_two_tables_of_one_name_are_refused(second: str) -> None:
    text = f"tables: [{{name: orders, uri: a}}, {{name: {second}, uri: b}}]"

    assert "two tables have the name 'orders'" in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML at line 1"),
        ("- 1", "not a mapping"),
        ("tables: !!python/name:os.x", "not YAML"),
    ],
)
def test_what_is_not_a_yaml_mapping_is_refused(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tables: &t\n- *t", "an alias in it refers to itself"),
        ("[" * 3_000, "nested too deeply"),
        ("workspace: ~nobody-here/x", "the home directory in '~nobody-here/x' is unknown"),
        ('workspace: "a\\0b"', "a location has no NUL character"),
        ('tables: [{name: a, uri: "a\\0b"}]', "a location has no NUL character"),
        (
            f"tables: [{{name: a, uri: a, compaction: {{target_file_size: {'9' * 400}GB}}}}]",
            "is too large",
        ),
        *(
            (f"tables: [{{name: a, uri: a, {branch}: {{plan_max_age: -1 hours}}}}]", "an age can't")
            for branch in ("vacuum", "compaction", "log_cleanup")
        ),
        ("tables: [{name: a, uri: a, compaction: {zorder_by: ['']}}]", "at least 1 character"),
        ("tables: [{name: a, uri: a, vacuum: {mode: inventory, inventory: ''}}]", "at least 1"),
    ],
)
def test_a_value_that_cannot_work_is_refused_in_a_sentence(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_repeated_key_is_refused_instead_of_one_being_ignored() -> None:
    message = refusal("workspace: a\ntables: []\nworkspace: b")

    assert message.startswith("m.yaml:3: ")
    assert "workspace" in message


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "maintenance.yaml"
    file.parent.mkdir()
    file.write_text("workspace: ../out\ntables: [{name: a, uri: lake/a}, {name: b, uri: /lake/b}]")

    found = config.load(file)

    assert Path(found.workspace).resolve() == tmp_path / "out"
    assert [table.uri for table in found.tables] == [str(tmp_path / "conf/lake/a"), "/lake/b"]


@pytest.mark.parametrize(
    "uri", ["s3://lake/a", "file:/lake/a", "abfss://c@a.dfs.core.windows.net/t"]
)
def test_uris_stay_as_they_are(uri: str) -> None:
    assert parsed(f"tables: [{{name: a, uri: '{uri}'}}]").tables[0].uri == uri


def test_environment_variables_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")
    monkeypatch.setenv("OUT", "/out")

    found = parsed("workspace: $OUT/maint\ntables: [{name: a, uri: '${LAKE}/a'}]")

    assert (found.workspace, found.tables[0].uri) == ("/out/maint", "s3://lake/a")


def test_an_environment_variable_that_is_not_set_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAKE", raising=False)

    message = refusal("workspace: x\ntables:\n- name: a\n  uri: ${LAKE}/a")

    assert "LAKE is not set" in message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        config.load(tmp_path / "none.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"m\.yaml"):
        config.load(tmp_path / "m.yaml")


def test_an_unknown_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="there is no table 'order'; did you mean 'orders'"):
        parsed("tables: [{name: orders, uri: a}]").table("order")


def test_a_config_error_is_a_usage_error() -> None:
    assert ConfigError.exit_code == 2


@pytest.mark.parametrize("extent", ["off", "'off'", "sampled", "full"])
def test_the_extent_of_compared_rows_is_a_word(extent: str) -> None:
    """YAML reads a plain `off` as false."""
    found = parsed(f"tables: [{{name: a, uri: a, compaction: {{verify_rows: {extent}}}}}]")

    assert found.tables[0].compaction.verify_rows == extent.strip("'")


@pytest.mark.parametrize("extent", ["on", "some", "1", "null", "true"])
def test_another_word_for_it_is_refused(extent: str) -> None:
    message = refusal(f"tables:\n- name: a\n  uri: a\n  compaction:\n    verify_rows: {extent}")

    assert message.startswith("m.yaml:5: ") and "'off', 'sampled' or 'full'" in message


def test_rows_of_some_bins_are_compared_by_default() -> None:
    assert config.CompactionSettings().verify_rows == "sampled"


def test_storage_settings_hold_names_of_variables_and_no_secrets() -> None:
    found = parsed("""
        defaults:
          storage:
            endpoint: http://127.0.0.1:9000
            path_style: true
            credentials: {access_key_id: $ORDERS_KEY, secret_access_key: "${ORDERS_SECRET}"}
        tables:
          - {name: a, uri: "s3://lake/a"}
          - {name: b, uri: "s3://lake/b", storage: {region: eu-west-1, credentials: null}}
          - {name: c, uri: "s3://lake/c", storage: {encryption: "aws:kms", kms_key_id: k}}
    """)

    a, b, c = (table.storage for table in found.tables)
    assert (a.credentials.access_key_id, a.credentials.secret_access_key) == (
        "ORDERS_KEY",
        "ORDERS_SECRET",
    )
    assert (b.endpoint, b.region, b.credentials) == (
        a.endpoint,
        "eu-west-1",
        config.CredentialSettings(),
    )
    assert (c.encryption, c.kms_key_id, c.credentials) == ("aws:kms", "k", a.credentials)


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("credentials: {access_key_id: AKIAVERYSECRET}", "no secret belongs here"),
        ("credentials: {access_key_id: $A}", "access_key_id and secret_access_key go together"),
        ("credentials: {session_token: $A}", "access_key_id and secret_access_key go together"),
        ("credentials: {acces_key_id: $A}", "did you mean 'access_key_id'?"),
        (
            "credentials: {anonymous: true, access_key_id: $A, secret_access_key: $B}",
            "either anonymous or an access key",
        ),
        ("endpoint: https://user:AKIAVERYSECRET@host", "without a user"),
        ("endpoint: ftp://host", "endpoint reads like 'https://host:port'"),
        ("encryption: rot13", "'AES256', 'aws:kms' or 'aws:kms:dsse'"),
        ("kms_key_id: k", "kms_key_id goes with encryption aws:kms"),
        ("endpont: http://h", "did you mean 'endpoint'?"),
    ],
)
def test_storage_settings_that_are_wrong_are_refused_without_showing_secrets(
    storage: str, message: str
) -> None:
    found = refusal(f"tables:\n- name: a\n  uri: s3://b/a\n  storage:\n    {storage}")

    assert found.startswith(("m.yaml:5: ", "m.yaml:4: "))
    assert message in found
    assert "AKIAVERYSECRET" not in found


def test_settings_of_spark_hold_for_what_storage_leaves_open() -> None:
    found = parsed("""
        spark:
          spark.hadoop.fs.s3a.endpoint: minio:9000
          spark.hadoop.fs.s3a.connection.ssl.enabled: "false"
          spark.hadoop.fs.s3a.path.style.access: "true"
          spark.hadoop.fs.s3a.endpoint.region: eu-central-1
          spark.hadoop.fs.s3a.secret.key: hidden
          spark.hadoop.fs.s3a.bucket.other.endpoint: https://other
        tables:
          - {name: a, uri: "s3a://lake/a"}
          - {name: b, uri: "s3://other/b", storage: {region: null, path_style: false}}
          - {name: c, uri: c}
    """)

    a, b, c = (table.storage for table in found.tables)
    assert (a.endpoint, a.region, a.path_style) == ("http://minio:9000", "eu-central-1", True)
    assert (b.endpoint, b.region, b.path_style) == ("https://other", None, False)
    assert c == config.StorageSettings()
    assert "hidden" not in repr(a)
