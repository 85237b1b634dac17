"""Idempotent append: a request without an answer is made again until its outcome is known.

An attempt without an answer may have landed. Mostly the next attempt finds its work in the state. It does not if the
state has moved on, for example because another producer has taken over. Then the slot of the unanswered attempt, or the
records after its publication, tell whether it landed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from eoslog.errors import (
    CommitStateUnknown,
    EosLogError,
    OutcomeLost,
    Replayed,
    RetriableError,
    StoreAccessDenied,
)
from eoslog.log.machine import Request, ShareableRequest
from eoslog.log.proposals import AppendAttempts
from eoslog.session.session import Session
from eoslog.storage.process import HomeProcess

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RepeatableRequest(Request[T_co], Protocol[T_co]):
    """A request that may be made again if it got no answer."""

    @property
    def name(self) -> str:
        """What it asks for. A caller that gives up a request calls ``forget``, or makes one of another name."""

    @property
    def is_final(self) -> bool:
        """Whether an earlier attempt counts although the newest state refuses the request.

        It is so for rows and commits: their rows show, or never will. For other requests only the newest state counts.
        By then another producer may have the identity, or a prepared transaction may have ended.
        """


class IdempotentAppend:
    """The appends of one caller. One request at a time is under way; another begins when it is over or given up."""

    def __init__(
        self, store: Session, home: HomeProcess, remaining_ms: Callable[[], int | None] = lambda: None
    ) -> None:
        """
        Args:
            home: the process of the caller.
            remaining_ms: how long the caller still waits (ms); None: as long as the log's settings say.
        """
        self._store = store
        self._home = home
        self._remaining_ms = remaining_ms
        self.forget()

    def forget(self) -> None:
        """Forget the request. Called when it was answered or given up."""
        self._request: RepeatableRequest[Any] | None = None
        self._attempts = AppendAttempts()

    def __call__(self, request: RepeatableRequest[T]) -> T:
        """Append a request, for the first time or again, and return the answer of the attempt that landed.

        Raises:
            CommitStateUnknown: this attempt, or one before it, may have landed or land later.
            OutcomeLost: an attempt may have landed, and the log no longer tells.
            RetriableError, StoreAccessDenied: no attempt has appended anything.
            Any other error of the request: if it is final, no attempt has landed or will. Else the newest state refuses
                the request.
        """
        # Check here too: a callback of the user's may fork during a call and return in the child.
        self._home.check(f"the {request.name} request")
        if self._request is None or request.name != self._request.name:
            self.forget()
        self._request = request
        attempts = self._attempts
        earlier = set(attempts.puts)
        try:
            answer = self._store.append(request, timeout_ms=self._remaining_ms(), attempts=attempts)
        except CommitStateUnknown as error:
            # No record up to the slot that the error names has the request.
            attempts.publications = [
                each._replace(slot=error.slot) if error.is_published and each.request_id == error.token else each
                for each in attempts.publications
            ]
            raise
        except (RetriableError, StoreAccessDenied) as error:
            # The log is sure that no attempt of this call has landed.
            attempts.puts = {put: attempts.puts[put] for put in attempts.puts if put in earlier}
            if not attempts.puts and not attempts.publications:
                raise
            # This failure tells nothing about attempts and publications that were sent before.
            raise self._unknown() from error
        except (EosLogError, Replayed):
            landed = self.landed() if request.is_final else None
            if landed is None:
                raise
            self._store.environment.reached("client.append.earlier_attempt_found")
            (answer,) = landed
        # Forget only after an answer: an interrupt, such as Ctrl-C, may come between a put and its answer.
        self.forget()
        return answer

    def _unknown(self) -> CommitStateUnknown:
        # A record of this process also names its published requests, so the request id finds either record.
        attempts = self._attempts
        is_published = bool(attempts.publications)
        slot, token = attempts.publications[-1][:2] if is_published else next(reversed(attempts.puts))
        return CommitStateUnknown(
            f"{self._store.url}: an attempt was not answered, nor could it be asked for since; it may have landed or "
            "land later. Repeat the same call: nothing is done twice",
            slot=slot,
            token=token,
            is_published=is_published,
        )

    def landed(self) -> tuple[Any] | None:
        """Find out what became of the attempts so far, without a new one.

        No attempt lands after this has answered. For a request that other processes may append, this holds only if the
        newest state refuses it.

        Returns:
            The answer of the attempt that landed; None if none has landed.

        Raises:
            CommitStateUnknown: the store does not tell.
            OutcomeLost: the log no longer tells.
        """
        try:
            return self._landed_in_its_slot() or self._landed_by_sharing()
        except OutcomeLost:
            raise
        except EosLogError as error:
            raise self._unknown() from error

    def _landed_in_its_slot(self) -> tuple[Any] | None:
        puts = self._attempts.puts
        if not puts:
            return None
        # Each attempt was validated on the state before its slot, which lacked the work. So no earlier attempt had
        # landed, and only the last one may have.
        slot = max(put.slot for put in puts)
        winner = self._store.log.winner(slot, timeout_ms=self._remaining_ms())
        return next(((answer,) for put, answer in puts.items() if put == (slot, winner)), None)

    def _landed_by_sharing(self) -> tuple[Any] | None:
        # A request that the newest state refuses is refused for good. So if no record has it now, none will.
        for published in self._attempts.publications:
            found = self._store.log.appender.find_request(published.slot, published.request_id)
            if found is None or not isinstance(self._request, ShareableRequest):
                continue
            # eoslog writes no record that names the request for other entries: ignore such a record.
            with suppress(LookupError, ValueError):
                return (self._request.shared_answer(*found),)
        return None
