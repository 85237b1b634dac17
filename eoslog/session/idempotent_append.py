"""Idempotent append: a request that got no answer is repeated until its outcome is known.

An attempt without an answer may have landed. Usually the next attempt finds the work of that attempt in the state. It
cannot find it if the state has changed since, for example because another producer has taken over. Then the log shows
whether the attempt landed: by the record in its slot, or, if it was sent to another process, by the records since then.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol, TypeVar

from eoslog.errors import (
    CommitStateUnknown,
    ConcurrentTransactions,
    EosLogError,
    OutcomeLost,
    Replayed,
    RetriableError,
    StoreAccessDenied,
)
from eoslog.log.append_queue import AppendAttempts
from eoslog.log.machine import Request, is_shareable
from eoslog.session.session import Session
from eoslog.session.time_limits import TimeLimits
from eoslog.storage.process import HomeProcess

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RepeatableRequest(Request[T_co], Protocol[T_co]):
    """A request that may be repeated if it got no answer."""

    @property
    def name(self) -> str:
        """The kind of request. To give a request up, a caller calls ``forget`` or makes a request of another name."""

    @property
    def is_final(self) -> bool:
        """True if the answer of an attempt that landed still counts when the newest state refuses the request.

        This is so for rows and commits: if they landed, their outcome never changes. For other requests only the newest
        state counts: another producer may have the identity now, or a prepared transaction may have ended.
        """


class IdempotentAppend:
    """The appends of one caller, one request at a time.

    The next request starts after the last one was answered or given up.
    """

    def __init__(self, store: Session, home: HomeProcess, limits: TimeLimits | None = None) -> None:
        """
        Args:
            home: the process of the caller.
            limits: the time limits of the caller. None: ``LogConfig.commit_timeout_ms``.
        """
        self._store = store
        self._home = home
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """Forget the request, after an answer or when the caller gives it up."""
        self._request: RepeatableRequest[Any] | None = None
        self._attempts = AppendAttempts()

    def __call__(self, request: RepeatableRequest[T]) -> T:
        """Append a request, for the first time or repeated. Return the answer of the attempt that landed.

        Raises:
            CommitStateUnknown: this attempt or an earlier one may have landed, or may land later.
            OutcomeLost: an attempt may have landed, and the log can no longer show it.
            RetriableError, StoreAccessDenied: no attempt has landed or will land.
            Any other error of the request: if the request is final, no attempt has landed or will land. Otherwise, the
                newest state refuses the request.
        """
        # Check here too: a callback of the user may fork during a call and return in the child.
        self._home.check(f"the {request.name} request")
        if self._request is None or request.name != self._request.name:
            self.forget()
        self._request = request
        attempts = self._attempts
        earlier = set(attempts.puts)
        try:
            answer = self._store.append(
                request,
                timeout_ms=None if self._limits is None else self._limits.remaining_for_delivery_ms(),
                attempts=attempts,
            )
        except CommitStateUnknown as error:
            # The log has searched up to this slot: no record before it has the request. The next search starts there.
            attempts.sent = [
                each._replace(slot=error.slot) if error.is_sent and each.request_id == error.append_id else each
                for each in attempts.sent
            ]
            raise
        except (EosLogError, Replayed) as error:
            if not _is_failure_of_the_store(error):
                return self._answer_of_an_earlier_attempt(request, error)
            # No attempt of this call has landed: the log raises these errors only then. Attempts of earlier calls stay.
            attempts.puts = {put: attempts.puts[put] for put in attempts.puts if put in earlier}
            if not attempts.puts and not attempts.sent:
                raise
            # This failure says nothing about attempts of earlier calls: they may still land.
            raise self._unknown() from error
        # Forget only after an answer: an interrupt such as Ctrl-C may come between a put and its answer.
        self.forget()
        return answer

    def _answer_of_an_earlier_attempt(self, request: RepeatableRequest[T], refusal: Exception) -> T:
        """Return the answer of the attempt that landed. Raise the refusal if none has.

        The refusal may be the effect of an earlier attempt: a producer that has committed is refused a second time.
        """
        landed = self.landed() if request.is_final else None
        if landed is None:
            raise refusal
        self._store.environment.reached("client.append.earlier_attempt_found")
        answer: T = landed[0]
        self.forget()
        return answer

    def _unknown(self) -> CommitStateUnknown:
        # Prefer the id of the request: this process also writes it into its own records, so it finds the record of
        # either process.
        attempts = self._attempts
        is_sent = bool(attempts.sent)
        slot, append_id = attempts.sent[-1][:2] if is_sent else next(reversed(attempts.puts))
        return CommitStateUnknown(
            f"{self._store.url}: an attempt was not answered, and its outcome could not be read. It may have landed, "
            "or may land later. Repeat the same call: nothing is done twice",
            slot=slot,
            append_id=append_id,
            is_sent=is_sent,
        )

    def landed(self) -> tuple[Any] | None:
        """Find out the outcome of the attempts so far, without a new attempt.

        After this has returned, no attempt lands any more. For a request that other processes may append, this holds
        only if the newest state refuses the request.

        Returns:
            A tuple with the answer of the attempt that landed; None if no attempt has landed.

        Raises:
            CommitStateUnknown: the store did not answer.
            OutcomeLost: the log can no longer show the outcome.
        """
        if not self._attempts.puts and not self._attempts.sent:
            return None
        try:
            self._store.describe()
            return self._landed_in_its_slot() or self._landed_by_sharing()
        except OutcomeLost:
            raise
        except EosLogError as error:
            raise self._unknown() from error

    def _landed_in_its_slot(self) -> tuple[Any] | None:
        puts = self._attempts.puts
        if not puts:
            return None
        # Look only at the last attempt. It was validated on the state before its slot, and that state lacked the work:
        # so no earlier attempt had landed.
        slot = max(put.slot for put in puts)
        winner = self._store.log.winner(slot, timeout_ms=None if self._limits is None else self._limits.remaining_ms())
        return next(((answer,) for put, answer in puts.items() if put == (slot, winner)), None)

    def _landed_by_sharing(self) -> tuple[Any] | None:
        # A shareable request that the newest state refuses is refused forever. So if no record has it now, none will.
        for sent in self._attempts.sent:
            found = self._store.log.appender.find_request(sent.slot, sent.request_id)
            if found is None or not is_shareable(self._request):
                continue
            # eoslog never writes a record that names this request with entries of another. Ignore such a record.
            with suppress(LookupError, ValueError):
                return (self._request.shared_answer(*found),)
        return None


def _is_failure_of_the_store(error: Exception) -> bool:
    """Return True if the object store failed, and False if the state machine refused the request.

    ``ConcurrentTransactions`` is retriable, but a refusal.
    """
    return isinstance(error, RetriableError | StoreAccessDenied) and not isinstance(error, ConcurrentTransactions)
