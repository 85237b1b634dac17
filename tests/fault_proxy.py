"""An HTTP proxy in front of an object store that loses answers, breaks connections and lets puts land late, as told.

It counts requests for itself, so that a client's hidden repetitions show.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(slots=True)
class Fault:
    """What happens to the ``nth`` and the following ``times - 1`` requests of a kind whose path matches."""

    act: Callable[[_Exchange], None]
    kind: str
    path: str
    nth: int
    times: int
    seen: int = 0
    landed: threading.Event = field(default_factory=threading.Event)
    """Set once a delayed put has reached the server."""

    def takes(self, kind: str, path: str) -> bool:
        if kind != self.kind or not re.search(self.path, unquote(path)):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class FaultProxy:
    """Forwards to ``target``. Requests are of the kinds PUT, GET, LIST and DELETE, as a store counts them."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._late: list[threading.Thread] = []
        self._stopped = threading.Event()
        self.counts: Counter[str] = Counter()
        """Requests that arrived here, by kind."""
        self.asked_to_continue: list[str] = []
        """Paths of requests that waited for leave to send their body, which costs a round trip."""
        self.ignored_headers: set[str] = set()
        """Headers that are not forwarded, in lower case, as if the server did not know them."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for thread in self._late:
            thread.join()

    def reset(self, kind: str, path: str = "", *, nth: int = 1, times: int = 1) -> Fault:
        """Break the connection before the request is forwarded."""
        return self._add(lambda exchange: exchange.break_connection(), kind, path, nth, times)

    def lose_answer(self, kind: str, path: str = "", *, nth: int = 1, times: int = 1) -> Fault:
        """Forward the request, then break the connection."""

        def act(exchange: _Exchange) -> None:
            exchange.forward()
            exchange.break_connection()

        return self._add(act, kind, path, nth, times)

    def answer(self, status: int, code: str, kind: str, path: str = "", *, nth: int = 1, times: int = 1) -> Fault:
        """Answer with an error and do not forward the request."""
        return self._add(lambda exchange: exchange.answer_error(status, code), kind, path, nth, times)

    def forward_then_answer(
        self, status: int, code: str, kind: str, path: str = "", *, nth: int = 1, times: int = 1
    ) -> Fault:
        """Forward the request, and answer with an error all the same."""

        def act(exchange: _Exchange) -> None:
            exchange.forward()
            exchange.answer_error(status, code)

        return self._add(act, kind, path, nth, times)

    def delay(self, until: threading.Event, kind: str, path: str = "", *, nth: int = 1) -> Fault:
        """Break the connection, and forward the request once ``until`` is set: it lands when nobody waits for it."""

        def act(exchange: _Exchange) -> None:
            def land() -> None:
                while not until.wait(0.01):
                    if self._stopped.is_set():
                        return
                exchange.forward()
                fault.landed.set()

            thread = threading.Thread(target=land)
            self._late.append(thread)
            thread.start()
            exchange.break_connection()

        fault = self._add(act, kind, path, nth, 1)
        return fault

    def truncate(self, path: str = "", *, nth: int = 1, times: int = 1) -> Fault:
        """Send half of a GET's body under the headers of the whole, then break the connection."""

        def act(exchange: _Exchange) -> None:
            status, headers, body = exchange.forward()
            exchange.send(status, headers, body, body[: len(body) // 2])
            exchange.break_connection()

        return self._add(act, "GET", path, nth, times)

    def forget_faults(self) -> None:
        """From here on all that comes is forwarded; puts that are late still land."""
        with self._lock:
            self._faults.clear()

    def _add(self, act: Callable[[_Exchange], None], kind: str, path: str, nth: int, times: int) -> Fault:
        fault = Fault(act, kind, path, nth, times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def _handle(self, exchange: _Exchange) -> None:
        with self._lock:
            self.counts[exchange.kind] += 1
            if exchange.asked_to_continue:
                self.asked_to_continue.append(exchange.path)
            taking = [fault for fault in self._faults if fault.takes(exchange.kind, exchange.path)]
            self._faults = [fault for fault in self._faults if fault.seen < fault.nth + fault.times - 1]
        if taking:
            taking[0].act(exchange)
        else:
            status, headers, body = exchange.forward()
            exchange.send(status, headers, body, body)


class _Exchange:
    """One request and its answer."""

    def __init__(self, handler: BaseHTTPRequestHandler, target: str, ignored_headers: Set[str]) -> None:
        self._handler = handler
        self._target = target
        self._dropped = {"expect", *ignored_headers}
        self.path = handler.path
        self.asked_to_continue = "Expect" in handler.headers
        self._body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.kind = _kind(handler.command, handler.path)

    def forward(self) -> tuple[int, Mapping[str, str], bytes]:
        headers = {name: value for name, value in self._handler.headers.items() if name.lower() not in self._dropped}
        connection = http.client.HTTPConnection(self._target, timeout=30)
        try:
            connection.request(self._handler.command, self.path, self._body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def send(self, status: int, headers: Mapping[str, str], whole: bytes, body: bytes) -> None:
        self._handler.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self._handler.send_header(name, value)
        if status != 204:
            self._handler.send_header("Content-Length", str(len(whole)))
        self._handler.end_headers()
        self._handler.wfile.write(body)
        self._handler.wfile.flush()

    def answer_error(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
        headers = {"Content-Type": "application/xml", "Date": self._handler.date_time_string()}
        self.send(status, headers, body, body)

    def break_connection(self) -> None:
        # Linger 0 makes the close a reset, which no client can take for an orderly end.
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._handler.close_connection = True
        self._handler.connection.close()


def _kind(command: str, path: str) -> str:
    """The kind of a request to S3, Google Cloud Storage or Azure."""
    place, _, query = path.partition("?")
    if "list-type=2" in query or "comp=list" in query or (command == "GET" and place.endswith("/o")):
        return "LIST"
    if command == "POST":
        return "DELETE" if "delete" in query else "PUT"
    return command


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # The headers and the body are two writes. Without this, the second waits 40 ms for the first's acknowledgement.
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            try:
                proxy._handle(_Exchange(self, proxy._target, proxy.ignored_headers))
            except OSError:
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - http.server asks for these

        def log_message(self, format: str, *args: Any) -> None:
            """Tests read the counts, not a log."""

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):
                self.close_connection = True

    return Handler
