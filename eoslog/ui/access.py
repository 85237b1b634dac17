"""Access to the console: sessions by a link, a password or a proxy, the checks of each request, and their headers.

By default the console listens only on this machine. But a page of another site can send requests to it through the
user's browser, also under a name that resolves to 127.0.0.1 (DNS rebinding). So each request needs a session: its
cookie, which the browser sends only from the console's own pages, or the header of a proxy. Each request also needs a
``Host`` that belongs to the console.
"""

from __future__ import annotations

import hmac
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eoslog.errors import InvalidRequest
from eoslog.storage.environment import Environment
from eoslog.ui.passwords import LONGEST_USER, PasswordFile, Role

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LARGEST_FORM_BYTES = 64 << 10
LOGIN = "/login"
"""The path of the form for the name and the password."""
_MOST_LOGINS = 1_000
_LOGIN_MS = 12 * 3_600_000
"""A session ends this long after its login (ms)."""
_MOST_FAILURES, _FAILURES_COUNT_MS = 10, 300_000
"""After this number of failed logins under a name within this time (ms), further ones are refused."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer" a browser would send "null" as the origin of the console's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class BrowserSession(NamedTuple):
    """A user of the console in one browser."""

    name: str
    """The value of the session's cookie. Empty if a proxy names the user in each request."""
    csrf_token: str
    """Each form of the session contains it. Another site cannot read it."""
    user: str = ""
    """The name of the user; empty for the holder of the link."""
    role: Role = Role.ADMIN
    opened_ms: int = 0
    """The time of the monotonic clock at which it began (ms)."""


class Access(ABC):
    """The rule that decides who may use the console. It finds the session of each request."""

    refusal: ClassVar[str]
    """The reason to refuse a request without a session."""

    @abstractmethod
    def session(self, scope: Scope, cookie: str) -> BrowserSession | None:
        """Return the session of a request; None if it has none.

        Args:
            cookie: the value of the console's cookie; empty if the request has none.
        """

    @abstractmethod
    def is_current(self, session: BrowserSession) -> bool:
        """Return True if a session has not ended."""


class _CookieAccess(Access):
    """Sessions that the console itself keeps. They end with the process."""

    def __init__(self, environment: Environment, *, most_sessions: int) -> None:
        self._environment = environment
        self._most = most_sessions
        self._sessions: list[BrowserSession] = []
        self._changing = threading.Lock()
        """Held by a thread that changes the sessions. A login runs in another thread than a logout, and without the
        lock it could bring back the session that was just ended."""

    def _secret(self) -> str:
        return self._environment.new_id() + self._environment.new_id()

    def _open(self, user: str = "", role: Role = Role.ADMIN) -> BrowserSession:
        opened_ms = self._environment.monotonic_ms()
        session = BrowserSession(self._secret(), self._secret(), user, role, opened_ms)
        with self._changing:
            self._sessions = [*self._sessions, session][-self._most :]
        return session

    def session(self, scope: Scope, cookie: str) -> BrowserSession | None:
        found = None
        for each in self._sessions:
            if hmac.compare_digest(cookie.encode(), each.name.encode()):
                found = each
        return found

    def is_current(self, session: BrowserSession) -> bool:
        return self.session({}, session.name) is not None


class LinkAccess(_CookieAccess):
    """One user, who has the link with the one-time token."""

    refusal = "session"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment, most_sessions=1)
        self.token = self._secret()
        self._is_used = False

    def use_token(self, given: str) -> BrowserSession | None:
        """Return a new session for the token; None if the token is wrong or was used before."""
        is_right = hmac.compare_digest(given.encode(), self.token.encode())
        if not is_right or self._is_used:
            return None
        self._is_used = True
        return self._open()


class PasswordAccess(_CookieAccess):
    """The users of a password file. Each logs in with a name and a password."""

    refusal = "login"

    def __init__(self, environment: Environment, users: PasswordFile) -> None:
        super().__init__(environment, most_sessions=_MOST_LOGINS)
        self._users = users
        self._failures: dict[str, list[int]] = {}

    def login(self, name: str, password: str) -> BrowserSession | None:
        """Return a new session; None if the name or the password is wrong.

        Raises:
            InvalidRequest: too many logins of this name failed in the last minutes.
        """
        now_ms = self._environment.monotonic_ms()
        # Each failure takes the time of a hash, so few of them fit into this time, and the mapping stays small.
        self._failures = {
            each: lately
            for each, times in self._failures.items()
            if (lately := [failed_ms for failed_ms in times if now_ms - failed_ms < _FAILURES_COUNT_MS])
        }
        counted = name[: LONGEST_USER + 1]
        lately = self._failures.get(counted, [])
        if len(lately) >= _MOST_FAILURES:
            raise InvalidRequest("too many logins under this name have failed. Wait for five minutes")
        user = self._users.checked(name, password)
        if user is None:
            # Count the failures of unknown names, too. Otherwise the refusal would show which names are known.
            self._failures[counted] = [*lately, now_ms]
            return None
        self._failures.pop(counted, None)
        return self._open(user.name, user.role)

    def logout(self, session: BrowserSession) -> None:
        """End a session."""
        with self._changing:
            self._sessions = [each for each in self._sessions if each != session]

    def session(self, scope: Scope, cookie: str) -> BrowserSession | None:
        found = super().session(scope, cookie)
        if found is None or self._environment.monotonic_ms() - found.opened_ms >= _LOGIN_MS:
            return None
        # A user who was removed from the file, or has another role or password there, has to log in again.
        user = self._users.named(found.user)
        return found if user is not None and user.role is found.role and user.since_ms <= found.opened_ms else None


class ProxyAccess(Access):
    """Users whom a reverse proxy has authenticated. It names the user in a header of each request."""

    refusal = "proxy"

    def __init__(
        self,
        environment: Environment,
        header: str,
        *,
        proxies: Collection[IPv4Network | IPv6Network],
        admins: Collection[str],
    ) -> None:
        """Take the users of a proxy.

        Args:
            header: the header with the user's name. The proxy must replace this header in what it forwards.
            proxies: the addresses of the proxy. A request from another address is refused.
            admins: the users with the role ``admin``. All others have the role ``viewer``.
        """
        self._key = environment.new_id().encode()
        self._header = header
        self._proxies = tuple(proxies)
        self._admins = frozenset(admins)

    def session(self, scope: Scope, cookie: str) -> BrowserSession | None:
        client = scope.get("client")
        users = Headers(scope=scope).getlist(self._header)
        # If there are two values, the proxy has not replaced the one that the browser sent.
        if client is None or len(users) != 1 or not self._is_proxy(client[0]):
            return None
        (user,) = users
        if not user or len(user) > LONGEST_USER or not user.isprintable():
            return None
        csrf_token = hmac.new(self._key, user.encode(), sha256).hexdigest()
        return BrowserSession("", csrf_token, user, Role.ADMIN if user in self._admins else Role.VIEWER)

    def _is_proxy(self, client: str) -> bool:
        try:
            address = ip_address(client)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)

    def is_current(self, session: BrowserSession) -> bool:
        return True


def host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _host_of(origin: str) -> str:
    """Return the name and port in an ``Origin`` header; empty if it is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


class Guard:
    """The outermost application. It refuses requests that may come from elsewhere, and adds the security headers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        names: Collection[str],
        origin: str | None,
        cookie: str,
        refused: ASGIApp,
    ) -> None:
        """Guard an application.

        Args:
            names: the host names of the console.
            origin: the host, with its port, at which browsers reach a proxy in front of the console. A proxy may send
                its own ``Host`` header to the console. None without a proxy.
            cookie: the name of the session's cookie.
            refused: answers refused requests. ``scope["refusal"]`` is the reason.
        """
        self._app = app
        self._access = access
        self._names = frozenset(names)
        self._origin = origin
        self._cookie = cookie
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            scope["refusal"] = refusal
            await self._refused(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        """Return the reason to refuse a request; None if it is allowed. Put its session into its scope."""
        connection = HTTPConnection(scope)
        headers = connection.headers
        if host_name(headers.get("host", "")) not in self._names:
            return "host"
        # Browsers send the origin of each POST. SameSite=Strict is not enough: another port of localhost is the same
        # site.
        origin = headers.get("origin")
        own = (headers["host"].lower(), self._origin)
        if scope["method"] not in ("GET", "HEAD") and origin is not None and _host_of(origin) not in own:
            return "origin"
        if scope["path"].startswith("/assets/"):
            return None
        if isinstance(self._access, PasswordAccess) and scope["path"] == LOGIN:
            return None
        if isinstance(self._access, LinkAccess) and scope["path"] == "/" and scope["method"] == "GET":
            given = connection.query_params.get("token")
            if given is not None:
                scope["session"] = self._access.use_token(given)
                scope["is_new_session"] = True
                return None if scope["session"] is not None else "token"
        scope["session"] = self._access.session(scope, connection.cookies.get(self._cookie, ""))
        return None if scope["session"] is not None else self._access.refusal
