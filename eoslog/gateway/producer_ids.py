"""Requests for producer ids."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from kio.schema.errors import ErrorCode

from eoslog.errors import EosLogError
from eoslog.gateway.error_codes import error_code
from eoslog.gateway.protocol import Request
from eoslog.producer.producer_batches import new_producer
from eoslog.session.session import Session


class ProducerIds:
    """Answers requests for producer ids."""

    def __init__(self, store: Session, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    async def init(self, request: Request) -> Any:
        """Answer InitProducerId: a new id for each request, as a broker of Kafka does without transactional ids."""
        code, producer_id, epoch = ErrorCode.none, -1, -1
        if request.message.transactional_id is not None:
            # The gateway does not coordinate transactions yet.
            code = ErrorCode.invalid_request
        else:
            try:
                producer_id, epoch = await asyncio.get_running_loop().run_in_executor(
                    self._executor, lambda: new_producer(self._store)
                )
            except EosLogError as error:
                code = error_code(error)
        return request.api.response(error_code=code, producer_id=producer_id, producer_epoch=epoch)
