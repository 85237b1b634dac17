"""HTTP connections to the server of an object store or of a catalog, each for one request at a time."""

from __future__ import annotations

import http.client
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import PoolManager, ProxyManager, Timeout, make_headers
from urllib3.connection import HTTPConnection, HTTPSConnection

PARALLEL_REQUESTS = 32


class UnsendableRequest(Exception):
    """A header has a character that HTTP does not allow. The message leaves out the value: it may be a secret."""


class PlainExchange:
    """The exchange of http.client. urllib3's exchange takes more CPU time, for features that eoslog does not use."""

    host: str
    port: int

    def __str__(self) -> str:
        """Name the server, as errors of urllib3 show their connection."""
        return f"{self.host}:{self.port}"

    request = http.client.HTTPConnection.request
    putrequest = http.client.HTTPConnection.putrequest
    putheader = http.client.HTTPConnection.putheader
    getresponse = http.client.HTTPConnection.getresponse


class _HttpConnection(PlainExchange, HTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(PlainExchange, HTTPSConnection):  # type: ignore[misc]
    pass


class HttpConnections:
    """The connections to one server. urllib3 opens them, through a proxy if there is one.

    They are kept here, because urllib3's own pool has a lock. If a child is forked while another thread holds the lock,
    the child waits for ever.
    """

    def __init__(self, pool: Any, *, is_forwarded: bool, read_timeout_s: float) -> None:
        """
        Args:
            pool: urllib3's pool. Its ``ConnectionCls`` is a ``PlainExchange``.
            is_forwarded: True if requests go to a proxy and not through a tunnel. Such requests have the whole URL.
        """
        self._pool = pool
        self._is_forwarded = is_forwarded
        self._read_timeout_s = read_timeout_s
        self._idle: deque[Any] = deque(maxlen=PARALLEL_REQUESTS)

    def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request once, and return the status, the headers by their names in lower case, and the body.

        Raises:
            UnsendableRequest: a header has a character such as a line break. Nothing was sent.
        """
        if self._is_forwarded:
            headers = {**self._pool.proxy_headers, **headers}
        else:
            url = "/" + url.split("/", 3)[3]
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._pool._new_conn()
        try:
            if not connection.is_connected:
                self._open(connection)
            _request(connection, method, url, body, headers)
            found = connection.getresponse()
            answer = found.status, {name.lower(): value for name, value in found.getheaders()}, found.read()
        except BaseException:
            # A late answer would be taken for the answer to the next request.
            connection.close()
            raise
        if not self._is_reusable(connection):
            connection.close()
        self._idle.append(connection)
        return answer

    def _is_reusable(self, connection: Any) -> bool:
        """Return True if the server waits for the next request."""
        return True

    def _open(self, connection: Any) -> None:
        connection.close()
        if self._pool.proxy is None or self._is_forwarded:
            connection.connect()
        else:
            self._pool._prepare_proxy(connection)
        connection.sock.settimeout(self._read_timeout_s)


def _request(
    connection: Any, method: str, url: str, body: bytes | memoryview | None, headers: Mapping[str, str]
) -> None:
    try:
        connection.request(method, url, body, headers)
    except ValueError as error:
        # http.client's message repeats the header, and a UnicodeError holds the header as an attribute.
        raise UnsendableRequest(type(error).__name__) from None


def connections_to(url: str, *, connect_timeout_ms: int, read_timeout_ms: int) -> HttpConnections:
    """Return connections to the server of a URL. Nothing is connected yet.

    The environment names the proxies (``https_proxy``, ``http_proxy``, ``no_proxy``) and the trusted certificates
    (``SSL_CERT_FILE``).
    """
    parts = urlsplit(url)
    timeout = Timeout(connect=connect_timeout_ms / 1000, read=read_timeout_ms / 1000)
    proxy_url = getproxies().get(parts.scheme)
    if proxy_url is None or proxy_bypass(parts.netloc):
        manager = PoolManager(timeout=timeout, ssl_context=_tls(parts.scheme))
    else:
        proxy = urlsplit(proxy_url)
        account = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else None
        manager = ProxyManager(
            proxy_url,
            timeout=timeout,
            ssl_context=_tls(parts.scheme),
            proxy_headers=make_headers(proxy_basic_auth=account) if account else None,
        )
    pool: Any = manager.connection_from_url(url)
    pool.ConnectionCls = _HttpsConnection if parts.scheme == "https" else _HttpConnection
    is_forwarded = pool.proxy is not None and parts.scheme == "http"
    return HttpConnections(pool, is_forwarded=is_forwarded, read_timeout_s=read_timeout_ms / 1000)


def _tls(scheme: str) -> ssl.SSLContext | None:
    return ssl.create_default_context() if scheme == "https" else None
