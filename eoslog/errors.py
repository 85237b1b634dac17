"""All errors. They have Kafka's names, and their base classes say what the caller does next (KIP-1050).

Every message begins with a stable code such as ``[EOSLOG_PRODUCER_FENCED]``, because Spark passes on only the text.
"""

from __future__ import annotations

import re

from eoslog.wording import one_line, without_code


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
    """The same call may be repeated."""


class AbortableError(EosLogError):
    """The transaction must be aborted. Then the producer continues."""


class ApplicationRecoverableError(EosLogError):
    """This client must be closed. A new one, initialized again, continues."""


class FatalError(EosLogError):
    """Repeating the call cannot help. The configuration, the code or the data must change."""


class ConcurrentTransactions(RetriableError):
    """An open transaction, or another step of the same transactional id, prevents the call for now."""


class NotCoordinator(RetriableError):
    """Another gateway coordinates the consumer group (Kafka's NOT_COORDINATOR)."""


class StoreUnavailable(RetriableError):
    """The object store did not answer, or its error does not show the outcome."""


class UnstableOffsetCommit(RetriableError):
    """An open transaction may still commit the group's offset of the partition. So the position is not known yet."""


class RequestTimedOut(RetriableError):
    """The call timed out. Only the same call may be repeated."""


class CommitStateUnknown(RequestTimedOut):
    """A put of a slot record was not answered in time. It may have landed, or may still land.

    Repeat a producer's call: an earlier attempt of the call may have landed. For any other append, call
    ``Store.resolve(error)``: it fences the slot and reads it. Delete nothing that the record references.
    """

    def __init__(self, message: str, *, slot: int = -1, append_id: str = "", is_sent: bool = False) -> None:
        super().__init__(message)
        self.slot = slot
        self.append_id = append_id
        self.is_sent = is_sent
        """True if ``append_id`` is the id of a request that any process may append, in any slot after ``slot``."""


class TransactionAborted(AbortableError):
    """The transaction was aborted, by its own producer or by another process."""


class InvalidProducerEpoch(AbortableError):
    """The producer's epoch has ended, because a timeout or an administrator aborted its transaction.

    A batch of a producer without transactional id has an old epoch if its producer has raised the epoch since.

    Abort the transaction and continue (KIP-588). Kafka lists this error with those that end a client, but gives the
    same advice.
    """


class DeliveryTimedOut(AbortableError):
    """Rows were not acknowledged in time, and the producer gave them up. Some may have been written."""


class TransactionAbortable(AbortableError):
    """A step of the transaction failed. The transaction can only be aborted."""


class StagedFilesExpired(AbortableError):
    """Staged files are older than vacuum's horizon, or 24 hours old in a shared object. They may be deleted, so they
    cannot be committed."""


class CommitFailed(AbortableError):
    """The consumer group has gone on without this consumer (Kafka's ``CommitFailedException``). Nothing was committed.

    Poll again: the consumer goes on with its partitions, from the offsets that the group has committed.
    """


class IllegalGeneration(CommitFailed):
    """A partition has moved to another member since the generation of the commit (KIP-447, KIP-1251)."""


class UnknownMember(CommitFailed):
    """The consumer is not a member of its group, or no longer."""


class FencedInstanceId(ApplicationRecoverableError):
    """Another consumer has joined the group with the same ``group_instance_id`` (KIP-345)."""


class OutcomeLost(ApplicationRecoverableError):
    """An append was not answered, and the log can no longer show whether it landed. Usually its slot was deleted since.

    Look for its result instead: ``admin.last_committed``, the group's offsets, or the rows.
    """


class OpenedBeforeFork(ApplicationRecoverableError):
    """An object that the parent process opened was used in a forked child. Open another one in the child."""


class ProducerFenced(ApplicationRecoverableError):
    """Another producer has initialized this transactional id since."""


class InvalidProducerIdMapping(ApplicationRecoverableError):
    """The producer id does not belong to this transactional id, or no longer."""


class UnknownProducerId(ApplicationRecoverableError):
    """The producer id is not registered. It has expired, or never existed."""


class OutOfOrderSequence(ApplicationRecoverableError):
    """A batch's sequence neither follows its producer's last one nor repeats an earlier batch."""


class InvalidTxnState(FatalError):
    """The call is not allowed in the transaction's state."""


class IllegalState(FatalError):
    """The call is not allowed in the client's state."""


class ConcurrentAccess(FatalError):
    """A call of this object is running, in another thread or around a signal handler. It allows one call at a time."""


class CheckpointMismatch(FatalError):
    """A streaming query's checkpoint does not match the last commit to its sink: the checkpoint is new, or older."""


class TransactionalIdNotFound(FatalError):
    """No such transactional id."""


class GroupIdNotFound(FatalError):
    """No such consumer group."""


class GroupNotEmpty(FatalError):
    """The consumer group has members, but the call is only allowed for a group without members."""


class InconsistentGroupProtocol(FatalError):
    """The group's members use another protocol (Kafka's INCONSISTENT_GROUP_PROTOCOL).

    A group has consumers of eoslog or one coordinator: the gateway that all its clients of Kafka's protocol use.
    """


class GroupSubscribedToTopic(FatalError):
    """A member of the consumer group subscribes to the topic, so its offsets are in use."""


class InvalidTransactionTimeout(FatalError):
    """The transaction timeout is not between 1 ms and the maximum."""


class UnknownTopicOrPartition(FatalError):
    """No such topic, or the topic has no such partition."""


class TopicAlreadyExists(FatalError):
    """A topic of this name exists."""


class InvalidTopic(FatalError):
    """The topic's name, partition count or configuration is not allowed."""


class OffsetOutOfRange(FatalError):
    """The offset is outside the range of the partition."""


class NoOffsetForPartition(FatalError):
    """The group has no committed offset, and ``auto_offset_reset`` is ``none``."""


class InvalidRequest(FatalError):
    """An argument is not allowed. The message names the valid values."""


class InvalidOption(FatalError):
    """An option is unknown, or its value is not allowed. The message names the valid ones."""


class InvalidRegularExpression(FatalError):
    """A pattern is not a regular expression."""


class InvalidRecord(FatalError):
    """The topic does not accept the row: the topic is compacted, and the row has no key."""


class SerializationFailed(FatalError):
    """The application's serializer raised an error. The record was not added. The producer can be used further."""


class RecordDeserializationFailed(SerializationFailed):
    """The application's deserializer raised an error (Kafka's ``RecordDeserializationException``).

    The consumer's position stays before the record. To pass over the record, seek to ``offset + 1``.
    """

    def __init__(self, message: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SchemaMismatch(FatalError):
    """The data's columns or types are not those of the topic."""


class UnsupportedSchema(FatalError):
    """A schema that a topic cannot store."""


class CorruptRecord(FatalError):
    """Stored bytes do not match the log entry that references them."""


class UnsupportedFormat(FatalError):
    """The store was written by a newer version, or needs a feature that this version does not know."""


class NotAStore(FatalError):
    """There is no eoslog store at this URL."""


class StoreVanished(NotAStore):
    """The store that was opened here was removed, or replaced by another one."""


class StoreAlreadyExists(FatalError):
    """An eoslog store already exists at this URL."""


class StoreAccessDenied(FatalError):
    """The object store refused the request: permission is missing, or the request is invalid. Nothing was written."""


class StorageFull(StoreAccessDenied):
    """The disk of the store, or a quota of it, has no space left. Nothing was written. Repeat the call when it has."""


class PutIfAbsentUnsupported(FatalError):
    """The object store does not enforce put-if-absent, so it cannot guarantee exactly-once."""


class InvalidEntry(FatalError):
    """A log entry contradicts the state at its slot. No correct writer appends such an entry."""


class RecordFull(Exception):
    """Not an error: a request does not fit into this slot record and goes into the next one."""


class Replayed(Exception):
    """Not an error: the application version is at or below the committed one, so the work was committed before."""

    code = "EOSLOG_REPLAYED"

    def __init__(self, application_id: str, version: int, committed: int) -> None:
        super().__init__(f"version {version} of {application_id!r} was committed before (largest: {committed})")
        self.application_id = application_id
        self.version = version
        self.committed = committed
