"""Settings: defaults, file, environment and arguments, each outdoing the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from eoslog.client.settings import Settings, load_settings
from eoslog.log.view import LogConfig

CONF = Path(__file__).resolve().parents[3] / "conf"


def test_the_example_file_shows_every_setting_at_its_default() -> None:
    example = load_settings(CONF / "eoslog.toml")

    assert example == Settings()
    text = (CONF / "eoslog.toml").read_text()
    for section in ("log", "local", "s3", "vacuum"):
        assert f"[{section}]" in text
        for name in type(getattr(example, section)).model_fields:
            assert f"{name} = " in text


def test_the_environment_outdoes_the_file_and_an_argument_outdoes_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "eoslog.toml"
    path.write_text("[log]\ngrace_ms = 1000\ncheckpoint_slots = 7\n")
    monkeypatch.setenv("EOSLOG_CONFIG", str(path))
    monkeypatch.setenv("EOSLOG_LOG__GRACE_MS", "2000")

    store = eoslog.connect("memory://")
    given = eoslog.connect("memory://", log_config=LogConfig(grace_ms=3000))

    assert (store.log.config.grace_ms, store.log.config.checkpoint_slots) == (2000, 7)
    assert given.log.config.grace_ms == 3000


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
        ("[log]\ngrace = 1\n", "log.grace.*grace_ms, checkpoint_slots, commit_timeout_ms"),
        ("[log]\ngrace_ms = -1\n", "log.grace_ms.*greater than 0"),
        ('[s3]\nsecret = "hush"\n', "secret.*credentials come from the environment"),
        ("[log\n", "is not TOML"),
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


def test_the_spark_settings_are_lines_of_a_key_and_a_value() -> None:
    lines = (CONF / "spark-defaults.conf").read_text().splitlines()

    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))

    assert settings
    assert all(key.startswith("spark.") for key in settings)
