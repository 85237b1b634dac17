"""Credentials that a process renews: those of a cloud's library, and those of a function that the user names.

A platform may give credentials in a way of its own, such as a catalog that vends tokens. Then the option
``credentials`` names a function, ``module:function``. Each process imports it and calls it with the URL of the store.
It returns one of these:

- a mapping with the texts that the options of the store would have, such as ``{"token": …}``, and optionally
  ``expires_at_ms`` (ms since the epoch). The function is called again before that time.
- the object of the cloud's own library that renews its credentials itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

from eoslog.arguments import is_whole_number
from eoslog.errors import EosLogError, InvalidOption, StoreAccessDenied, StoreUnavailable

_logger = logging.getLogger(__name__)
_EARLY_MS = 5 * 60_000
"""How long before their expiry credentials are renewed."""
_PAUSE_MS = 10_000
"""The shortest pause between two early renewals. Short-lived credentials are always early."""
_EXPIRY = "expires_at_ms"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials by the names of options, such as ``token``."""

    values: Mapping[str, str] = field(repr=False)
    expires_at_ms: int | None = None
    """The end of their life (ms since the epoch); None if it is not known."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks that decide when credentials are renewed."""

    now_ms: Callable[[], int]
    """The time of the object store, which decides whether credentials have expired. 0: not known yet."""
    monotonic_ms: Callable[[], int]
    """The elapsed time."""


class RenewedCredentials:
    """The credentials of one process. They are renewed before they expire, and after a refusal.

    Its methods run in threads of the library. So no interrupt leaves its lock locked.
    """

    def __init__(self, source: Callable[[], Credentials], clocks: Clocks) -> None:
        """
        Args:
            source: returns new credentials. It may send requests.
        """
        self._source = source
        self._clocks = clocks
        self._lock = threading.Lock()
        self._known: Credentials | None = None
        self._asked_ms = 0

    def current(self) -> Mapping[str, str]:
        """Return credentials that are valid for the next request."""
        known = self._known
        if known is None:
            with self._lock:
                return (self._known or self._ask()).values
        left_ms = None if known.expires_at_ms is None else known.expires_at_ms - self._clocks.now_ms()
        if left_ms is None or left_ms > _EARLY_MS or self._clocks.monotonic_ms() - self._asked_ms < _PAUSE_MS:
            return known.values
        # One thread renews. As long as the credentials are valid, the others go on with them.
        if not self._lock.acquire(blocking=left_ms <= 0):
            return known.values
        try:
            if self._known is not known:
                return self._known.values if self._known is not None else known.values
            return self._ask().values
        except Exception as error:
            if left_ms <= 0:
                raise
            _logger.warning("credentials are not renewed yet, and expire in %d s: %s", left_ms // 1000, error)
            return known.values
        finally:
            self._lock.release()

    def renew(self) -> bool:
        """Ask for other credentials after a refusal. Return True if they differ from the refused ones."""
        with self._lock:
            refused = self._known
            try:
                return refused is None or dict(self._ask().values) != dict(refused.values)
            except EosLogError as error:
                # The refusal says what is wrong.
                _logger.warning("credentials were refused, and there are no others: %s", error)
                return False

    def _ask(self) -> Credentials:
        self._asked_ms = self._clocks.monotonic_ms()
        # One assignment: a request in another thread must not be signed with parts of both.
        self._known = found = self._source()
        return found


def call_named(name: str, url: str) -> Any:
    """Return the answer of the function that the option ``credentials`` names.

    Args:
        name: ``module:function``.
        url: the URL of the store, with which the function is called.

    Raises:
        InvalidOption: there is no such function in this process.
        StoreUnavailable: it raised ``OSError``, which errors of the network are.
        StoreAccessDenied: it raised another error.
    """
    try:
        function = resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise InvalidOption(
            f"{url}: credentials={name} cannot be imported in this process ({type(error).__name__}: {error}). Install "
            "its module wherever the store is used, also on Spark's executors."
        ) from error
    try:
        return function(url)
    except EosLogError:
        raise
    except Exception as error:
        # The text of the error may hold a secret.
        kind = StoreUnavailable if isinstance(error, OSError) else StoreAccessDenied
        raise kind(
            f"{url}: {name} gave no credentials ({type(error).__name__}). Correct the function or its permissions."
        ) from error


def mapped(
    found: object, name: str, url: str, *, required: Collection[str] = (), optional: Collection[str] = ()
) -> Credentials:
    """Return the credentials in the mapping that a function returned.

    Args:
        name: the option ``credentials``.
        required, optional: the options that it gives. It gives at least one of the optional ones if none is required.

    Raises:
        StoreAccessDenied: it is no mapping of this form. The message has none of its values.
    """
    if isinstance(found, Mapping):
        values = {key: value for key, value in found.items() if key != _EXPIRY and value is not None}
        expires_at_ms = found.get(_EXPIRY)
        if (
            values
            and set(required) <= values.keys() <= {*required, *optional}
            and all(isinstance(value, str) for value in values.values())
            and (expires_at_ms is None or is_whole_number(expires_at_ms))
        ):
            return Credentials(values, expires_at_ms)
    raise StoreAccessDenied(
        f"{url}: {name} returned no credentials for this store. Return a mapping with texts for "
        f"{', '.join((*required, *optional))}, and the whole number {_EXPIRY} if they expire."
    )
