"""The queue of produced batches: the batches of all connections that wait share a record.

One task uploads the rows of the next batches while another appends the uploaded ones. Both keep the order of batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard, TypeVar

from eoslog.errors import EosLogError, RetriableError, StoreUnavailable
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.gateway_counts import APPEND, UPLOAD, WAIT, GatewayCounts
from eoslog.gateway.own_producer import OwnProducer, is_lost
from eoslog.producer.producer_batches import (
    MOST_BATCHES,
    ProducerBatch,
    UploadedBatch,
    append_uploaded,
    upload_many,
)
from eoslog.session.session import Session
from eoslog.state.append_requests import AppendedRows, DuplicateRows
from eoslog.storage.environment import Backoff

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_MOST_BYTES = 32 << 20
"""Batches with about this many decoded bytes share a record."""
_MOST_GROUPS = 2
_RETRIES = Backoff(first_ms=50, longest_ms=1_000)


@dataclass(eq=False, slots=True)
class _Waiting:
    """A batch in the queue."""

    batch: ProducerBatch
    is_own: bool
    """True if the client gave no producer id, so that the gateway's own producer writes it."""
    bytes: int
    began_ns: int
    """The time at which the batch came into the queue."""
    answer: asyncio.Future[AppendedRows | EosLogError]


class BatchQueue:
    """Appends batches in the order of their arrival."""

    def __init__(
        self,
        store: Session,
        config: GatewayConfig,
        *,
        counts: GatewayCounts,
        executor: Executor,
        appended: Callable[[], object],
    ) -> None:
        """
        Args:
            appended: called after each append.
        """
        self._store = store
        self._config = config
        self._counts = counts
        self._executor = executor
        self._appended = appended
        self._own = OwnProducer(store)
        self._waiting: deque[_Waiting] = deque()
        self._has_waiting = asyncio.Event()
        self._pending = set[asyncio.Future[AppendedRows | EosLogError]]()
        self._groups = 0
        """The number of groups that are uploaded or appended now."""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._uploaded: asyncio.Queue[tuple[list[_Waiting], list[UploadedBatch]]] = asyncio.Queue()

    def add(self, batch: ProducerBatch, size: int, *, is_own: bool) -> asyncio.Future[AppendedRows | EosLogError]:
        """Append a batch after the earlier ones. The answer is its offsets, or the error that refuses it.

        Args:
            size: the decoded bytes of its rows.
            is_own: the gateway's own producer writes it, instead of the one that the batch names.
        """
        answer: asyncio.Future[AppendedRows | EosLogError] = asyncio.get_running_loop().create_future()
        self._pending.add(answer)
        answer.add_done_callback(self._pending.discard)
        self._waiting.append(_Waiting(batch, is_own, size, self._counts.now_ns(), answer))
        self._has_waiting.set()
        return answer

    async def run(self) -> None:
        """Upload and append batches until the task is canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._upload_all())
            tasks.create_task(self._append_all())

    async def drain(self, timeout_s: float) -> None:
        """Wait until the batches that are in the queue now are appended, at most for this time."""
        if self._pending:
            await asyncio.wait(list(self._pending), timeout=timeout_s)

    @property
    def waiting(self) -> int:
        """The number of batches that have no answer yet."""
        return len(self._pending)

    async def _upload_all(self) -> None:
        while True:
            await self._has_waiting.wait()
            if self._groups:
                # Others are being appended, so more will come. A lone batch would only wait for itself.
                await asyncio.sleep(self._config.linger_ms / 1000)
            await self._has_room.wait()
            group = self._next_group()
            self._count_groups(1)
            began_ns = self._counts.now_ns()
            for waiting in group:
                self._counts.batch_times.add(WAIT, began_ns - waiting.began_ns)
            batches = [each.batch for each in group]
            upload = partial(upload_many, self._store, batches)
            found = await self._outcomes(len(group), partial(self._repeated, upload))
            self._counts.batch_times.add(UPLOAD, self._counts.now_ns() - began_ns)
            uploaded = [
                (waiting, each) for waiting, each in zip(group, found, strict=True) if isinstance(each, UploadedBatch)
            ]
            for waiting, each in zip(group, found, strict=True):
                if isinstance(each, EosLogError):
                    _settle(waiting, each)
            if uploaded:
                self._store.environment.reached("gateway.batches.uploaded")
                self._uploaded.put_nowait(([waiting for waiting, _ in uploaded], [each for _, each in uploaded]))
            else:
                self._count_groups(-1)

    def _count_groups(self, change: int) -> None:
        """Note that groups begin or end. While one is appended and one uploaded, other batches collect in the next."""
        self._groups += change
        if self._groups < _MOST_GROUPS:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < MOST_BATCHES and size < _MOST_BYTES:
            group.append(self._waiting.popleft())
            size += group[-1].bytes
        if not self._waiting:
            self._has_waiting.clear()
        return group

    async def _append_all(self) -> None:
        while True:
            group, uploaded = await self._uploaded.get()
            is_own = [each.is_own for each in group]
            began_ns = self._counts.now_ns()
            answers = await self._outcomes(len(group), partial(self._append, uploaded, is_own))
            self._counts.batch_times.add(APPEND, self._counts.now_ns() - began_ns)
            self._counts.appended([each.record_count for each in answers if _is_new(each)])
            self._store.environment.reached("gateway.batches.appended")
            self._count_groups(-1)
            for waiting, answer in zip(group, answers, strict=True):
                _settle(waiting, answer)
            self._appended()

    async def _outcomes(self, count: int, work: Callable[[], list[T | EosLogError]]) -> list[T | EosLogError]:
        """Run work on a group of batches in a thread. If it fails as a whole, its error is the answer of each batch."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except EosLogError as error:
            return [error.with_traceback(None)] * count
        except Exception:
            _logger.exception("batches were not appended")
            return [StoreUnavailable("the gateway failed")] * count

    def _append(self, uploaded: Sequence[UploadedBatch], is_own: Sequence[bool]) -> list[AppendedRows | EosLogError]:
        """Append batches, and return the answer of each."""
        own = [index for index, each in enumerate(is_own) if each]
        batches = list(uploaded)
        for index, stamped in zip(own, self._own.stamped([batches[each] for each in own]) if own else (), strict=True):
            batches[index] = stamped
        answers = self._settled(batches)
        if own and not self._own.note([batches[each] for each in own], [answers[each] for each in own]):
            # The store has forgotten the gateway's own producer. Later batches wait, so rows keep their order.
            refused = [index for index in own if is_lost(answers[index])]
            for index, answer in zip(refused, self._appended_again([batches[each] for each in refused]), strict=True):
                answers[index] = answer
        return answers

    def _appended_again(self, refused: Sequence[UploadedBatch]) -> Sequence[AppendedRows | EosLogError]:
        """Append refused batches with a new identity of the gateway's own producer."""
        try:
            stamped = self._own.stamped(refused)
            self._store.environment.reached("gateway.own_producer.renewed")
            answers = self._settled(stamped)
        except EosLogError as error:
            # The other batches of the group have their answers already.
            return [error.with_traceback(None)] * len(refused)
        self._own.note(stamped, answers)
        return answers

    def _settled(self, batches: Sequence[UploadedBatch]) -> list[AppendedRows | EosLogError]:
        """Append batches. A repetition has the same sequences, so no batch is appended twice."""
        try:
            return self._repeated(partial(append_uploaded, self._store, batches))
        except RetriableError:
            # The batches may have landed. Then later ones would repeat their sequences.
            self._own.forget()
            self._store.environment.reached("gateway.own_producer.forgotten")
            raise

    def _repeated(self, work: Callable[[], T]) -> T:
        """Repeat work while the store does not answer."""
        environment = self._store.environment
        deadline_ms = environment.monotonic_ms() + self._config.append_timeout_ms
        failures = 0
        while True:
            try:
                return work()
            except RetriableError as error:
                failures += 1
                pause_ms = _RETRIES.pause_ms(failures, environment.jitter())
                if environment.monotonic_ms() + pause_ms >= deadline_ms:
                    raise
                _logger.warning("%s: batches are not appended yet: %s", self._store.url, error)
                environment.sleep_ms(pause_ms)


def _is_new(answer: AppendedRows | EosLogError) -> TypeGuard[AppendedRows]:
    return isinstance(answer, AppendedRows) and not isinstance(answer, DuplicateRows)


def _settle(waiting: _Waiting, answer: AppendedRows | EosLogError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)
