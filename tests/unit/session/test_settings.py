"""Settings: defaults, file, environment and arguments, each outdoing the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from eoslog.log.replica import LogConfig
from eoslog.session.settings import LogSettings, Settings, load_settings

CONF = Path(__file__).resolve().parents[3] / "conf"


def test_the_example_file_shows_every_setting_at_its_default() -> None:
    example = load_settings(CONF / "eoslog.toml")

    assert example == Settings()
    text = (CONF / "eoslog.toml").read_text()
    for section in ("log", "local", "s3", "gcs", "azure", "vacuum", "iceberg", "coordinator"):
        assert f"[{section}]" in text
        for name in type(getattr(example, section)).model_fields:
            assert f"{name} = " in text


def test_the_environment_outdoes_the_file_and_an_argument_outdoes_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "eoslog.toml"
    path.write_text("[log]\nslot_retention_ms = 1000\ncheckpoint_slots = 7\n")
    monkeypatch.setenv("EOSLOG_CONFIG", str(path))
    monkeypatch.setenv("EOSLOG_LOG__SLOT_RETENTION_MS", "2000")

    store = eoslog.connect("memory://")
    given = eoslog.connect("memory://", log_config=LogConfig(slot_retention_ms=3000))

    assert (store.log.config.slot_retention_ms, store.log.config.checkpoint_slots) == (2000, 7)
    assert given.log.config.slot_retention_ms == 3000


def test_the_options_of_a_store_come_from_its_section(tmp_path: Path) -> None:
    path = tmp_path / "eoslog.toml"
    path.write_text('[local]\nfsync = false\n[s3]\nregion = "eu-central-1"\n')

    settings = load_settings(path)

    assert settings.store_options("some/path") == {"fsync": False}
    assert settings.store_options("s3://bucket")["region"] == "eu-central-1"
    assert settings.store_options("memory://x") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[log]\nretention = 1\n", "log.retention.*slot_retention_ms, checkpoint_slots, commit_timeout_ms"),
        ("[log]\nslot_retention_ms = -1\n", "log.slot_retention_ms.*greater than 0"),
        ('[s3]\nsecret = "hush"\n', r"s3\.secret.*AWS_SECRET_ACCESS_KEY.*profile"),
        ('[s3]\naws_access_key_id = "hush"\n', r"s3\.aws_access_key_id.*credentials are not settings"),
        ('[s3.nested]\nsession_token = "hush"\n', r"s3\.nested\.session_token.*credentials are not settings"),
        (
            "[lgo]\nslot_retention_ms = 1\n",
            "lgo.*is unknown. Did you mean 'log'.*Valid are store, log, local, s3, gcs, azure, vacuum",
        ),
        ('[s3]\nendponit_url = "x"\n', r"s3\.endponit_url.*is unknown. Did you mean 'endpoint_url'\?"),
        ("[local]\nfsync = 7\n", "'local.fsync' in .*: must be true or false, not 7"),
        ("[local]\nfsync = 'off'\n", "'local.fsync' in .*: must be true or false, not 'off'"),
        ("[log]\ncheckpoint_slots = true\n", "log.checkpoint_slots.*must be a whole number, not True"),
        ("[log\n", "is not TOML"),
        ('[iceberg]\ncatalog_uri = "https://me:hush@catalog.example.com"\n', "iceberg.catalog_uri carries credentials"),
        (
            '[iceberg]\noauth2_server_uri = "ftp://hush"\n',
            "iceberg.oauth2_server_uri is not an http:// or https:// URL",
        ),
        (
            '[iceberg]\nnamespace = "a..b"\n',
            "iceberg.namespace.*must be names with a dot between two of them, not 'a..b'",
        ),
        ('[iceberg]\ntoken = "hush"\n', r"iceberg\.token.*credentials are not settings"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "eoslog.toml"
    path.write_text(text)

    with pytest.raises(eoslog.InvalidOption, match=message) as caught:
        load_settings(path)

    assert "hush" not in str(caught.value)


def test_a_file_that_is_named_and_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(eoslog.InvalidOption, match="no settings file"):
        load_settings(tmp_path / "absent.toml")


def test_a_directory_is_no_settings_file(tmp_path: Path) -> None:
    with pytest.raises(eoslog.InvalidOption, match="cannot be read"):
        load_settings(tmp_path)


def test_a_file_that_nobody_names_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eoslog.toml").write_text('store = "elsewhere"\n[s3]\nendpoint_url = "https://s3.example.com"\n')
    monkeypatch.chdir(tmp_path)

    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "EOSLOG_LGO__SLOT_RETENTION_MS",
            "1",
            r"Did you mean 'EOSLOG_LOG__SLOT_RETENTION_MS'\? Valid are EOSLOG_CONFIG",
        ),
        ("EOSLOG_LOG__RETENTION", "1", "EOSLOG_LOG__RETENTION is unknown.*EOSLOG_LOG__SLOT_RETENTION_MS"),
        ("EOSLOG_S3__ENDPONT_URL", "x", r"EOSLOG_S3__ENDPONT_URL is unknown. Did you mean 'EOSLOG_S3__ENDPOINT_URL'\?"),
        ("EOSLOG_S3_ENDPOINT_URL", "x", r"Did you mean 'EOSLOG_S3__ENDPOINT_URL'\?"),
        ("EOSLOG_STROE", "x", r"Did you mean 'EOSLOG_STORE'\?"),
        ("EOSLOG_B__X", "x", "EOSLOG_B__X is unknown. Valid are EOSLOG_CONFIG, EOSLOG_STORE, EOSLOG_LOG__…"),
        ("EOSLOG_S3__REGION__NAME", "x", r"Did you mean 'EOSLOG_S3__REGION'\?"),
        ("eoslog_s3__regoin", "x", r"eoslog_s3__regoin is unknown. Did you mean 'EOSLOG_S3__REGION'\?"),
        ("EOSLOG_S3", '{"regoin": "x"}', r"s3\.regoin.*Did you mean 'region'\?"),
        ("EOSLOG_LOG__SLOT_RETENTION_MS", "soon", "log.slot_retention_ms.*integer"),
        ("EOSLOG_LOCAL__FSYNC", "0", "'local.fsync' in the environment.*must be true or false, not '0'"),
        ("EOSLOG_LOCAL__FSYNC", "no", "must be true or false, not 'no'"),
        ("EOSLOG_LOG", "no json", "cannot be read"),
        ("EOSLOG_S3__SECRET", "hush", r"EOSLOG_S3__SECRET.*AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(eoslog.InvalidOption, match=message) as caught:
        load_settings()

    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EOSLOG_S3_SERVER", "/opt/versitygw"),
        ("EOSLOG_TEST_CRASH", "order"),
        ("_EOSLOG_COMPLETE", "bash_complete"),
        ("EOSLOG_PORT", "tcp://10.0.0.1:80"),
        ("EOSLOG_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("EOSLOG_COORDINATOR_SERVICE_HOST", "10.0.0.1"),
        ("EOSLOG_COORDINATOR_SERVICE_PORT_HTTP", "80"),
        ("EOSLOG_NOTHING", ""),
    ],
)
def test_a_variable_of_another_program_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    assert load_settings() == Settings()


@pytest.mark.parametrize("variable", ["EOSLOG_VERSION", "EOSLOG_HOME", "EOSLOG_LOG_LEVEL", "EOSLOG_API_TOKEN"])
def test_a_variable_that_resembles_no_setting_gets_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str
) -> None:
    monkeypatch.setenv(variable, "hush")

    assert load_settings() == load_settings() == Settings()

    (warning,) = caplog.messages
    assert variable in warning
    assert "hush" not in warning


def test_each_setting_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = Settings().model_dump(exclude_none=True)
    for section, values in defaults.items():
        for name, value in values.items():
            monkeypatch.setenv(f"EOSLOG_{section}__{name}".upper(), str(value))

    assert load_settings() == Settings()


def test_a_profile_gives_way_to_credentials_that_are_given(tmp_path: Path) -> None:
    path = tmp_path / "eoslog.toml"
    path.write_text('[s3]\nprofile = "production"\n')
    settings = load_settings(path)

    assert settings.store_options("s3://bucket", {"region": "x"})["profile"] == "production"
    assert "profile" not in settings.store_options("s3://bucket", {"key": "k", "secret": "s"})
    assert settings.store_options("S3://bucket", {"profile": "other"})["profile"] == "other"


def test_a_file_may_name_a_function_for_credentials_and_a_key_of_kms(tmp_path: Path) -> None:
    file = tmp_path / "eoslog.toml"
    file.write_text(
        '[s3]\nsse_kms_key_id = "arn"\ncredentials = "m:f"\n[gcs]\ncredentials = "m:g"\n[azure]\naccount = "a"\n'
    )

    settings = load_settings(file)

    assert settings.store_options("s3://b") == {"sse_kms_key_id": "arn", "credentials": "m:f"}
    assert settings.store_options("s3://b", {"key": "k"}) == {"sse_kms_key_id": "arn", "key": "k"}
    assert settings.store_options("gcs://b") == {"credentials": "m:g"}
    assert settings.store_options("abfss://c@a.dfs.core.windows.net") == settings.store_options("az://c")
    assert settings.store_options("az://c") == {"account": "a"}


def test_settings_given_as_an_argument_replace_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EOSLOG_CONFIG", "/absent.toml")

    store = eoslog.connect("memory://", settings=Settings(log=LogSettings(checkpoint_slots=9)))

    assert store.log.config.checkpoint_slots == 9


def test_the_spark_settings_are_lines_of_a_key_and_a_value() -> None:
    lines = (CONF / "spark-defaults.conf").read_text().splitlines()

    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))

    assert settings
    assert all(key.startswith("spark.") for key in settings)


@pytest.mark.parametrize(("text", "fsync"), [("false", False), ("False", False), ("TRUE", True), ("true", True)])
def test_a_switch_in_the_environment_is_read_like_one_in_a_configuration(
    monkeypatch: pytest.MonkeyPatch, text: str, fsync: bool
) -> None:
    monkeypatch.setenv("EOSLOG_LOCAL__FSYNC", text)

    assert load_settings().local.fsync is fsync
