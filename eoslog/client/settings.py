"""Settings: what the user chose once for all stores, in a file and in the environment."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from eoslog.errors import InvalidOption
from eoslog.log.view import LogConfig
from eoslog.rules.forgetting import STAGED_MAX_AGE_MS
from eoslog.segment.vacuum import READER_GRACE_MS
from eoslog.store.s3_options import S3Options

CONFIG_VARIABLE = "EOSLOG_CONFIG"
_S3_DEFAULTS = S3Options()
_SECRETS = ("key", "secret", "token", "password")
_Positive = Annotated[int, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogSettings(_Section):
    """How the log behaves; see ``LogConfig``."""

    grace_ms: _Positive = LogConfig.grace_ms
    checkpoint_slots: _Positive = LogConfig.checkpoint_slots
    commit_timeout_ms: _Positive = LogConfig.commit_timeout_ms


class LocalSettings(_Section):
    """Stores on local disk."""

    fsync: bool = True


class S3Settings(_Section):
    """Stores on S3, without credentials."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    connect_timeout_ms: _Positive = _S3_DEFAULTS.connect_timeout_ms
    read_timeout_ms: _Positive = _S3_DEFAULTS.read_timeout_ms
    max_attempts: _Positive = _S3_DEFAULTS.max_attempts


class VacuumSettings(_Section):
    """What vacuum spares."""

    staged_max_age_ms: _Positive = STAGED_MAX_AGE_MS
    reader_grace_ms: _Positive = READER_GRACE_MS


class Settings(BaseSettings):
    """All settings. The environment (``EOSLOG_…``) outdoes the file."""

    model_config = SettingsConfigDict(
        env_prefix="EOSLOG_", env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    store: str | None = None
    """The store that the command line works on."""
    log: LogSettings = LogSettings()
    local: LocalSettings = LocalSettings()
    s3: S3Settings = S3Settings()
    vacuum: VacuumSettings = VacuumSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment comes before what the file gave."""
        return env_settings, init_settings

    def log_config(self) -> LogConfig:
        return LogConfig(**self.log.model_dump())

    def store_options(self, url: str) -> dict[str, Any]:
        """The options of the object store at ``url``, those that are set."""
        if url.startswith(("s3://", "s3a://")):
            return {name: value for name, value in self.s3.model_dump().items() if value is not None}
        return {} if url.startswith("memory://") else self.local.model_dump()


def load_settings(path: str | os.PathLike[str] | None = None) -> Settings:
    """Read the settings file, if one is named, and the environment.

    Args:
        path: the file; the one that ``EOSLOG_CONFIG`` names if None.

    Raises:
        InvalidOption: an unknown or wrong setting, or a secret in the file.
    """
    named = path if path is not None else os.environ.get(CONFIG_VARIABLE)
    values: dict[str, Any] = _read(Path(named)) if named else {}
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        valid = ", ".join(_names_beside(first["loc"]))
        where = f"{named} or the environment" if named else "the environment (EOSLOG_…)"
        raise InvalidOption(f"setting {place!r} in {where}: {first['msg']}; the settings there are: {valid}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise InvalidOption(f"there is no settings file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"settings file {path} is not TOML: {error}") from None
    for name in _secrets(values):
        raise InvalidOption(
            f"settings file {path} holds {name!r}: credentials come from the environment, a profile or the instance's "
            "role, never from this file"
        )
    return values


def _secrets(values: Mapping[str, Any]) -> list[str]:
    sections = [values, *(each for each in values.values() if isinstance(each, Mapping))]
    return [name for section in sections for name in section if name.lower() in _SECRETS]


def _names_beside(place: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in place[:-1]:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return list(model.model_fields)
