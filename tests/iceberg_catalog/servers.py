"""A real REST catalog on this machine, and a gateway in front of it that asks for tokens and can be out of order."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from tests.s3.servers import REPOSITORY, started_by_script

CATALOG_SCRIPT = REPOSITORY / "conf/iceberg_catalog.sh"


@contextmanager
def rest_catalog_server() -> Iterator[str]:
    """The URL of a catalog of its own. Raises ``ServerMissing`` where there is none."""
    with started_by_script(CATALOG_SCRIPT, "run") as variables:
        yield variables["EOSLOG_ICEBERG__CATALOG_URI"]


class Gateway:
    """Forwards requests to a catalog."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target).netloc
        self.token_pattern: str | None = None
        """A request needs a token that matches this regular expression; None: it needs no token."""
        self.is_down = False
        """True: the connection breaks before the request is forwarded."""
        self.lost_answers = 0
        """The number of the next registrations whose connection breaks after they were forwarded."""
        self.requests: list[str] = []
        """The methods and paths of the forwarded requests."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Gateway:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if gateway.is_down:
                self.close_connection = True
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            is_token_request = self.path.endswith("/oauth/tokens")
            pattern = gateway.token_pattern
            if pattern is not None and not is_token_request and not re.fullmatch(pattern, token):
                self._answer(401, b'{"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}}')
                return
            gateway.requests.append(f"{self.command} {self.path}")
            connection = http.client.HTTPConnection(gateway.target)
            headers = {name: self.headers[name] for name in ("Content-Type", "Authorization") if name in self.headers}
            connection.request(self.command, self.path, body or None, headers)
            found = connection.getresponse()
            answered = found.read()
            connection.close()
            if self.path.endswith("/register") and gateway.lost_answers:
                gateway.lost_answers -= 1
                self.close_connection = True
                return
            self._answer(found.status, answered)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    for method in ("GET", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._forward)
    return Handler
