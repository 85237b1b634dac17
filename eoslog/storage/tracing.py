"""Spans of OpenTelemetry (the extra ``opentelemetry``): the only module that calls its API.

A program that configures a tracer provider has imported the API. So this module imports nothing, and without a
provider each function here returns at once.

A span never contains a row, a credential or the text of an error, because a text may quote a row. An error of the API
or of the program's span processors is logged, and fails no call: the call may have committed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from eoslog.errors import Replayed, Wakeup

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
_logger = logging.getLogger(__name__)
Attributes = Mapping[str, Any]
"""Attributes by name. An attribute that is None is left out."""
MESSAGING: dict[str, Any] = {"messaging.system": "eoslog"}
_MOST_LINKS = 128
_LONGEST_VALUE = 500
_NO_FAILURES = (Replayed, Wakeup)
_KINDS = {
    "parquet": "data",
    "index.parquet": "index",
    "txnindex": "txnindex",
    "snapshot": "snapshot",
    "json": "description",
}
"""The purposes of the objects of a topic and of a store, by the ends of their names."""
_OFF: AbstractContextManager[None] = nullcontext()
_newest: tuple[TracerProvider, Tracer] | None = None
"""The tracer of the newest provider. A test may replace the provider."""


def _harmless(function: Callable[P, R]) -> Callable[P, R | None]:
    """Make a function return None instead of raising an error."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            _logger.info("a span is incomplete", exc_info=True)
            return None

    return call


def _api() -> Any:
    """Return the module ``opentelemetry.trace``; None if the program has not imported it."""
    trace = sys.modules.get("opentelemetry.trace")
    # While another thread imports the module, it lacks names. Then the program has no provider yet.
    return trace if hasattr(trace, "use_span") else None


def may_record() -> bool:
    """Return False if no span can be recorded. Callers ask before they compute costly attributes."""
    return _api() is not None


@_harmless
def _tracer() -> Tracer | None:
    """Return the tracer of the program's provider.

    Return None if the program has no provider, and while it suppresses spans, as an exporter does.
    """
    global _newest
    trace = _api()
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider) or _is_suppressed():
        return None
    newest = _newest
    if newest is None or newest[0] is not provider:
        newest = _newest = provider, provider.get_tracer("eoslog")
    return newest[1]


def _is_suppressed() -> bool:
    """Return True for calls of an exporter. If it writes with eoslog, each export would make spans to export."""
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value

    return bool(get_value(_SUPPRESS_INSTRUMENTATION_KEY))


def span(name: str, attributes: Attributes | None = None, *, kind: str = "INTERNAL") -> AbstractContextManager[Any]:
    """Return a context manager that records its block as a span: a child of the current one, and current itself.

    It returns the span; None without a provider. An error that leaves the block gives the span the status ERROR.

    Args:
        kind: a name of OpenTelemetry's ``SpanKind``.
    """
    found = start(name, attributes, kind=kind) if may_record() else None
    return _OFF if found is None else _recorded(found)


@contextmanager
def _recorded(found: Span) -> Iterator[Span]:
    try:
        with within(found):
            yield found
    except _NO_FAILURES:
        raise
    except BaseException as error:
        fail(found, error)
        raise
    finally:
        end(found)


@_harmless
def start(name: str, attributes: Attributes | None = None, *, kind: str = "INTERNAL") -> Span | None:
    """Start a span, which does not become current, and return it. Return None without a provider."""
    tracer = _tracer()
    if tracer is None:
        return None
    given = {key: value for key, value in (attributes or {}).items() if value is not None}
    return tracer.start_span(name, kind=_api().SpanKind[kind], attributes=given)


@_harmless
def start_request(verb: str, path: str | Sequence[str]) -> Span | None:
    """Start the span of a request to the object store. Return None outside of a span.

    So the requests of background work, which belong to no span, do not become traces of one span each.
    """
    trace = _api()
    if trace is None or not trace.get_current_span().is_recording():
        return None
    if not isinstance(path, str):
        path = path[0] if path else ""
    kind = _kind_of(path.partition(" ")[0])
    described = {"eoslog.verb": verb, "eoslog.object.kind": kind, "eoslog.object.path": path[:_LONGEST_VALUE]}
    return start(f"{verb} {kind}", described, kind="CLIENT")


def _kind_of(path: str) -> str:
    """Return the purpose of an object, as one of a few words."""
    directory, _, name = path.rpartition("/")
    match directory.split("/"):
        case ["__transaction_state", kind, *_]:
            return kind
        case ["__consumer_groups" | "__gateways", *_]:
            return "heartbeat"
        case [*_, "_delta_log"]:
            return "delta"
        case ["__iceberg", *_]:
            return "iceberg"
    return _KINDS.get(name.partition(".")[2], "other")


@_harmless
def current() -> SpanContext | None:
    """Return the context of the current span; None if there is none."""
    trace = _api()
    if trace is None:
        return None
    found: SpanContext = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


def within(parent: Span | None) -> AbstractContextManager[Any]:
    """Return a context manager that makes a started span current in its block."""
    if parent is None:
        return _OFF
    manager: AbstractContextManager[Any] = _api().use_span(
        parent, record_exception=False, set_status_on_exception=False
    )
    return manager


def rows_of(topics: Iterable[str], rows: int) -> dict[str, Any]:
    """Return the attributes of rows and their topics. OpenTelemetry's destination is a single topic."""
    names = sorted(topics)
    return {
        "messaging.batch.message_count": rows,
        "messaging.destination.name": names[0] if len(names) == 1 else None,
        "eoslog.topics": names,
    }


@_harmless
def describe(found: Span | None, attributes: Attributes) -> None:
    """Add attributes to a span."""
    if found is not None:
        found.set_attributes({key: value for key, value in attributes.items() if value is not None})


@_harmless
def fail(found: Span | None, error: BaseException | str) -> None:
    """Give a span the status ERROR.

    Args:
        error: the error, or a word for it. Only the name of an error's class and its code are recorded.
    """
    if found is None:
        return
    named = error if isinstance(error, str) else type(error).__name__
    found.set_attribute("error.type", named)
    found.set_status(_api().StatusCode.ERROR, str(getattr(error, "code", named)))


@_harmless
def end(found: Span | None) -> None:
    """End a span."""
    if found is not None:
        found.end()


@_harmless
def link(found: Span | None, other: SpanContext | None) -> None:
    """Link a span to another one. Do nothing if both are the same, or if the first has ended."""
    if found is not None and other is not None and found.is_recording() and found.get_span_context() != other:
        found.add_link(other)


@_harmless
def link_senders(found: Span | None, traceparents: Iterable[bytes]) -> None:
    """Link a span to the spans in which records were sent.

    Args:
        traceparents: the values of the records' headers ``traceparent`` (W3C Trace Context). Invalid ones are skipped.
    """
    if found is None:
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    extract = TraceContextTextMapPropagator().extract
    for value in list(dict.fromkeys(traceparents))[:_MOST_LINKS]:
        sender = get_current_span(extract({"traceparent": value.decode(errors="replace")}, Context()))
        if sender.get_span_context().is_valid:
            link(found, sender.get_span_context())


def carried(function: Callable[[T], R]) -> Callable[[T], R]:
    """Return the function for other threads: when they call it, the present span is current."""
    if _tracer() is None:
        return function
    context = copy_context()
    # Threads may not share a context, so each call gets a copy.
    return lambda given: context.copy().run(function, given)
