"""Requests for transactions: producer ids, additions to a transaction, and its end.

The coordinator is the log. A request is answered by the state after all earlier slots, so any gateway may answer any
client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from eoslog.errors import (
    EosLogError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    ProducerFenced,
)
from eoslog.gateway.error_codes import coordinator_code
from eoslog.gateway.group_coordinator import GroupCoordinator, GroupRefusal
from eoslog.gateway.group_offsets import check_names, given_offsets
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.protocol import ApiKey, Request, milliseconds
from eoslog.producer.producer_batches import new_producer
from eoslog.session.session import Session
from eoslog.state.end_requests import EndTransaction, end_request
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import check_id
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_entries import AddedToTransaction, TransactionPartition
from eoslog.state.transaction_requests import AddToTransaction, InitProducerId

_FIRST_WITH_PRODUCER_FENCED = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions with ``PRODUCER_FENCED`` (KIP-588). Earlier versions, and all versions of TxnOffsetCommit, have
``INVALID_PRODUCER_EPOCH`` instead."""
_NEVER = 1 << 15
_FIRST_OF_VERSION_2 = {ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
"""The first versions of requests in transaction version 2 (KIP-890). Earlier ones are of transaction version 1."""
_NO_ID = -1
_SWEEP_S = 10.0
"""The time between two searches for overdue transactions (s), as in a broker of Kafka."""
_logger = logging.getLogger(__name__)


def _has_version_1(request: Request) -> bool:
    return request.api.version < _FIRST_OF_VERSION_2[request.api.key]


def _code(request: Request, error: EosLogError) -> ErrorCode:
    if isinstance(error, ProducerFenced) and request.api.version < _FIRST_WITH_PRODUCER_FENCED.get(
        request.api.key, _NEVER
    ):
        return ErrorCode.invalid_producer_epoch
    return coordinator_code(error)


def _check_identity(identity: ProducerIdentity) -> None:
    """Check that neither number of an identity is negative: entries have no negative numbers.

    Raises:
        InvalidProducerIdMapping, InvalidProducerEpoch
    """
    if identity.producer_id < 0:
        raise InvalidProducerIdMapping(f"{identity.producer_id} is no producer id")
    if identity.producer_epoch < 0:
        raise InvalidProducerEpoch(f"{identity.producer_epoch} is no epoch")


class Transactions:
    """Answers requests for transactions."""

    def __init__(
        self,
        store: Session,
        topics: KnownTopics,
        *,
        groups: GroupCoordinator,
        executor: Executor,
        appended: Callable[[], object],
    ) -> None:
        """
        Args:
            appended: called after each request that may end a transaction, so that fetches look for more rows.
        """
        self._store = store
        self._topics = topics
        self._groups = groups
        self._executor = executor
        self._appended = appended

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def run(self) -> None:
        """Abort overdue transactions at intervals, until the task is canceled.

        Fetches abort those that hide rows from them. A client may also wait for an end without a fetch.
        """
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                if await self._run(self._store.overdue_transactions.abort_for_reader):
                    self._appended()
            except EosLogError as error:
                # The end of this task would end the gateway.
                _logger.warning("%s: overdue transactions are not aborted: %s", self._store.url, error)

    async def init_producer_id(self, request: Request) -> Any:
        """Answer InitProducerId.

        Without a transactional id each request gets a new producer id, as from a broker of Kafka.
        """
        try:
            producer_id, epoch = await self._run(lambda: self._init(request.message))
            code = ErrorCode.none
        except EosLogError as error:
            code, producer_id, epoch = _code(request, error), _NO_ID, _NO_ID
        self._appended()
        return request.api.response(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _init(self, message: Any) -> ProducerIdentity:
        transactional_id: str | None = message.transactional_id
        if transactional_id is None:
            return new_producer(self._store)
        check_id("transactional id", transactional_id)
        given = ProducerIdentity(getattr(message, "producer_id", _NO_ID), getattr(message, "producer_epoch", _NO_ID))
        if (given.producer_id < 0) != (given.producer_epoch < 0):
            raise InvalidRequest("a request has both a producer id and its epoch, or neither")
        request = InitProducerId(
            transactional_id,
            milliseconds(message.transaction_timeout),
            self._store.now_ms(),
            expected=None if given.producer_id < 0 else given,
        )
        return self._store.append(request).identity

    async def add_partitions(self, request: Request) -> Any:
        """Answer AddPartitionsToTxn. If one partition is refused, none is added."""
        message = request.message
        refused: dict[tuple[str, int], ErrorCode] = {}
        added: list[TransactionPartition] = []
        topics = message.v3_and_below_topics
        await self._topics.look_for((topic.name, partition) for topic in topics for partition in topic.partitions)
        for topic in topics:
            known = self._topics.known(topic.name)
            for partition in topic.partitions:
                if known is None or self._topics.partition(topic.name, partition) is None:
                    refused[topic.name, partition] = ErrorCode.unknown_topic_or_partition
                else:
                    added.append(TransactionPartition(topic_id=known.topic_id, partition=partition))
        code = ErrorCode.operation_not_attempted
        if not refused:
            code = await self._add(
                request,
                message.v3_and_below_transactional_id,
                ProducerIdentity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
                partitions=tuple(added),
            )
        return request.api.response(
            results_by_topic_v3_and_below=tuple(
                request.api.part(
                    "AddPartitionsToTxnTopicResult",
                    name=topic.name,
                    results_by_partition=tuple(
                        request.api.part(
                            "AddPartitionsToTxnPartitionResult",
                            partition_index=partition,
                            partition_error_code=refused.get((topic.name, partition), code),
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in topics
            )
        )

    async def add_offsets(self, request: Request) -> Any:
        """Answer AddOffsetsToTxn. It begins the transaction, unless it is open."""
        message = request.message
        identity = ProducerIdentity(message.producer_id, message.producer_epoch)
        return request.api.response(error_code=await self._add(request, message.transactional_id, identity))

    async def commit_offsets(self, request: Request) -> Any:
        """Answer TxnOffsetCommit: the offsets are in the log, and take effect if the transaction commits."""
        message = request.message
        code = ErrorCode.none
        given = await given_offsets(self._topics, message)
        if given.offsets is not None:
            try:
                offsets = await self._groups.offsets_for_log(given.offsets, in_transaction=True)
            except GroupRefusal as error:
                return given.answer(request, "TxnOffsetCommit", error.code)
            except EosLogError as error:
                return given.answer(request, "TxnOffsetCommit", coordinator_code(error))
            code = await self._add(
                request,
                message.transactional_id,
                ProducerIdentity(message.producer_id, message.producer_epoch),
                offsets=offsets,
                may_begin=not _has_version_1(request),
                run=partial(self._groups.commit, given.offsets),
            )
            code = self._groups.code_of_commit(offsets, code)
        return given.answer(request, "TxnOffsetCommit", code)

    async def _add(
        self,
        request: Request,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        may_begin: bool = True,
        partitions: tuple[TransactionPartition, ...] = (),
        offsets: GroupOffsets | None = None,
        run: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
    ) -> ErrorCode:
        """Add partitions or offsets to a transaction, and return the code of the outcome.

        Args:
            may_begin: True if the content may begin a transaction. Otherwise it needs the transaction that was open
                when the request was read.
            run: runs the work that appends the content; None for a thread of the executor.
        """

        def add(start_slot: int | None) -> None:
            check_id("transactional id", transactional_id)
            _check_identity(identity)
            if offsets is not None:
                check_names(offsets)
            entry = AddedToTransaction(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                partitions=partitions,
                offsets=() if offsets is None else (offsets,),
                time_ms=self._store.now_ms(),
            )
            self._store.append(AddToTransaction(entry, start_slot=start_slot))
            self._store.environment.reached("gateway.transaction.added")

        try:
            start_slot = None if may_begin else self._start_slot(transactional_id)
            await (run or self._run)(partial(add, start_slot))
        except EosLogError as error:
            return _code(request, error)
        return ErrorCode.none

    async def end(self, request: Request) -> Any:
        """Answer EndTxn. From version 5 on the answer has the identity for the next transaction."""
        message = request.message
        after = ProducerIdentity(_NO_ID, _NO_ID)
        keeps_epoch = _has_version_1(request)
        try:
            start_slot = self._start_slot(message.transactional_id) if keeps_epoch else None
            after = await self._run(lambda: self._end(message, keeps_epoch=keeps_epoch, start_slot=start_slot))
            code = ErrorCode.none
        except EosLogError as error:
            code = _code(request, error)
        self._appended()
        return request.api.response(error_code=code, producer_id=after.producer_id, producer_epoch=after.producer_epoch)

    def _end(self, message: Any, *, keeps_epoch: bool, start_slot: int | None) -> ProducerIdentity:
        check_id("transactional id", message.transactional_id)
        identity = ProducerIdentity(message.producer_id, message.producer_epoch)
        _check_identity(identity)
        entry = end_request(
            message.transactional_id,
            identity,
            "commit" if message.committed else "abort",
            keeps_epoch=keeps_epoch,
            time_ms=self._store.now_ms(),
        )
        answer = self._store.append(EndTransaction(entry, start_slot=start_slot))
        self._store.environment.reached("gateway.transaction.ended")
        return answer.identity

    def _start_slot(self, transactional_id: str) -> int:
        """Return the slot in which the open transaction of an id began, as far as this gateway knows; -1 if none is.

        It is taken when a request is read. If the client ends this transaction at another gateway before the request is
        appended, the request does not hit the next one. If the client has begun a transaction at another gateway that
        this one does not know yet, the client repeats the request.
        """
        transaction = self._store.known_state.transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return NO_SLOT
        return transaction.start_slot
