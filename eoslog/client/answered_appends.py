"""What a producer appends, by requests that are made again while they have no answer.

An attempt without an answer may have landed all the same. Mostly the next one finds its work in the state. It does not
if the state has moved on, to another producer say: then the slot of the unanswered attempt says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from eoslog.log.proposals import SharedRequest
from eoslog.rules.draft import Draft
from eoslog.rules.entries import Entry
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


class Shareable(NamedTuple):
    """A request as other processes may append it."""

    entries: Sequence[Entry]
    answer: Callable[[Sequence[Mapping[str, Any]], int], Any]
    """Makes the answer from the entries as they stand in the log, and their slot."""


class _Attempt(NamedTuple):
    """The put of a slot."""

    slot: int
    token: str


class _Publication(NamedTuple):
    """A request that other processes may append."""

    slot: int
    """The newest slot that was known before."""
    request_id: str
    answer: Callable[[Sequence[Mapping[str, Any]], int], Any]


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
        self._published: list[_Publication] = []

    def __call__(self, request: Request, propose: Callable[[Draft], T], shareable: Shareable | None = None) -> T:
        """Append what ``propose`` adds, for the first time or again, and return the answer of the attempt that landed.

        Args:
            shareable: the same as a request that other processes may append.

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

        def published(slot: int, request_id: str) -> None:
            assert shareable is not None
            self._published.append(_Publication(slot, request_id, shareable.answer))

        shared = None if shareable is None else SharedRequest(*shareable, when_published=published)
        try:
            answer = self._store.append(
                noted,
                timeout_ms=self._limits.remaining_for_delivery_ms(),
                when_claimed=claimed,
                shared=shared,
            )
        except CommitStateUnknown as error:
            # No record up to the slot that the error names has the request.
            self._published = [
                each._replace(slot=error.slot) if error.is_published and each.request_id == error.token else each
                for each in self._published
            ]
            raise
        except (RetriableError, StoreAccessDenied) as error:
            self._drop(of_this_call)
            if not unanswered and not self._published:
                raise
            # What fails now says nothing of what was sent before.
            raise self._unknown() from error
        except EosLogError:
            landed = self._landed() if request in _SHOWS_FOR_GOOD else None
            if landed is None:
                raise
            self._store.environment.reached("client.producer.overtaken")
            (answer,) = landed
        # Whatever else ends the call, Ctrl-C say, may come between a put and its answer.
        self.forget()
        return answer

    def _drop(self, attempts: list[_Attempt]) -> None:
        for attempt in attempts:
            del self._unanswered[attempt]

    def _unknown(self) -> CommitStateUnknown:
        # The record of this process names its published requests, too.
        slot, token = self._published[-1][:2] if self._published else next(reversed(self._unanswered))
        return CommitStateUnknown(
            f"{self._store.url}: an attempt was not answered, nor could it be asked for since; it may have landed or "
            "land later. Repeat the same call: nothing is done twice",
            slot=slot,
            token=token,
            is_published=bool(self._published),
        )

    def _landed(self) -> tuple[Any] | None:
        """The answer of the attempt that landed after all; if there is none, none will land any more."""
        try:
            return self._landed_in_its_slot() or self._landed_by_sharing()
        except OutcomeLost:
            raise
        except EosLogError as error:
            raise self._unknown() from error

    def _landed_in_its_slot(self) -> tuple[Any] | None:
        if not self._unanswered:
            return None
        # What went to a slot was proposed to the state before it, which lacked the work: only the last is in question.
        slot = max(attempt.slot for attempt in self._unanswered)
        winner = _Attempt(slot, self._store.log.winner(slot, timeout_ms=self._limits.remaining_ms()))
        return (self._unanswered[winner],) if winner in self._unanswered else None

    def _landed_by_sharing(self) -> tuple[Any] | None:
        # A request that is refused once is refused for ever. So what no record has now, none will have.
        for publication in self._published:
            found = self._store.log.find_request(publication.slot, publication.request_id)
            if found is None:
                continue
            # No record of eoslog's names the request for other entries.
            with suppress(LookupError, ValueError):
                return (publication.answer(*found),)
        return None
