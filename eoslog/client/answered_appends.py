"""What a producer appends, by requests that are made again while they have no answer.

An attempt without an answer may have landed all the same. Mostly the next one finds its work in the state. It does not
if the state has moved on, to another producer say: then the slot of the unanswered attempt says whose it is.
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
)
from eoslog.rules.draft import Draft
from eoslog.store.process import HomeProcess

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

    def __init__(self, store: Store, limits: TimeLimits, home: HomeProcess) -> None:
        self._home = home
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
            OutcomeLost: an attempt may have landed, and the log no longer tells.
            RetriableError, StoreAccessDenied: no attempt has appended anything.
            Whatever else ``propose`` raises: of rows and a commit, no attempt landed or will. Of the others, what holds
                now.
        """
        # Check here too: a callback of the user's may fork during a call and return in the child.
        self._home.check(f"the {request.value} request")
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
        if not self._unanswered:
            return None
        # What went to a slot was proposed to the state before it, which lacked the work: only the last is in question.
        slot = max(attempt.slot for attempt in self._unanswered)
        try:
            winner = _Attempt(slot, self._store.log.winner(slot, timeout_ms=self._limits.remaining_ms()))
        except OutcomeLost:
            raise
        except EosLogError as error:
            raise self._unknown() from error
        return winner if winner in self._unanswered else None
