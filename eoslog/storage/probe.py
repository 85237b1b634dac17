"""A probe whether an object store enforces put-if-absent. Every guarantee of eoslog depends on it."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from eoslog.errors import PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.object_store import ObjectStore, PutOutcome

PROBE_DIRECTORY = ".probe/"
_RACERS = 8
_ROUNDS = 4
_ATTEMPTS = 5
_BACKOFF = Backoff(first_ms=75, longest_ms=10_000)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result for a store that passed the probe."""

    put_if_absent: bool
    races: int
    """The number of concurrent creates of one key; each had exactly one winner."""


def probe_put_if_absent(store: ObjectStore, environment: Environment) -> ProbeResult:
    """Create keys twice, one after the other and concurrently. Each time exactly one writer must win.

    A race may go right by chance, so it is repeated. A store that first checks and then writes is found with high
    probability, but not with certainty.

    Raises:
        PutIfAbsentUnsupported: a key had no winner, or more than one.
        StoreUnavailable: the store's answers were lost.
    """
    directory = f"{PROBE_DIRECTORY}{environment.new_id()}"
    keys = [f"{directory}/twice", *(f"{directory}/race-{number}" for number in range(_ROUNDS))]
    try:
        _probe_twice(store, environment, keys[0])
        with ThreadPoolExecutor(_RACERS) as racers:
            for key in keys[1:]:
                _probe_race(store, environment, key, racers)
    finally:
        # A key that stays does no harm, and a writer may lack the permission to delete.
        with contextlib.suppress(StoreAccessDenied, StoreUnavailable):
            store.delete(keys)
    return ProbeResult(put_if_absent=True, races=_ROUNDS)


def _probe_twice(store: ObjectStore, environment: Environment, key: str) -> None:
    first, second = b"first", b"second"
    if not _created(store, environment, key, first):
        raise _unsupported(store, "the first create of a key got the answer that the key exists")
    if _created(store, environment, key, second):
        raise _unsupported(store, "the second create of a key got the answer that it made the key")
    stored = store.get(key).body
    if stored not in (first, second):
        raise PutIfAbsentUnsupported(
            f"{store.url}: an object has other bytes than were put: {stored[:40]!r}. Use another object store."
        )
    if stored != first:
        raise _unsupported(store, "the second create of a key replaced the object")


def _probe_race(store: ObjectStore, environment: Environment, key: str, racers: ThreadPoolExecutor) -> None:
    start = threading.Barrier(_RACERS)

    def race(number: int) -> bool:
        start.wait()
        return _created(store, environment, key, str(number).encode())

    winners = [number for number, won in enumerate(racers.map(race, range(_RACERS))) if won]
    body = store.get(key).body
    if [str(winner).encode() for winner in winners] != [body]:
        raise _unsupported(
            store, f"{len(winners)} of {_RACERS} concurrent creates of a key got the answer that they made it"
        )


def _created(store: ObjectStore, environment: Environment, key: str, body: bytes) -> bool:
    """Return True if this body was stored under the key. Lost answers and conflicts are retried."""
    lost: StoreUnavailable | None = None
    for attempt in range(_ATTEMPTS):
        try:
            outcome = store.put_if_absent(key, body)
        except StoreUnavailable as error:
            lost = error
        else:
            if outcome is PutOutcome.CREATED:
                return True
            if outcome is PutOutcome.EXISTS:
                return lost is not None and store.get(key).body == body
        environment.sleep_ms(_BACKOFF.pause_ms(attempt + 1, (1 + environment.jitter()) / 2))
    cause = f" The last time: {lost}" if lost is not None else ""
    raise StoreUnavailable(f"{store.url}: the probe's puts were not answered {_ATTEMPTS} times. Try again.{cause}")


def _unsupported(store: ObjectStore, finding: str) -> PutIfAbsentUnsupported:
    return PutIfAbsentUnsupported(
        f"{store.url}: {finding}, so it does not enforce put-if-absent and cannot hold a store. Use one that does, such"
        " as Amazon S3 or a local file system."
    )
