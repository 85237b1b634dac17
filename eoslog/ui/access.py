"""Access to the console: the one-time token, sessions, the checks of each request, and the headers of each response.

The console listens on this machine. But a page of another site can send requests to it through the user's browser, also
under a name that resolves to 127.0.0.1 (DNS rebinding). So each request needs the cookie of a session. The browser
sends it only from the console's own pages. Each request also needs a ``Host`` that belongs to the console.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eoslog.storage.environment import Environment

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LARGEST_FORM_BYTES = 64 << 10
_MOST_SESSIONS = 16
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
    """A browser that has used the token."""

    name: str
    csrf_token: str
    """Each form of the session contains it. Another site cannot read it."""


class Access:
    """The token of one run of the console, and its sessions. They end with the process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.token = self._secret()
        self._is_used = False
        self._sessions: list[BrowserSession] = []

    def _secret(self) -> str:
        return self._environment.new_id() + self._environment.new_id()

    def use_token(self, given: str) -> BrowserSession | None:
        """Return a new session for the token; None if the token is wrong or was used before."""
        is_right = hmac.compare_digest(given.encode(), self.token.encode())
        if not is_right or self._is_used:
            return None
        self._is_used = True
        session = BrowserSession(self._secret(), self._secret())
        self._sessions = [*self._sessions, session][-_MOST_SESSIONS:]
        return session

    def session(self, name: str) -> BrowserSession | None:
        """Return the session of a cookie's value; None if there is none."""
        found = None
        for each in self._sessions:
            if hmac.compare_digest(name.encode(), each.name.encode()):
                found = each
        return found


def host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _place(origin: str) -> str | None:
    """Return the name and port in an ``Origin`` header; None if it is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


class Guard:
    """The outermost application. It refuses requests that may come from elsewhere, and adds the security headers."""

    def __init__(self, app: ASGIApp, *, access: Access, names: Collection[str], cookie: str, refused: ASGIApp) -> None:
        """Guard an application.

        Args:
            names: the host names of the console.
            cookie: the name of the session's cookie.
            refused: answers refused requests. ``scope["refusal"]`` is the reason.
        """
        self._app = app
        self._access = access
        self._names = frozenset(names)
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
        headers = Headers(scope=scope)
        if host_name(headers.get("host", "")) not in self._names:
            return "host"
        if scope["path"].startswith("/assets/"):
            return None
        if scope["path"] == "/" and scope["method"] == "GET":
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
            if given is not None:
                scope["session"] = self._access.use_token(given[-1])
                scope["is_new_session"] = True
                return None if scope["session"] is not None else "token"
        scope["session"] = self._access.session(self._session_name(headers))
        if scope["session"] is None:
            return "session"
        # Browsers send the origin of each POST. SameSite=Strict is not enough: another port of localhost is the same
        # site.
        origin = headers.get("origin")
        if scope["method"] in ("GET", "HEAD") or origin is None:
            return None
        return None if _place(origin) == headers["host"].lower() else "origin"

    def _session_name(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value
