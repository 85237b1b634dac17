"""Options that the connections to all clouds have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from eoslog.arguments import Count, Natural, checked_option, kinds_of, read_option
from eoslog.errors import InvalidOption
from eoslog.wording import quoted, unknown

_Options = TypeVar("_Options", bound="HttpOptions")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def check_address(name: str, url: str, remedy: str) -> None:
    """Refuse a URL that is not a server's address, or that has credentials or a query. No message repeats the URL.

    Args:
        name: the name of the option or setting.
        remedy: what to do instead of giving credentials in the URL.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise InvalidOption(f"{name} is not an http:// or https:// URL.")
    if parts.username is not None or parts.query:
        raise InvalidOption(f"{name} carries credentials or a query; {remedy} instead.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Connection options. None of these is a secret. A subclass hides its secrets from ``repr``."""

    kind: ClassVar[str]
    """The kind of store in messages, with its article."""

    endpoint_url: str | None = None
    credentials: str | None = None
    """The function that gives the credentials: ``module:function``. Each process imports and calls it."""
    connect_timeout_ms: Count = 5_000
    read_timeout_ms: Count = 30_000
    max_attempts: Count = 6
    """The largest number of attempts of a request that may be repeated."""
    retry_base_ms: Natural = 100
    """The wait before the first retry (ms). It doubles up to 5 s, and jitter spreads it."""

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            check_address("endpoint_url", self.endpoint_url, "give credentials as options")
        if self.credentials is not None and not _FUNCTION.fullmatch(self.credentials):
            # It may be a secret, so the message does not repeat it.
            raise InvalidOption("credentials names no function. Give module:function, which each process can import.")

    def check_one_of(self, *names: str) -> None:
        """Raise ``InvalidOption`` if more than one of these options gives credentials."""
        given = [name for name in names if getattr(self, name) not in (None, False)]
        if len(given) > 1:
            raise InvalidOption(f"{given[0]} excludes {given[1]}. Leave one of them out.")

    @classmethod
    def of(cls: type[_Options], options: Mapping[str, Any]) -> _Options:
        """Return the options that a user gives. Numbers and booleans may be strings.

        Raises:
            InvalidOption: there is no such option, or it cannot have this value.
        """
        valid = {each.name: str(each.type) for each in fields(cls)}
        kinds = kinds_of(valid)
        found: dict[str, Any] = {}
        for name, value in options.items():
            if name not in valid:
                raise InvalidOption(unknown(f"option {quoted(name)} of {cls.kind} store", name, sorted(valid)))
            if name in kinds:
                found[name] = checked_option(name, kinds[name], read_option(kinds[name], value))
            elif value is None or isinstance(value, str):
                found[name] = value
            else:
                # It may be a secret, so the message does not repeat it.
                raise InvalidOption(f"{name} is of type {type(value).__name__}; it must be a string.")
        return cls(**found)
