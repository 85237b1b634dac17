"""Kafka's error codes for the errors of a store and of record batches."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from kio.schema.errors import ErrorCode

from eoslog import errors
from eoslog.errors import EosLogError
from eoslog.gateway.batch_errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidBatchEpoch,
    InvalidBatchTimestamp,
    UnsupportedBatch,
)

_CODES: dict[type[EosLogError], ErrorCode] = {
    errors.UnknownTopicOrPartition: ErrorCode.unknown_topic_or_partition,
    errors.TopicAlreadyExists: ErrorCode.topic_already_exists,
    errors.InvalidTopic: ErrorCode.invalid_topic_exception,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.UnknownProducerId: ErrorCode.unknown_producer_id,
    errors.InvalidProducerEpoch: ErrorCode.invalid_producer_epoch,
    errors.InvalidProducerIdMapping: ErrorCode.invalid_producer_id_mapping,
    errors.ProducerFenced: ErrorCode.producer_fenced,
    errors.InvalidTxnState: ErrorCode.invalid_txn_state,
    errors.TransactionAborted: ErrorCode.transaction_abortable,
    errors.InvalidTransactionTimeout: ErrorCode.invalid_transaction_timeout,
    errors.UnknownMember: ErrorCode.unknown_member_id,
    errors.IllegalGeneration: ErrorCode.illegal_generation,
    errors.FencedInstanceId: ErrorCode.fenced_instance_id,
    errors.InconsistentGroupProtocol: ErrorCode.inconsistent_group_protocol,
    errors.NotCoordinator: ErrorCode.not_coordinator,
    errors.GroupIdNotFound: ErrorCode.group_id_not_found,
    errors.GroupNotEmpty: ErrorCode.non_empty_group,
    errors.GroupSubscribedToTopic: ErrorCode.group_subscribed_to_topic,
    errors.InvalidRecord: ErrorCode.invalid_record,
    errors.SchemaMismatch: ErrorCode.invalid_record,
    errors.InvalidRequest: ErrorCode.invalid_request,
    # The clients repeat the request: a put without an answer may have landed, and the others have not.
    errors.RequestTimedOut: ErrorCode.request_timed_out,
    errors.RetriableError: ErrorCode.not_enough_replicas,
    errors.StorageFull: ErrorCode.kafka_storage_error,
    errors.StoreAccessDenied: ErrorCode.cluster_authorization_failed,
    errors.CorruptRecord: ErrorCode.kafka_storage_error,
}

BATCH_CODES: dict[type[BatchError], ErrorCode] = {
    CorruptBatch: ErrorCode.corrupt_message,
    InvalidBatch: ErrorCode.invalid_record,
    InvalidBatchTimestamp: ErrorCode.invalid_timestamp,
    InvalidBatchEpoch: ErrorCode.invalid_producer_epoch,
    BatchTooLarge: ErrorCode.message_too_large,
    UnsupportedBatch: ErrorCode.unsupported_for_message_format,
}
"""Only the first one is retriable: a client repeats the batch."""


def first_error(answer: Any) -> ErrorCode:
    """Return the first error in an answer or in a part of it; ``none`` if there is no error."""
    kind: Any = type(answer)
    codes, parts = _fields_with_codes(kind)
    for name in codes:
        code: ErrorCode = getattr(answer, name)
        if code is not ErrorCode.none:
            return code
    for name in parts:
        for part in getattr(answer, name) or ():
            code = first_error(part)
            if code is not ErrorCode.none:
                return code
    return ErrorCode.none


@cache
def _fields_with_codes(kind: Any) -> tuple[list[str], list[str]]:
    """Return the fields of an answer's class with an error code, and those with parts that have error codes."""
    if not is_dataclass(kind):
        return [], []
    codes, parts = [], []
    hints = get_type_hints(kind)
    for field in fields(kind):
        if hints[field.name] is ErrorCode:
            codes.append(field.name)
        elif any(any(_fields_with_codes(part)) for part in _members(hints[field.name])):
            parts.append(field.name)
    return codes, parts


def _members(hint: Any) -> set[Any]:
    """Return a type and the types of its parts."""
    return {hint}.union(*map(_members, get_args(hint)))


def error_code(error: EosLogError) -> ErrorCode:
    """Return Kafka's code for an error. Clients repeat a request whose error is retriable."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), ErrorCode.unknown_server_error)


def fetch_code(error: EosLogError) -> ErrorCode:
    """Return Kafka's code for an error of a fetch. Clients repeat the fetch after a retriable error.

    Java's consumer ends if it gets the code with which producers repeat their requests.
    """
    return ErrorCode.kafka_storage_error if isinstance(error, errors.RetriableError) else error_code(error)


def coordinator_code(error: EosLogError) -> ErrorCode:
    """Return Kafka's code for an error of a coordinator. Clients repeat a request after a retriable error."""
    is_unavailable = isinstance(error, errors.RetriableError) and not isinstance(error, errors.NotCoordinator)
    # Members of groups do not expect the code of a full disk, and would end.
    is_unavailable = is_unavailable or isinstance(error, errors.StorageFull)
    return ErrorCode.coordinator_not_available if is_unavailable else error_code(error)
