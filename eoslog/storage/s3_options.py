"""Options of the connection to S3 or to a compatible store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from eoslog.arguments import Count, Natural, checked_option, kinds_of, read_option
from eoslog.errors import InvalidOption
from eoslog.wording import quoted, unknown

_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")


@dataclass(frozen=True, slots=True)
class S3Options:
    """Connection options. Without credentials here, the environment, the profile or the instance's role gives them."""

    endpoint_url: str | None = None
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    region: str | None = None
    profile: str | None = None
    anon: bool = False
    server_side_encryption: str | None = None
    """The header ``x-amz-server-side-encryption`` of each put: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``."""
    sse_kms_key_id: str | None = None
    """The key of KMS that encrypts; None for the bucket's."""
    connect_timeout_ms: Count = 5_000
    read_timeout_ms: Count = 30_000
    max_attempts: Count = 6
    """The largest number of attempts of a request that may be repeated."""
    retry_base_ms: Natural = 100
    """The wait before the first retry (ms). It doubles up to 5 s, and jitter spreads it."""

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            try:
                parts = urlsplit(self.endpoint_url)
                is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            except ValueError:
                is_url = False
            if not is_url:
                raise InvalidOption("endpoint_url is not an http:// or https:// URL.")
            if parts.username is not None or parts.query:
                raise InvalidOption("endpoint_url carries credentials or a query; give key and secret instead.")
        if (self.key is None) != (self.secret is None):
            raise InvalidOption("key and secret belong together; give both, or none to take the environment's.")
        if self.anon and self.key is not None:
            raise InvalidOption("anon excludes key and secret; leave one of them out.")
        if self.server_side_encryption not in (None, *_ENCRYPTIONS):
            raise InvalidOption(
                f"server_side_encryption is {quoted(self.server_side_encryption)}; valid are {', '.join(_ENCRYPTIONS)}."
            )
        if self.sse_kms_key_id is not None and self.server_side_encryption in (None, "AES256"):
            raise InvalidOption("sse_kms_key_id needs server_side_encryption='aws:kms' or 'aws:kms:dsse'.")

    @property
    def headers_of_puts(self) -> dict[str, str]:
        """The headers that each put has."""
        given = {
            "x-amz-server-side-encryption": self.server_side_encryption,
            "x-amz-server-side-encryption-aws-kms-key-id": self.sse_kms_key_id,
        }
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> S3Options:
        """Return the options of a user. Numbers and booleans may be strings. Raises ``InvalidOption``."""
        valid = {each.name: str(each.type) for each in fields(cls)}
        kinds = kinds_of(valid)
        found: dict[str, Any] = {}
        for name, value in options.items():
            if name not in valid:
                raise InvalidOption(unknown(f"option {quoted(name)} of an S3 store", name, sorted(valid)))
            if name in kinds:
                found[name] = checked_option(name, kinds[name], read_option(kinds[name], value))
            elif value is None or isinstance(value, str):
                found[name] = value
            else:
                # It may be a secret, so the message does not repeat it.
                raise InvalidOption(f"{name} is of type {type(value).__name__}; it must be a string.")
        return cls(**found)
