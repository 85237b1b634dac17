"""A connection of a client: its requests are answered in their order.

The batches of later produce requests enter the queue while earlier ones wait for their answers. Every other request
waits until the earlier requests have their answers, as in a broker of Kafka.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from eoslog.gateway.authentication import Authentication
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.gateway_counts import GatewayCounts
from eoslog.gateway.memory_budget import Lease, MemoryBudget
from eoslog.gateway.protocol import ApiKey, Request, UnsupportedRequest, api_key, decode_request
from eoslog.gateway.request_decoder import MalformedRequest
from eoslog.gateway.tls import speaks_tls
from eoslog.wording import quoted

_logger = logging.getLogger(__name__)
_SIZE = struct.Struct(">i")
_TLS_PIECE = 64 << 10
READ_AHEAD = 64 << 10
"""The bytes of a connection that are read before the memory of its request is free."""


@dataclass(frozen=True)
class Handlers:
    """The answers to requests."""

    produce: Callable[[Request], Awaitable[Awaitable[bytes | None]]]
    """Puts batches into the queue, and returns the wait for the answer."""
    other: Callable[[Request], Awaitable[tuple[bytes, Lease | None]]]
    """Returns an answer, and the memory that it holds until it is sent."""
    sasl: Callable[[Request, Authentication], Awaitable[tuple[bytes, str | None]]]
    """Returns an answer, and the reason why the connection ends after it; None if it goes on."""


class _Waiting(NamedTuple):
    """A request that waits for its answer."""

    request: Request
    began_ns: int
    """The time at which the request was read."""
    answer: Awaitable[tuple[bytes | None, Lease | None]]
    lease: Lease | None
    """The memory of the request."""


class _Closed(Exception):
    """The connection has to be closed."""


class Connection:
    """One connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        config: GatewayConfig,
        counts: GatewayCounts,
        budget: MemoryBudget,
        handlers: Handlers,
        authentication: Authentication,
    ) -> None:
        """
        Args:
            budget: the memory for requests of all connections.
        """
        self._reader = reader
        self._writer = writer
        self._config = config
        self._counts = counts
        self._budget = budget
        self._handlers = handlers
        self._authentication = authentication
        self._was_authenticated = asyncio.Event()
        if authentication.is_authenticated:
            self._was_authenticated.set()
        self._answers: asyncio.Queue[_Waiting] = asyncio.Queue(config.max_in_flight)
        self._only_produced = False
        """True if all requests that wait for answers are produce requests."""
        self._reading: asyncio.Task[None] | None = None
        self._peer = writer.get_extra_info("peername")
        self._client_host = f"/{self._peer[0]}" if self._peer else ""

    async def finish(self) -> None:
        """Read no further request, and wait until the requests that were read have their answers."""
        if self._reading is not None:
            self._reading.cancel()
        await self._answers.join()

    async def run(self) -> None:
        """Answer requests until the client closes the connection, or sends bytes that are no request."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._reading = tasks.create_task(self._repeat(self._read_one))
                tasks.create_task(self._repeat(self._answer_one))
                if self.is_of_stranger:
                    tasks.create_task(self._authenticate_in_time())
        except* _Closed as errors:
            _forget(errors)
        except* OSError as errors:
            # TLS raises one for bytes that are none of its records, and the system for a network that is gone.
            _logger.info("%s is disconnected: %s", self._client, errors.exceptions[0])
            _forget(errors)
        finally:
            while not self._answers.empty():
                _drop(self._answers.get_nowait())
                self._answers.task_done()
            # Not close(): the bytes of a client that does not read would be kept.
            self._writer.transport.abort()

    @property
    def is_of_stranger(self) -> bool:
        """True until the first authentication of the client."""
        return not self._was_authenticated.is_set()

    @property
    def _client(self) -> str:
        """The name of the client for the log."""
        principal = self._authentication.principal
        return str(self._peer) if principal is None else f"{quoted(principal)} at {self._peer}"

    async def _authenticate_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._config.handshake_timeout_ms / 1000):
                await self._was_authenticated.wait()
        except TimeoutError:
            raise self._refusal("it was not authenticated in time") from None

    @staticmethod
    async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
        # Each step is a call of its own. Otherwise its variables would keep the last request while the next one is
        # awaited.
        while True:
            await step()

    async def _read_one(self) -> None:
        """Read a request, and have it answered after the earlier ones."""
        frame, lease = await self._next_frame()
        began_ns = self._counts.now_ns()
        self._counts.bytes_in += _SIZE.size + len(frame)
        try:
            try:
                # These checks come before the decoding, because the memory for that is many times the request's size.
                key = api_key(frame)
                is_produce = key == ApiKey.PRODUCE
                if not (is_produce and self._only_produced):
                    # Each message of an authentication decides what may come next.
                    await self._answers.join()
                if (refusal := self._authentication.refusal(key)) is not None:
                    raise self._refusal(refusal)
                request = decode_request(frame, self._client_host)
            except (MalformedRequest, UnsupportedRequest) as error:
                self._counts.malformed += 1
                raise self._refusal(str(error)) from None
            self._only_produced = is_produce
            answer: Awaitable[tuple[bytes | None, Lease | None]]
            if is_produce:
                answer = _without_lease(await self._handlers.produce(request))
            elif request.api.key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                answer = self._authenticated(request)
            else:
                answer = self._handlers.other(request)
            waiting = _Waiting(request, began_ns, answer, lease)
            try:
                await self._answers.put(waiting)
            except BaseException:
                _drop(waiting)
                raise
        except BaseException:
            lease.release()
            raise

    async def _authenticated(self, request: Request) -> tuple[bytes, Lease | None]:
        """Return the answer to a request of the client's authentication."""
        answer, failure = await self._handlers.sasl(request, self._authentication)
        if failure is not None:
            _logger.warning("%s is disconnected: its authentication failed: %s", self._client, failure)
            await asyncio.sleep(self._config.failed_authentication_delay_ms / 1000)
        elif self._authentication.is_authenticated:
            _logger.info("%s is authenticated", self._client)
            self._was_authenticated.set()
        return answer, None

    async def _next_frame(self) -> tuple[bytes | bytearray, Lease]:
        """Return the next request, and its memory. The memory is taken when the client has begun to send the request.

        So a client that announces a large request and sends nothing keeps no memory from others.
        """
        try:
            async with asyncio.timeout(self._config.max_idle_ms / 1000):
                header = await self._reader.readexactly(_SIZE.size)
            (size,) = _SIZE.unpack(header)
            most = self._config.max_frame_bytes
            is_stranger = not self._authentication.is_authenticated
            if is_stranger:
                most = min(most, self._config.max_stranger_frame_bytes)
            if not 0 < size <= most:
                if speaks_tls(header):
                    raise self._refusal("it speaks TLS, and the gateway was started without --tls-certificate")
                raise self._refusal(f"a request of {size} bytes was announced, and the largest has {most}")
            async with asyncio.timeout(self._config.frame_timeout_ms / 1000):
                begin = await self._reader.readexactly(min(size, READ_AHEAD))
            # Strangers that send a part of a request must not make other ones wait. Their requests are small.
            lease = Lease(self._budget, 0) if is_stranger else await self._budget.take(size)
            if size == len(begin):
                return begin, lease
            try:
                async with asyncio.timeout(self._config.frame_timeout_ms / 1000):
                    return await self._whole(begin, size), lease
            except BaseException:
                lease.release()
                raise
        except asyncio.IncompleteReadError as error:
            if error.partial:
                _logger.info("%s closed its connection in the middle of a request", self._client)
            raise _Closed from None
        except TimeoutError:
            _logger.info("%s sent no whole request in time, and is disconnected", self._client)
            raise _Closed from None

    async def _whole(self, begin: bytes, size: int) -> bytearray:
        """Return a request whose first bytes have been read. It is never in memory twice."""
        frame = bytearray(size)
        frame[: len(begin)] = begin
        at = len(begin)
        while at < size:
            part = await self._reader.read(min(size - at, READ_AHEAD))
            if not part:
                raise asyncio.IncompleteReadError(bytes(begin), size)
            frame[at : at + len(part)] = part
            at += len(part)
        return frame

    async def _answer_one(self) -> None:
        """Send the next answer."""
        waiting = await self._answers.get()
        lease: Lease | None = None
        try:
            answer, lease = await self._answer(waiting)
            if answer is not None:
                self._counts.bytes_out += len(answer)
                async with asyncio.timeout(self._config.frame_timeout_ms / 1000):
                    await self._send(answer)
        except TimeoutError:
            _logger.info("%s took no answer in time, and is disconnected", self._client)
            raise _Closed from None
        finally:
            for each in (waiting.lease, lease):
                if each is not None:
                    each.release()
            # Also after an error: ``finish`` waits for all requests that were read.
            self._answers.task_done()
        if self._authentication.has_failed:
            raise _Closed

    async def _send(self, answer: bytes) -> None:
        """Send an answer, and wait until the client has taken all but its end."""
        # asyncio waits with TLS only for the bytes that came before the last write.
        piece = _TLS_PIECE if self._writer.get_extra_info("sslcontext") else len(answer)
        content = memoryview(answer)
        for begin in range(0, len(answer), piece):
            self._writer.write(content[begin : begin + piece])
            await self._writer.drain()

    async def _answer(self, waiting: _Waiting) -> tuple[bytes | None, Lease | None]:
        """Wait for an answer, and count it."""
        request = waiting.request
        try:
            answer = await waiting.answer
        except Exception:
            code = request.outcome or ErrorCode.unknown_server_error
            self._counts.ended(request.api.name, code.name.upper(), waiting.began_ns)
            raise
        self._counts.ended(request.api.name, request.outcome.name.upper(), waiting.began_ns)
        return answer

    def _refusal(self, reason: str) -> _Closed:
        _logger.warning("%s is disconnected: %s", self._client, reason)
        return _Closed()


async def _without_lease(answer: Awaitable[bytes | None]) -> tuple[bytes | None, Lease | None]:
    return await answer, None


def _drop(waiting: _Waiting) -> None:
    """Drop an answer that nobody waits for any more."""
    if inspect.iscoroutine(waiting.answer):
        waiting.answer.close()
    if waiting.lease is not None:
        waiting.lease.release()


def _forget(errors: BaseExceptionGroup[Any]) -> None:
    """Drop the variables that errors keep: they would hold requests until the garbage collector comes."""
    for each in errors.exceptions:
        error: BaseException | None = each
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
