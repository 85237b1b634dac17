"""Settings of the user for all stores, from a file and from the environment.

A file is read only if ``EOSLOG_CONFIG`` or the caller names it, never because it is in the current directory. Otherwise
a file in another user's directory could send requests, signed with this user's credentials, to any endpoint.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from eoslog.arguments import read_option
from eoslog.errors import InvalidOption
from eoslog.format.file_writer import MOST_INLINE_BYTES, MOST_SHARED_BYTES
from eoslog.log.replica import LogConfig
from eoslog.state.expiry import (
    DELETED_FILE_RETENTION_MS,
    NEVER,
    OFFSETS_RETENTION_MS,
    PRODUCER_ID_EXPIRATION_MS,
    STAGED_MAX_AGE_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from eoslog.storage.http_options import HttpOptions, check_address
from eoslog.wording import nearest, unknown

_logger = logging.getLogger(__name__)
CONFIG_VARIABLE = "EOSLOG_CONFIG"
_HTTP_DEFAULTS = HttpOptions()
_PREFIX = "EOSLOG_"
_SECRET = re.compile(r"(^|_)key(_id)?$|secret|token|passw|credential", re.IGNORECASE)
_NO_SETTINGS = re.compile(
    # The settings file of the command line, and the S3 server and the tests of this project.
    r"EOSLOG_(CONFIG|S3_SERVER|TEST_\w+"
    # Kubernetes sets these in each container for a service whose name begins with eoslog.
    r"|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?))"
)
_NO_SECRETS = frozenset({"credentials", "sse_kms_key_id"})
"""Names of settings that look like those of secrets. They name a function and a key in KMS."""
_CREDENTIALS = (
    *("key", "secret", "token", "anon", "credentials"),
    *("key_file", "account_key", "sas_token", "tenant_id", "client_id", "client_secret"),
)
"""Options that give credentials."""
_SOURCES = ("profile", "credentials", "key_file", "client_id")
"""Settings that give credentials. They count only where no option does."""


def _as_given(value: object) -> object:
    """Refuse a boolean for a number. The settings library would read it as 0 or 1."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    return value


def _truth(value: object) -> object:
    """Read a boolean like every option. The settings library would read further words, such as ``off``."""
    found = read_option("bool", value)
    if not isinstance(found, bool):
        raise ValueError("must be true or false")
    return found


def _address(value: str | None, info: ValidationInfo) -> str | None:
    """Refuse a URL that is no server's, or that has credentials. A ``ValueError`` would show them in the message."""
    if value is not None:
        check_address(f"setting iceberg.{info.field_name}", value, "give credentials in the environment")
    return value


def _namespace(value: str) -> str:
    if not all(value.split(".")):
        raise ValueError("must be names with a dot between two of them")
    return value


_Number = Annotated[int, BeforeValidator(_as_given)]
_Positive = Annotated[_Number, Field(gt=0)]
_Natural = Annotated[_Number, Field(ge=0)]
_Truth = Annotated[bool, BeforeValidator(_truth)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogSettings(_Section):
    """Settings of the log; see ``LogConfig``."""

    slot_retention_ms: _Positive = LogConfig.slot_retention_ms
    checkpoint_slots: _Positive = LogConfig.checkpoint_slots
    commit_timeout_ms: _Positive = LogConfig.commit_timeout_ms
    inline_limit_bytes: Annotated[_Number, Field(ge=0, le=MOST_INLINE_BYTES)] = LogConfig.inline_limit_bytes
    shared_limit_bytes: Annotated[_Number, Field(ge=0, le=MOST_SHARED_BYTES)] = LogConfig.shared_limit_bytes


class LocalSettings(_Section):
    """Stores on local disk."""

    fsync: _Truth = True


class _CloudSettings(_Section):
    """Stores in a cloud, without credentials."""

    endpoint_url: str | None = None
    credentials: str | None = None
    """The function that gives the credentials, ``module:function``."""
    connect_timeout_ms: _Positive = _HTTP_DEFAULTS.connect_timeout_ms
    read_timeout_ms: _Positive = _HTTP_DEFAULTS.read_timeout_ms
    max_attempts: _Positive = _HTTP_DEFAULTS.max_attempts


class S3Settings(_CloudSettings):
    """Stores on S3, without credentials."""

    region: str | None = None
    profile: str | None = None
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None


class GcsSettings(_CloudSettings):
    """Stores on Google Cloud Storage, without credentials."""

    key_file: str | None = None


class AzureSettings(_CloudSettings):
    """Stores on Azure Blob Storage, without credentials."""

    account: str | None = None
    client_id: str | None = None


class VacuumSettings(_Section):
    """The ages below which vacuum keeps files."""

    staged_max_age_ms: _Positive = STAGED_MAX_AGE_MS
    deleted_file_retention_ms: _Natural = DELETED_FILE_RETENTION_MS


class GroupSettings(_Section):
    """Retention of consumer groups."""

    offsets_retention_ms: Annotated[_Number, Field(ge=NEVER)] = OFFSETS_RETENTION_MS


class IcebergSettings(_Section):
    """The catalog in which engines find the published Iceberg tables, without credentials."""

    catalog_uri: Annotated[str | None, AfterValidator(_address)] = None
    """The URL of a catalog with Iceberg's REST interface; None: there is no catalog."""
    warehouse: str | None = None
    """The catalog's name of the warehouse, if it has several."""
    namespace: Annotated[str, AfterValidator(_namespace)] = "eoslog"
    """The namespace of the tables; its levels are separated by dots."""
    credentials: str | None = None
    """The function that gives the token, or AWS's keys, ``module:function``."""
    oauth2_server_uri: Annotated[str | None, AfterValidator(_address)] = None
    """The URL that gives tokens to OAuth2 clients; None: the catalog's own."""
    scope: str = "catalog"
    """The scope of these tokens."""
    signing_name: str | None = None
    """The service of AWS for which requests are signed, such as ``glue``; None: they carry a token."""
    signing_region: str | None = None
    """The region of that service; None: that of the environment."""
    connect_timeout_ms: _Positive = 5_000
    read_timeout_ms: _Positive = 30_000


class CoordinatorSettings(_Section):
    """The intervals of a coordinator's steps, and the expiry of ids (ms). The names are Kafka's where it has one."""

    transaction_abort_timed_out_transaction_cleanup_interval_ms: _Positive = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: _Positive = 3_600_000
    producer_id_expiration_check_interval_ms: _Positive = 600_000
    group_session_check_interval_ms: _Positive = 60_000
    offsets_retention_check_interval_ms: _Positive = 600_000
    segment_check_interval_ms: _Positive = 60_000
    log_retention_check_interval_ms: _Positive = 300_000
    log_cleaner_backoff_ms: _Positive = 15_000
    file_compaction_interval_ms: _Positive = 60_000
    publication_interval_ms: _Positive = 10_000
    checkpoint_check_interval_ms: _Positive = 60_000
    vacuum_interval_ms: _Positive = 24 * 3_600_000
    slot_deletion_interval_ms: _Positive = 3_600_000
    transactional_id_expiration_ms: _Positive = TRANSACTIONAL_ID_EXPIRATION_MS
    producer_id_expiration_ms: _Positive = PRODUCER_ID_EXPIRATION_MS


class Settings(BaseSettings):
    """All settings. The environment (``EOSLOG_…``) overrides the file."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    store: str | None = None
    """The store that the command line uses."""
    log: LogSettings = LogSettings()
    local: LocalSettings = LocalSettings()
    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    azure: AzureSettings = AzureSettings()
    vacuum: VacuumSettings = VacuumSettings()
    groups: GroupSettings = GroupSettings()
    iceberg: IcebergSettings = IcebergSettings()
    coordinator: CoordinatorSettings = CoordinatorSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment override the file."""
        return env_settings, init_settings

    def log_config(self) -> LogConfig:
        return LogConfig(**self.log.model_dump())

    def store_options(self, url: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The options of the object store at ``url``: the given options, and the other options from these settings.

        A setting that gives credentials, such as a profile, counts only if no other credentials are given.
        """
        given = {} if given is None else given
        scheme = url.partition("://")[0].lower() if "://" in url else "file"
        sections: dict[str, _Section] = {"file": self.local, "s3": self.s3, "s3a": self.s3}
        sections |= {"gs": self.gcs, "gcs": self.gcs, "az": self.azure, "abfs": self.azure, "abfss": self.azure}
        found = sections[scheme].model_dump(exclude_defaults=True) if scheme in sections else {}
        # The values are not checked yet. Some, such as arrays, have no truth value and no comparison.
        if any(value is not None and value is not False for name, value in given.items() if name in _CREDENTIALS):
            found = {name: value for name, value in found.items() if name not in _SOURCES}
        return found | dict(given)


def load_settings(path: str | os.PathLike[str] | None = None) -> Settings:
    """Read the settings file, if one is named, and the environment.

    Args:
        path: the file; if None, the file that ``EOSLOG_CONFIG`` names.

    Raises:
        InvalidOption: a setting is unknown or wrong, or the file holds a secret.
    """
    named = path if path is not None else os.environ.get(CONFIG_VARIABLE)
    values = _read(Path(named)) if named else {}
    _check_variables()
    try:
        return Settings(**values)
    except SettingsError as error:
        raise InvalidOption(f"a setting in the environment cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        where = f"{named} or the environment" if named else f"the environment ({_PREFIX}…)"
        if _SECRET.search(location):
            raise _no_secrets(where, location) from None
        subject = f"setting {location!r} in {where}"
        if first["type"] == "extra_forbidden":
            raise InvalidOption(unknown(subject, str(first["loc"][-1]), _names_beside(first["loc"]))) from None
        problem = first["msg"].removeprefix("Value error, ")
        raise InvalidOption(f"{subject}: {problem}, not {first['input']!r}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidOption(f"there is no settings file {path}") from None
    except OSError as error:
        raise InvalidOption(f"settings file {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"settings file {path} is not TOML: {error}") from None
    secret = _secret_in(values)
    if secret is not None:
        raise _no_secrets(f"settings file {path}", secret)
    return values


def _check_variables() -> None:
    """Refuse a variable that seems to be misspelled. The settings library would ignore it silently.

    A variable that resembles no setting may belong to another program, such as ``EOSLOG_VERSION`` of an image. So it
    gets a warning only.
    """
    valid = _variables()
    for given, value in os.environ.items():
        name = given.upper()
        if not name.startswith(_PREFIX) or name in valid or not value or _NO_SETTINGS.fullmatch(name):
            continue
        like = nearest(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in valid])
        if "__" not in name and like is None:
            _warn(given)
            continue
        if _SECRET.search(name):
            raise _no_secrets("the environment", given)
        section = name.partition("__")[0]
        beside = [each for each in valid if each.startswith(f"{section}__")]
        sections = [f"{_PREFIX}{each.upper()}{'__…' * (each != 'store')}" for each in Settings.model_fields]
        listed = [CONFIG_VARIABLE, *(beside or sections)]
        raise InvalidOption(unknown(f"environment variable {given}", name, valid, listed=listed, prefix=_PREFIX))


@cache
def _warn(variable: str) -> None:
    """Warn of an unknown variable, once in a process."""
    _logger.warning("environment variable %s is not a setting of eoslog and is ignored", variable)


def _variables() -> list[str]:
    """Return the variables of all settings, and the variables of whole sections, whose values are JSON."""
    found = []
    for name, field in Settings.model_fields.items():
        found.append(f"{_PREFIX}{name}".upper())
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += [f"{_PREFIX}{name}__{each}".upper() for each in field.annotation.model_fields]
    return found


def _secret_in(values: Mapping[str, Any]) -> str | None:
    for name, value in values.items():
        if _SECRET.search(name) and name not in _NO_SECRETS:
            return name
        if isinstance(value, Mapping) and (found := _secret_in(value)) is not None:
            return f"{name}.{found}"
    return None


def _no_secrets(where: str, name: str) -> InvalidOption:
    return InvalidOption(
        f"{where} holds {name!r}: credentials are not settings. S3 takes them from the environment (AWS_ACCESS_KEY_ID "
        "and AWS_SECRET_ACCESS_KEY), from a profile (s3.profile) or from the instance's role. For other clouds "
        "see docs/platforms.md, for a catalog docs/iceberg.md"
    )


def _names_beside(location: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return list(model.model_fields)
