"""A delay before each HTTP request to an S3 server, and a count of the requests by kind.

The proxy runs in a process of its own. It reads only the heads of requests: bodies and answers pass as they are. A
request costs the proxy 0.2 to 0.3 ms of CPU on the machine of the tests, and a client some tens of microseconds, with a
delay of 0 ms, too.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE", "POST")
START_S = 30
_SPAWN = multiprocessing.get_context("spawn")
_CHUNK = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


@dataclass(frozen=True)
class Delay:
    """The proxy as its users see it."""

    url: str
    _delays_ms: Any
    _counts: Any

    def set(self, delay_ms: float, *, put_ms: float | None = None) -> None:
        """Delay each request from now on.

        Args:
            delay_ms: the delay before a request (ms).
            put_ms: the delay before a PUT (ms); None: the same.
        """
        self._delays_ms[:] = [delay_ms if put_ms is None or kind != "PUT" else put_ms for kind in KINDS]

    def counts(self) -> dict[str, int]:
        """The requests that arrived so far, by kind."""
        return dict(zip(KINDS, self._counts, strict=True))

    def total(self) -> int:
        return sum(self._counts)


@contextmanager
def delayed(endpoint_url: str) -> Iterator[Delay]:
    """A proxy in front of a server. It ends with the block."""
    delays_ms, counts = _SPAWN.Array("d", len(KINDS)), _SPAWN.Array("q", len(KINDS))
    here, there = _SPAWN.Pipe()
    target = urlsplit(endpoint_url)
    arguments = (target.hostname, target.port, delays_ms, counts, there)
    process = _SPAWN.Process(target=_run, args=arguments, daemon=True)
    process.start()
    try:
        if not here.poll(START_S):
            raise RuntimeError(f"the proxy did not listen within {START_S} s")
        yield Delay(f"http://127.0.0.1:{here.recv()}", delays_ms, counts)
    finally:
        process.terminate()
        process.join()


def _run(host: str, port: int, delays_ms: Any, counts: Any, ready: Any) -> None:
    asyncio.run(_serve(host, port, delays_ms, counts, ready))


async def _serve(host: str, port: int, delays_ms: Any, counts: Any, ready: Any) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        answers = asyncio.create_task(_answers(from_server, writer))
        try:
            await _requests(reader, to_server, delays_ms, counts)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            to_server.close()
            await answers

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 20, backlog=1024)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _requests(reader: asyncio.StreamReader, to_server: asyncio.StreamWriter, delays_ms: Any, counts: Any) -> None:
    """Pass on the requests of one connection, each after the delay."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        kind = KINDS.index(kind_of(head))
        counts[kind] += 1
        delay_ms = delays_ms[kind]
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        to_server.write(head)
        if _CHUNKED.search(head):
            await _pass_chunks(reader, to_server)
        elif found := _LENGTH.search(head):
            await _pass_bytes(reader, to_server, int(found[1]))
        await to_server.drain()


async def _pass_bytes(reader: asyncio.StreamReader, to_server: asyncio.StreamWriter, left: int) -> None:
    while left:
        some = await reader.read(min(left, _CHUNK))
        if not some:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(some)
        to_server.write(some)
        await to_server.drain()


async def _pass_chunks(reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
    """Pass on a chunked body: chunks, the empty chunk, and trailers up to an empty line."""
    size = -1
    while size:
        line = await reader.readuntil(b"\r\n")
        to_server.write(line)
        size = int(line.partition(b";")[0], 16)
        if size:
            await _pass_bytes(reader, to_server, size + 2)
    line = b""
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        to_server.write(line)


async def _answers(from_server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while some := await from_server.read(_CHUNK):
            writer.write(some)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def kind_of(head: bytes) -> str:
    """The kind of a request: LIST is a GET of a bucket; an unknown method counts as a POST."""
    method, target = head.split(b" ", 2)[:2]
    if method == b"GET":
        path, _, query = target.partition(b"?")
        return "LIST" if b"list-type" in query or path.strip(b"/").count(b"/") == 0 else "GET"
    name = method.decode("ascii", "replace")
    return name if name in KINDS else "POST"
