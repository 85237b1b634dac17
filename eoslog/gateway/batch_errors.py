"""Why a record batch is refused. Each error stands for one error code of Kafka's."""

from __future__ import annotations


class BatchError(Exception):
    """Base of the errors below. The message tells the client what is wrong."""


class CorruptBatch(BatchError):
    """The bytes were damaged on their way, or are no record batch: ``CORRUPT_MESSAGE``. Clients send them again."""


class InvalidBatch(BatchError):
    """An intact batch breaks a rule of Kafka's: ``INVALID_RECORD``. Clients do not send it again."""


class InvalidBatchTimestamp(BatchError):
    """The client says that a broker gave the timestamps: ``INVALID_TIMESTAMP``."""


class InvalidBatchEpoch(BatchError):
    """The epoch of the producer is older than any that a producer id has: ``INVALID_PRODUCER_EPOCH``."""


class BatchTooLarge(BatchError):
    """The records of a batch are above a limit: ``MESSAGE_TOO_LARGE``. Java's producer divides the batch."""


class UnsupportedBatch(BatchError):
    """The version or the compression of a batch is unknown: ``UNSUPPORTED_FOR_MESSAGE_FORMAT``."""
