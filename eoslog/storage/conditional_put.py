"""Conditional put: put an object if absent, until it is known which object has its path.

These logs grow this way: the slots, the versions of a Delta table, and the decisions of a copy. Several processes may
put the next object of a log, and one of them wins.

A put without an answer may land at any later moment. So only the object itself shows which put has won. A missing
answer, a conflict or a missing object shows nothing. A process puts the next object only after it knows the winner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from eoslog.errors import CorruptRecord, EosLogError, StoreUnavailable, UnsupportedFormat
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, PutOutcome

T = TypeVar("T")
TIMEOUT_MS = 60_000
_BACKOFF = Backoff(first_ms=5, longest_ms=2_000)


@dataclass(frozen=True, slots=True)
class Won:
    """The object at the path is that of this put."""

    was_found: bool
    """False if the object store answered that it created the object. True if it answered that the object exists."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another object has the path."""

    body: bytes
    """The bytes of that object."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The put may have landed, or may land later."""

    error: StoreUnavailable


def put_next(
    store: ObjectStore,
    environment: Environment,
    path: str,
    body: bytes,
    *,
    deadline_ms: int | None = None,
    is_own: Callable[[bytes], bool] | None = None,
) -> Won | Lost | Unknown:
    """Put an object if absent, again and again until the outcome is known or the time is up.

    Args:
        deadline_ms: when to give up (elapsed time, ms). None: ``TIMEOUT_MS`` from now. At least one put is sent.
        is_own: returns True if the given bytes are those of this put. It raises ``CorruptRecord`` for bytes that were
            cut short. None: the bytes are compared with ``body``.

    Raises:
        StoreUnavailable: the object store refused every put. Nothing landed, and nothing will.
        UnsupportedFormat: ``is_own`` does not know the format, so another object has the path.
        Any other error of a put: nothing landed, and nothing will.
    """
    if deadline_ms is None:
        deadline_ms = environment.monotonic_ms() + TIMEOUT_MS
    may_have_landed = False
    failures = 0
    while True:
        try:
            outcome = store.put_if_absent(path, body)
        except StoreUnavailable:
            # No answer. The next put shows whether this one landed.
            may_have_landed = True
        except EosLogError as error:
            # This refusal says nothing about an earlier put that got no answer.
            if may_have_landed:
                return _unknown(store, path, error)
            raise
        else:
            if outcome is PutOutcome.CREATED:
                return Won(was_found=False)
            if outcome is PutOutcome.EXISTS:
                return _compared(store, environment, path, is_own=is_own or body.__eq__, deadline_ms=deadline_ms)
        if environment.monotonic_ms() > deadline_ms:
            if may_have_landed:
                return _unknown(store, path)
            raise StoreUnavailable(
                f"{store.url} refused every put of {path} until the time was up. Nothing was written"
            )
        failures += 1
        back_off(environment, failures, deadline_ms)


def put_once(store: ObjectStore, environment: Environment, path: str, body: bytes) -> bytes:
    """Put an object unless one of this path exists, and return the bytes of the object that has the path.

    Raises:
        StoreUnavailable: the put may land later, or the object store refused every put.
    """
    match put_next(store, environment, path, body):
        case Won():
            return body
        case Lost(found):
            return found
        case Unknown(error):
            raise error


def read_until_whole(
    store: ObjectStore, environment: Environment, path: str, *, decode: Callable[[bytes], T], deadline_ms: int
) -> tuple[bytes, T] | None:
    """Return the bytes of an object and their decoded content; None if no object has the path. The object is durable.

    Bytes for which ``decode`` raises ``CorruptRecord`` are read again: the answer may have been cut short.
    """
    failures = 0
    while True:
        try:
            body = store.get(path).body
            # The caller acts on what it has read. So a crash of this host must not undo it.
            store.make_durable(path)
            return body, decode(body)
        except ObjectNotFound:
            return None
        except (StoreUnavailable, CorruptRecord):
            if environment.monotonic_ms() > deadline_ms:
                raise
        failures += 1
        back_off(environment, failures, deadline_ms)


def back_off(environment: Environment, failures: int, deadline_ms: int | None = None) -> None:
    """Wait before the next attempt, but not past the deadline (elapsed time, ms)."""
    wait_ms = _BACKOFF.pause_ms(failures, environment.jitter())
    if deadline_ms is not None:
        wait_ms = max(0, min(wait_ms, deadline_ms + 1 - environment.monotonic_ms()))
    environment.sleep_ms(wait_ms)


def _compared(
    store: ObjectStore, environment: Environment, path: str, *, is_own: Callable[[bytes], bool], deadline_ms: int
) -> Won | Lost | Unknown:
    """Return the outcome of a put that was answered with ``EXISTS``.

    The object may be that of an earlier attempt without an answer. The object store's client may also repeat a put
    itself, and then see its own put as a lost race.
    """
    try:
        found = read_until_whole(store, environment, path, decode=is_own, deadline_ms=deadline_ms)
    except UnsupportedFormat:
        raise
    except EosLogError as error:
        return _unknown(store, path, error)
    if found is None:
        # The object has been deleted since. It may have been that of this put.
        return _unknown(store, path)
    body, is_won = found
    return Won(was_found=True) if is_won else Lost(body)


def _unknown(store: ObjectStore, path: str, cause: EosLogError | None = None) -> Unknown:
    error = StoreUnavailable(
        f"{store.url}: it is not known whether the put of {path} landed; it may land later. Try again"
    )
    error.__cause__ = cause
    return Unknown(error)
