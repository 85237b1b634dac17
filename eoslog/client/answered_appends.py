"""Idempotent appends of a producer: a request without an answer is made again until its outcome is known.

An attempt without an answer may have landed. Mostly the next attempt finds its work in the state. It does not if the
state has moved on, for example because another producer has taken over. Then the slot of the unanswered attempt, or the
records after its publication, tell whether it landed.
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
    """Batches of a transaction."""
    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"


_SHOWS_FOR_GOOD = frozenset({Request.ROWS, Request.COMMIT})
"""Requests whose earlier attempts matter although the newest state refuses them: their rows show, or never will. For
other requests only the newest state matters. By then another producer may have the identity, or a prepared transaction
may have ended."""


class Shareable(NamedTuple):
    """A request in the form in which other processes may append it."""

    entries: Sequence[Entry]
    answer: Callable[[Sequence[Mapping[str, Any]], int], Any]
    """Makes the answer from the entries as they are in the log, and their slot."""


class _Attempt(NamedTuple):
    """The put of a slot."""

    slot: int
    token: str


class _Publication(NamedTuple):
    """A request that other processes may append."""

    slot: int
    """The newest slot that this process knew when it published."""
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
        """Forget the request. Called when it was answered or given up."""
        self._request: Request | None = None
        self._unanswered: dict[_Attempt, Any] = {}
        """Attempts that may have landed, or may land yet. The value is the answer if the attempt has landed."""
        self._published: list[_Publication] = []

    def __call__(self, request: Request, propose: Callable[[Draft], T], shareable: Shareable | None = None) -> T:
        """Append what ``propose`` adds, for the first time or again, and return the answer of the attempt that landed.

        Args:
            shareable: the same work in the form in which other processes may append it; None if they may not.

        Raises:
            CommitStateUnknown: this attempt, or one before it, may have landed or land later.
            OutcomeLost: an attempt may have landed, and the log no longer tells.
            RetriableError, StoreAccessDenied: no attempt has appended anything.
            Any other error of ``propose``: for rows and commits, no attempt has landed or will. For other requests, the
                newest state refuses the request.
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
            # This failure tells nothing about attempts and publications that were sent before.
            raise self._unknown() from error
        except EosLogError:
            landed = self._landed() if request in _SHOWS_FOR_GOOD else None
            if landed is None:
                raise
            self._store.environment.reached("client.producer.overtaken")
            (answer,) = landed
        # Forget only after an answer: an interrupt, such as Ctrl-C, may come between a put and its answer.
        self.forget()
        return answer

    def _drop(self, attempts: list[_Attempt]) -> None:
        for attempt in attempts:
            del self._unanswered[attempt]

    def _unknown(self) -> CommitStateUnknown:
        # A record of this process also names its published requests, so the request id finds either record.
        slot, token = self._published[-1][:2] if self._published else next(reversed(self._unanswered))
        return CommitStateUnknown(
            f"{self._store.url}: an attempt was not answered, nor could it be asked for since; it may have landed or "
            "land later. Repeat the same call: nothing is done twice",
            slot=slot,
            token=token,
            is_published=bool(self._published),
        )

    def _landed(self) -> tuple[Any] | None:
        """Return the answer of the attempt that landed; None if none has landed. Then none will."""
        try:
            return self._landed_in_its_slot() or self._landed_by_sharing()
        except OutcomeLost:
            raise
        except EosLogError as error:
            raise self._unknown() from error

    def _landed_in_its_slot(self) -> tuple[Any] | None:
        if not self._unanswered:
            return None
        # Each attempt was validated on the state before its slot, which lacked the work. So no earlier attempt had
        # landed, and only the last one may have.
        slot = max(attempt.slot for attempt in self._unanswered)
        winner = _Attempt(slot, self._store.log.winner(slot, timeout_ms=self._limits.remaining_ms()))
        return (self._unanswered[winner],) if winner in self._unanswered else None

    def _landed_by_sharing(self) -> tuple[Any] | None:
        # A request that the newest state refuses is refused for good. So if no record has it now, none will.
        for publication in self._published:
            found = self._store.log.find_request(publication.slot, publication.request_id)
            if found is None:
                continue
            # eoslog writes no record that names the request for other entries: ignore such a record.
            with suppress(LookupError, ValueError):
                return (publication.answer(*found),)
        return None
