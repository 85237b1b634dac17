"""What a producer appends, by requests that are made again while they have no answer.

An attempt without an answer may have landed all the same. Mostly the next one finds its work in the state. It does not
if another producer came in between: then the slot of the unanswered attempt says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from eoslog.client.time_limits import TimeLimits
from eoslog.errors import (
    CommitStateUnknown,
    EosLogError,
    OutcomeLost,
    RetriableError,
    StoreAccessDenied,
    without_code,
)
from eoslog.rules.draft import Draft

if TYPE_CHECKING:
    from eoslog.client.store import Store

T = TypeVar("T")


class Request(Enum):
    """What a producer asks of the log."""

    INIT = "init"
    ROWS = "rows"
    """Batches without a transaction."""
    BATCHES = "batches"
    """Those of a transaction."""
    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"


_SHOWS_FOR_GOOD = frozenset({Request.ROWS, Request.COMMIT})
"""Where it matters what became of an attempt, though the newest state refuses the request: its rows show, or never
will. Of the others the newest state counts: an identity may be another's by now, a prepared transaction ended."""


class _Attempt(NamedTuple):
    """The put of a slot."""

    slot: int
    token: str


class AnsweredAppends:
    """Appends of one producer. One request at a time is under way; another begins when it is over or given up."""

    def __init__(self, store: Store, limits: TimeLimits) -> None:
        self._store = store
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """The request was answered, or given up."""
        self._request: Request | None = None
        self._unanswered: dict[_Attempt, Any] = {}
        """Attempts that may have landed, or may land yet, with what each is answered with if it has."""

    def __call__(self, request: Request, propose: Callable[[Draft], T]) -> T:
        """Append what ``propose`` adds, for the first time or again, and return the answer of the attempt that landed.

        Raises:
            CommitStateUnknown: this attempt, or one before it, may have landed or land later.
            OutcomeLost: so it is, and the log no longer tells.
            RetriableError, StoreAccessDenied: nothing was appended, by no attempt.
            Whatever else ``propose`` raises: as before, if it is rows or a commit; else it says what holds now.
        """
        if request is not self._request:
            self.forget()
            self._request = request
        unanswered = self._unanswered
        of_this_call: list[_Attempt] = []
        proposed: T

        def noted(draft: Draft) -> T:
            nonlocal proposed
            proposed = propose(draft)
            return proposed

        def claimed(slot: int, token: str) -> None:
            of_this_call.append(_Attempt(slot, token))
            unanswered[of_this_call[-1]] = proposed

        try:
            answer = self._store.append(
                noted, timeout_ms=self._limits.remaining_for_delivery_ms(), when_claimed=claimed
            )
        except CommitStateUnknown:
            raise
        except (RetriableError, StoreAccessDenied) as error:
            self._drop(of_this_call)
            if not unanswered:
                raise
            # What fails now says nothing of what was sent before.
            raise self._unknown() from error
        except EosLogError:
            self._drop(of_this_call)
            landed = self._landed() if request in _SHOWS_FOR_GOOD else None
            if landed is None:
                raise
            self._store.environment.reached("client.producer.overtaken")
            answer = unanswered[landed]
        # Whatever else ends the call, Ctrl-C say, may come between a put and its answer.
        self.forget()
        return answer

    def _drop(self, attempts: list[_Attempt]) -> None:
        for attempt in attempts:
            del self._unanswered[attempt]

    def _unknown(self) -> CommitStateUnknown:
        slot, token = next(reversed(self._unanswered))
        return CommitStateUnknown(
            f"{self._store.url}: a put of slot {slot} was not answered, nor could it be asked for since; it may have "
            "landed or land later. Repeat the same call: nothing is done twice",
            slot=slot,
            token=token,
        )

    def _landed(self) -> _Attempt | None:
        """The attempt that landed after all; if there is none, none will land any more."""
        for slot in sorted({attempt.slot for attempt in self._unanswered}, reverse=True):
            try:
                token = self._store.log.winner(slot, timeout_ms=self._limits.remaining_ms())
            except (RetriableError, StoreAccessDenied) as error:
                raise self._unknown() from error
            except OutcomeLost:
                raise
            except EosLogError as error:
                raise OutcomeLost(
                    f"whether the append to slot {slot} landed cannot be told: {without_code(error)}"
                ) from error
            if (slot, token) in self._unanswered:
                return _Attempt(slot, token)
        return None
