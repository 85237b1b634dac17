"""One request to an object store: its time, its DEBUG line with verb, path, outcome and time, and its span.

A line never holds a header, a query or a body, so it shows no credential and no signature. Neither does a span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from inspect import isgeneratorfunction
from types import TracebackType
from typing import Any, TypeVar

from eoslog.storage import tracing
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, StoredObject

_logger = logging.getLogger("eoslog.storage.requests")
_LONGEST_PATH = 500
_Method = TypeVar("_Method", bound=Callable[..., Any])


def is_logged() -> bool:
    """Return True if requests are logged."""
    return _logger.isEnabledFor(logging.DEBUG)


class TimedRequest:
    """One request, or the deletion of several objects by one call. Use it as a context manager."""

    __slots__ = ("_began_ns", "_environment", "_path", "_store", "_verb", "outcome", "paused_ns", "span")

    def __init__(self, store: ObjectStore, environment: Environment, verb: str, path: str | Sequence[str]) -> None:
        self._store = store
        self._environment = environment
        self._verb = verb
        self._path = path
        self.outcome: object = None
        """The result in the log line and the span; the name of the error's class if None."""
        self.paused_ns = 0
        """How long the request waited for its caller. Its time does not include this."""

    def __enter__(self) -> TimedRequest:
        self.span = tracing.start_request(self._verb, self._path)
        self._began_ns = self._environment.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        duration_ns = self._environment.monotonic_ns() - self._began_ns - self.paused_ns
        self._store.request_times.add(self._verb, duration_ns)
        outcome = type(error).__name__ if self.outcome is None else self.outcome
        if is_logged():
            path = self._path if isinstance(self._path, str) else ", ".join(self._path)
            # The request is answered. An error of a log handler of the application must not hide the answer.
            with suppress(Exception):
                _logger.debug(
                    "%s: %s %s: %s in %d ms",
                    self._store.url,
                    self._verb,
                    path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…",
                    outcome,
                    duration_ns // 1_000_000,
                )
        if self.span is not None:
            tracing.describe(self.span, {"eoslog.outcome": str(outcome)})
            if error is not None and not isinstance(error, ObjectNotFound | GeneratorExit):
                tracing.fail(self.span, error)
            tracing.end(self.span)


def logged(verb: str) -> Callable[[_Method], _Method]:
    """Decorate a method of a store on this machine, which has ``_environment``, so that it is timed and logged."""

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def call(self: Any, path: Any, *arguments: Any, **options: Any) -> Any:
            with TimedRequest(self, self._environment, verb, path) as request:
                result = method(self, path, *arguments, **options)
                request.outcome = getattr(result, "value", "done")
                if request.span is not None:
                    tracing.describe(request.span, {"eoslog.object.bytes": _bytes_in(result, *arguments)})
                return result

        @wraps(method)
        def iterate(self: Any, path: Any, **options: Any) -> Iterator[Any]:
            with TimedRequest(self, self._environment, verb, path) as request:
                found, ending = 0, "ended early"
                try:
                    for each in method(self, path, **options):
                        found += 1
                        paused_ns = self._environment.monotonic_ns()
                        try:
                            yield each
                        finally:
                            request.paused_ns += self._environment.monotonic_ns() - paused_ns
                    ending = "done"
                except Exception as error:
                    ending = type(error).__name__
                    raise
                finally:
                    request.outcome = f"{found} objects, {ending}"

        return iterate if isgeneratorfunction(method) else call  # type: ignore[return-value]

    return decorate


def _bytes_in(*bodies: Any) -> int | None:
    """Return the size of the first body among these values (bytes); None if there is none."""
    for body in bodies:
        if isinstance(body, StoredObject):
            return len(body.body)
        if isinstance(body, bytes):
            return len(body)
        if isinstance(body, list) and body and isinstance(body[0], bytes):
            return sum(map(len, body))
    return None
