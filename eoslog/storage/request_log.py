"""The times of requests to object stores, and their log: a DEBUG line for each, with its verb, path, outcome and time.

A line never holds a header, a query or a body, so it shows no credential and no signature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, TypeVar

_logger = logging.getLogger("eoslog.storage.requests")
_LONGEST_PATH = 500
_Method = TypeVar("_Method", bound=Callable[..., Any])


def is_logged() -> bool:
    """Return True if requests are logged."""
    return _logger.isEnabledFor(logging.DEBUG)


def log_request(url: str, verb: str, path: str | Sequence[str], outcome: object, duration_ns: int) -> None:
    """Log one request; or the deletion of several objects by one call."""
    paths = path if isinstance(path, str) else ", ".join(path)
    # The request is answered. An error of a log handler of the application must not hide the answer.
    with suppress(Exception):
        _logger.debug(
            "%s: %s %s: %s in %d ms",
            url,
            verb,
            paths if len(paths) <= _LONGEST_PATH else f"{paths[:_LONGEST_PATH]}…",
            outcome,
            duration_ns // 1_000_000,
        )


def logged(verb: str) -> Callable[[_Method], _Method]:
    """Decorate a method of a store on this machine, which has ``_environment``, so that it is timed and logged."""

    def decorate(method: _Method) -> _Method:
        def end(store: Any, path: str | Sequence[str], outcome: object, began_ns: int) -> None:
            duration_ns = store._environment.monotonic_ns() - began_ns
            store.request_times_ns[verb] += duration_ns
            if is_logged():
                log_request(store.url, verb, path, outcome, duration_ns)

        @wraps(method)
        def call(self: Any, path: Any, *arguments: Any, **options: Any) -> Any:
            began_ns = self._environment.monotonic_ns()
            try:
                result = method(self, path, *arguments, **options)
            except Exception as error:
                end(self, path, type(error).__name__, began_ns)
                raise
            end(self, path, getattr(result, "value", "done"), began_ns)
            return result

        @wraps(method)
        def iterate(self: Any, path: Any, **options: Any) -> Iterator[Any]:
            began_ns, found, outcome = self._environment.monotonic_ns(), 0, "ended early"
            try:
                for each in method(self, path, **options):
                    found += 1
                    yield each
                outcome = "done"
            except Exception as error:
                outcome = type(error).__name__
                raise
            finally:
                end(self, path, f"{found} objects, {outcome}", began_ns)

        return iterate if isgeneratorfunction(method) else call  # type: ignore[return-value]

    return decorate
