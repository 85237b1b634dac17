"""Errors, named as Kafka names them and grouped by what the caller does next (KIP-1050).

Every message begins with a stable code such as ``[EOSLOG_PRODUCER_FENCED]``, because through Spark only its text
arrives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

LONGEST_MESSAGE = 8_000
"""Characters: what a store or a user gives is repeated in messages, and logs must not be filled with it."""
_LONGEST_GIVEN = 100
"""Characters."""
_CODE = re.compile(r"\A\[EOSLOG_[A-Z_]+\] ")


def one_line(text: str) -> str:
    """A text that is safe in a log and on a terminal: on one line, without control characters, and not too long."""
    if len(text) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        text = f"{text[:half]} ...{len(text) - 2 * half} characters... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else " " if each in "\n\r\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def shortened(given: object) -> str:
    """What a caller gave, as messages repeat it: its beginning alone if it is long."""
    text = str(given)
    return text if len(text) <= _LONGEST_GIVEN else f"{text[: _LONGEST_GIVEN - 3]}..."


def quoted(given: object) -> str:
    """What a caller gave, as Python writes it, and not whole if it is long."""
    return repr(shortened(given)) if isinstance(given, str) else shortened(repr(given))


def without_code(error: Exception | str) -> str:
    """What an error says, without the code that its message begins with: it is told within another."""
    return _CODE.sub("", str(error))


def first_problem(error: ValidationError) -> str:
    """Where in a value the first thing is that its model refuses, and what: ``entries.0.type: Field required``."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{place}: {first['msg']}"


class EosLogError(Exception):
    """Base of every error that eoslog raises on purpose."""

    code = "EOSLOG_ERROR"

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.code = "EOSLOG_" + re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).upper()

    def __init__(self, message: str) -> None:
        # Unpickling an error that came from another process calls this with the whole text, its code included.
        super().__init__(f"[{self.code}] {one_line(without_code(message))}")


class Wakeup(EosLogError):
    """``Consumer.wakeup`` ended a poll (Kafka's ``WakeupException``). Positions stay, and the next poll goes on.

    It is not a ``RetriableError``: a retry loop would ignore the request to stop.
    """


class RetriableError(EosLogError):
    """The same call may be made again."""


class AbortableError(EosLogError):
    """The transaction must be aborted; then the producer goes on."""


class ApplicationRecoverableError(EosLogError):
    """This client instance is done; a new one, initialised again, goes on."""


class FatalError(EosLogError):
    """Repeating the call cannot help; configuration, code or data must change."""


class ConcurrentTransactions(RetriableError):
    """A transaction that is open, or another step of the same transactional id, stands in the way for now."""


class StoreUnavailable(RetriableError):
    """The object store did not answer, or with an error that says nothing about the outcome."""


class UnstableOffsetCommit(RetriableError):
    """A prepared transaction may still set the group's offset of the partition; where to read on is not known yet."""


class RequestTimedOut(RetriableError):
    """The call's time was up; only the same call may be made again."""


class CommitStateUnknown(RequestTimedOut):
    """A put of a slot record was not answered in time: it may have landed, or may still land.

    A producer's call is repeated: earlier attempts of it may have the slot. Of any other append
    ``Store.resolve(error)`` finds out, by occupying the slot and reading it. Nothing that the record names may be
    deleted.
    """

    def __init__(self, message: str, *, slot: int = -1, token: str = "", is_published: bool = False) -> None:
        super().__init__(message)
        self.slot = slot
        self.token = token
        self.is_published = is_published
        """Whether ``token`` is the id of a request that other processes may append, in any slot after ``slot``."""


class TransactionAborted(AbortableError):
    """The transaction was aborted, by its own producer or by another."""


class InvalidProducerEpoch(AbortableError):
    """The producer's epoch is over: its transaction was aborted by a time-out or an administrator.

    Kafka lists it with the errors that end a client, and tells its users to abort and go on (KIP-588), as here.
    """


class DeliveryTimedOut(AbortableError):
    """Rows were not acknowledged in time and are given up; some may have been written all the same."""


class TransactionAbortable(AbortableError):
    """A step of the transaction failed; it can only be aborted."""


class StagedFilesExpired(AbortableError):
    """Staged files are older than vacuum's horizon; they may be gone and can no longer be committed."""


class IllegalGeneration(AbortableError):
    """The consumer group has moved on to another generation (KIP-447)."""


class UnknownMember(AbortableError):
    """The consumer is not, or no longer, a member of its group."""


class FencedInstanceId(ApplicationRecoverableError):
    """Another consumer has joined the group under this ``group_instance_id`` since (KIP-345)."""


class OutcomeLost(ApplicationRecoverableError):
    """An append was not answered, and the log no longer tells whether it landed: mostly, its slot was deleted since.

    What it was to write tells: ``admin.last_committed``, the group's offsets, or the rows.
    """


class OpenedBeforeFork(ApplicationRecoverableError):
    """An object that the parent process opened was used in a forked child. Open another one in the child."""


class ProducerFenced(ApplicationRecoverableError):
    """Another producer has initialised this transactional id since."""


class InvalidProducerIdMapping(ApplicationRecoverableError):
    """The producer id is not, or no longer, the one of this transactional id."""


class UnknownProducerId(ApplicationRecoverableError):
    """The producer id is not registered; it expired or never was."""


class OutOfOrderSequence(ApplicationRecoverableError):
    """A batch's sequence neither follows its producer's last one nor repeats an earlier batch."""


class InvalidTxnState(FatalError):
    """The call is not allowed in the transaction's state."""


class IllegalState(FatalError):
    """The call is not allowed in the client's state."""


class ConcurrentAccess(FatalError):
    """Another thread is using this object, which allows one thread at a time."""


class CheckpointMismatch(FatalError):
    """A streaming query's checkpoint is not the one after which its sink was written last: it is new, or older."""


class TransactionalIdNotFound(FatalError):
    """No such transactional id."""


class GroupIdNotFound(FatalError):
    """No such consumer group."""


class GroupNotEmpty(FatalError):
    """The consumer group has members, and this is done only to one without."""


class GroupSubscribedToTopic(FatalError):
    """A member of the consumer group subscribes to the topic, so its offsets are in use."""


class InvalidTransactionTimeout(FatalError):
    """The transaction time-out is not between 1 ms and the store's maximum."""


class UnknownTopicOrPartition(FatalError):
    """No such topic, or the topic has no such partition."""


class TopicAlreadyExists(FatalError):
    """A topic of this name exists."""


class InvalidTopic(FatalError):
    """The topic's name, partition count or configuration is not allowed."""


class OffsetOutOfRange(FatalError):
    """The offset lies outside of what the partition holds."""


class NoOffsetForPartition(FatalError):
    """The group has no committed offset and the reset policy is ``none``."""


class InvalidRequest(FatalError):
    """An argument is not allowed; the message names the valid ones."""


class InvalidOption(FatalError):
    """An option is unknown or its value not allowed; the message names the valid ones."""


class InvalidRegularExpression(FatalError):
    """A pattern is not a regular expression; the message has it."""


class InvalidRecord(FatalError):
    """A row that its topic does not take: one without a key, where only the newest row of each key is kept."""


class SchemaMismatch(FatalError):
    """The data's columns or types are not those of the topic."""


class UnsupportedSchema(FatalError):
    """A schema that a topic cannot store."""


class CorruptRecord(FatalError):
    """Stored bytes are not what the entry that names them says."""


class UnsupportedFormat(FatalError):
    """The store was written by a newer version, or needs a feature this one does not know."""


class NotAStore(FatalError):
    """There is no eoslog store at this place."""


class StoreVanished(NotAStore):
    """The store that was opened here was removed, or another was put in its place."""


class StoreAlreadyExists(FatalError):
    """There already is an eoslog store at this place."""


class StoreAccessDenied(FatalError):
    """The object store refused the request for want of permission, space or a valid request; nothing was written."""


class PutIfAbsentUnsupported(FatalError):
    """The object store does not enforce put-if-absent, so no exactly-once promise could be kept on it."""


class InvalidEntry(FatalError):
    """A log entry contradicts the state at its own slot; no correct writer makes one."""


class RecordFull(Exception):
    """Not an error: what was proposed does not fit into this record and goes into the next one."""


class Replayed(Exception):
    """Not an error: an application token at or below the committed one; the work was done before."""

    code = "EOSLOG_REPLAYED"

    def __init__(self, application_id: str, version: int, committed: int) -> None:
        super().__init__(f"version {version} of {application_id!r} was committed before (largest: {committed})")
        self.application_id = application_id
        self.version = version
        self.committed = committed
