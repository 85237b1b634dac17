"""What a producer appends, by requests that are made again while they have no answer.

An attempt without an answer may have landed all the same. Mostly the next one finds its work in the state. It does not
if another producer came in between: then the slot of the unanswered attempt says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from eoslog.client.time_limits import TimeLimits
from eoslog.errors import CommitStateUnknown, EosLogError, RetriableError, StoreAccessDenied
from eoslog.rules.draft import Draft

if TYPE_CHECKING:
    from eoslog.client.store import Store

T = TypeVar("T")


class Request(Enum):
    """What a producer asks of the log."""

    INIT = "init"
    BATCHES = "batches"
    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"


_DONE_FOR_GOOD = frozenset({Request.BATCHES, Request.COMMIT, Request.ABORT})
"""What has landed of these stays done, whatever follows. An identity and a prepared transaction may be another's, or
over, by the time that their producer learns of them: so what counts for it is the newest state."""


class _Unanswered(NamedTuple):
    """An attempt that may have landed, or may land yet, and what it is answered with if it has."""

    error: CommitStateUnknown
    answer: Any


class AnsweredAppends:
    """Appends of one producer. One request at a time is under way; another begins when it is over or given up."""

    def __init__(self, store: Store, limits: TimeLimits) -> None:
        self._store = store
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """The request was answered, or given up."""
        self._request: Request | None = None
        self._unanswered: list[_Unanswered] = []

    def __call__(self, request: Request, propose: Callable[[Draft], T]) -> T:
        """Append what ``propose`` adds, for the first time or again, and return the answer of the attempt that landed.

        Raises:
            CommitStateUnknown: this attempt, or one before it, may have landed or land later.
            OutcomeLost: so it was, and its slot has been deleted since.
            RetriableError: nothing was appended, by no attempt.
            Whatever else ``propose`` raises: as before. Of an init or a prepare it says what holds now.
        """
        if request is not self._request:
            self.forget()
            self._request = request
        answers: dict[int, T] = {}

        def noted(draft: Draft) -> T:
            answers[draft.slot] = answer = propose(draft)
            return answer

        try:
            answer = self._store.append(noted, timeout_ms=self._limits.remaining_for_delivery_ms())
        except CommitStateUnknown as error:
            self._note(_Unanswered(error, answers.get(error.slot)))
            raise
        except (RetriableError, StoreAccessDenied) as error:
            if not self._unanswered:
                raise
            # What fails now says nothing of what was sent before.
            raise self._unanswered[-1].error from error
        except EosLogError:
            landed = self._landed() if request in _DONE_FOR_GOOD else None
            if landed is None:
                raise
            self._store.environment.reached("client.producer.overtaken")
            answer = landed.answer
        except BaseException as interrupt:
            if isinstance(interrupt.__cause__, CommitStateUnknown):
                self._note(_Unanswered(interrupt.__cause__, answers.get(interrupt.__cause__.slot)))
            raise
        self.forget()
        return answer

    def _note(self, attempt: _Unanswered) -> None:
        if self._unanswered and self._unanswered[-1].error.slot != attempt.error.slot:
            # It went on to another slot from a state without the work, so nothing had landed before.
            self._unanswered.clear()
        self._unanswered.append(attempt)

    def _landed(self) -> _Unanswered | None:
        """The attempt that landed after all; if there is none, none will land any more."""
        for attempt in self._unanswered:
            if self._store.resolve(attempt.error, timeout_ms=self._limits.remaining_ms()):
                return attempt
        return None
