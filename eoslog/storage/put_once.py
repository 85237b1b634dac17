"""Putting an object that other processes may put at the same time, if it does not matter whose object is stored."""

from __future__ import annotations

from eoslog.errors import StoreUnavailable
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.object_store import ObjectStore, PutOutcome

_ATTEMPTS = 5
_BACKOFF = Backoff(first_ms=75, longest_ms=5_000)


def put_once(store: ObjectStore, environment: Environment, path: str, body: bytes) -> bool:
    """Put an object unless one of this path exists. Conflicts and lost answers are retried.

    Returns:
        True if the object has this body. After False the caller reads which object it is: another process may have
        put it, or an earlier attempt of this call.

    Raises:
        StoreUnavailable: the outcome is unknown. The put may land later.
    """
    failures = 0
    while True:
        try:
            outcome = store.put_if_absent(path, body)
        except StoreUnavailable:
            if failures == _ATTEMPTS - 1:
                raise
        else:
            if outcome is not PutOutcome.CONFLICT:
                return outcome is PutOutcome.CREATED
        failures += 1
        environment.sleep_ms(_BACKOFF.pause_ms(failures, (1 + environment.jitter()) / 2))
