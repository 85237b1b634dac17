"""The console as an ASGI application: its routes, its errors, its forms, and the streams of its live parts."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from hmac import compare_digest
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eoslog.errors import (
    ApplicationRecoverableError,
    EosLogError,
    FatalError,
    GroupIdNotFound,
    InvalidOption,
    InvalidRequest,
    OffsetOutOfRange,
    RetriableError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from eoslog.ui import (
    group_pages,
    job_pages,
    log_pages,
    overview_page,
    row_pages,
    topic_pages,
    transaction_pages,
    verify_page,
)
from eoslog.ui.access import LARGEST_FORM_BYTES, LOGIN, Access, BrowserSession, Guard, PasswordAccess
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import ASSETS, Moved, Page, Query, Templates, partial
from eoslog.ui.passwords import Role
from eoslog.wording import quoted, without_code

View = Callable[[ConsoleStore, Query], Page]
Action = Callable[[ConsoleStore, Mapping[str, str]], Page | Moved]

VIEWS: dict[str, View] = {
    "/": overview_page.overview,
    "/topics": topic_pages.topics,
    "/topics/{topic}": topic_pages.topic,
    "/topics/{topic}/rows": row_pages.rows,
    "/topics/{topic}/rows/{partition}/{offset}": row_pages.row,
    "/topics/{topic}/follow": row_pages.follow,
    "/topics/{topic}/segments/{partition}": topic_pages.segments,
    "/transactions": transaction_pages.transactions,
    "/transactions/one": transaction_pages.transaction,
    "/log": log_pages.log,
    "/log/{slot}": log_pages.slot,
    "/groups": group_pages.groups,
    "/groups/one": group_pages.group,
    "/jobs": job_pages.jobs,
    "/jobs/one": job_pages.job,
    "/verify": verify_page.verify,
}
"""Each page by its path. With ``/live`` before it, a path is the stream of the page's live parts."""
ADMIN_ACTIONS: dict[str, Action] = {
    "/transactions/abort": transaction_pages.abort,
    "/groups/reset": group_pages.reset,
}
"""Forms that change the store. They need ``--allow-admin``."""
ACTIONS: dict[str, Action] = {"/verify": verify_page.start}
"""Forms that only read."""

_ASSETS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "hx-sse.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_MOST_STREAMS = 64
_AGES_EVERY_MS = 5_000
"""Live parts are written again after this time even if the log has no new slot, because they show ages (ms)."""
_OWN_PATH = re.compile(r"/(?![/\\])[!-~]*")
_NOT_FOUND = (UnknownTopicOrPartition, TransactionalIdNotFound, GroupIdNotFound)
_logger = logging.getLogger(__name__)


class StoreSummary(NamedTuple):
    """A store in the list of stores. A number is None if the store gave no answer."""

    name: str
    url: str
    slot: int | None
    topics: int | None
    open_transactions: int | None
    problem: str = ""


class StorePages:
    """The pages, forms and streams of one store."""

    def __init__(self, console: Console, store: ConsoleStore, name: str) -> None:
        """
        Args:
            name: the store's name in a console of several stores; otherwise empty.
        """
        self._console = console
        self._store = store
        self._name = name
        self.root = f"/stores/{name}" if name else ""
        """The beginning of the paths of its pages."""
        self._templates = Templates(self.root)

    def routes(self) -> list[Route]:
        """Return the routes of its pages."""
        routes = []
        for path, action in {**ACTIONS, **ADMIN_ACTIONS}.items():
            answer = self._form(action, is_admin=path in ADMIN_ACTIONS)
            routes.append(Route(self.root + path, answer, methods=["POST"]))
        for path, view in VIEWS.items():
            routes.append(Route(f"{self.root}/live{path}", self._stream(view), methods=["GET"]))
            routes.append(Route(self.root + path, self._page(view), methods=["GET"]))
        return routes

    def summary(self) -> StoreSummary:
        """Return the line of the store in the list of stores."""
        store = self._store.store
        try:
            return store.read(
                lambda state, slot: StoreSummary(self._name, store.url, slot, len(state.topics), len(state.ongoing))
            )
        except EosLogError as error:
            return StoreSummary(
                name=self._name, url=store.url, slot=None, topics=None, open_transactions=None, problem=str(error)
            )

    def _page(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if request.scope.get("is_new_session"):
                return self._console.opened(request.scope["session"], "/")
            query = self._query(request)
            return await run_in_threadpool(lambda: self._html(view(self._store, query), query, request))

        return answer

    def _query(self, request: Request, prefix: str = "") -> Query:
        values = {name: value for name, value in request.query_params.items() if name != "since"}
        return Query(request.url.path.removeprefix(self.root + prefix) or "/", values, request.path_params)

    def _html(self, page: Page, query: Query, request: Request) -> Response:
        html = self._templates.page(page, self._common(query, request.scope["session"]))
        return HTMLResponse(html, status_code=page.status)

    def _common(self, query: Query, session: BrowserSession) -> dict[str, Any]:
        slot = self._store.store.read(lambda state, slot: slot, refresh=False)
        values = {"slot": slot, "now_ms": self._store.now_ms(), "section": query.path.split("/")[1]}
        return self._frame(query, session) | values

    def _frame(self, query: Query, session: BrowserSession | None) -> dict[str, Any]:
        """Return the values that need no answer of the store."""
        return self._console.frame(query, session) | {
            "url": self._store.store.url,
            "store_name": self._name,
            "allow_admin": self._may_change(session),
            "section": None,
        }

    def _may_change(self, session: BrowserSession | None) -> bool:
        return self._store.allow_admin and session is not None and session.role is Role.ADMIN

    def _form(self, action: Action, *, is_admin: bool) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session: BrowserSession = request.scope["session"]
            form = await _checked_form(request, session)
            if is_admin and not self._store.allow_admin:
                raise HTTPException(403, "The console is read-only. Start it with --allow-admin to change the store.")
            if is_admin and not self._may_change(session):
                raise HTTPException(403, "Your role is viewer. Ask a user with the role admin to change the store.")
            if is_admin and session.user:
                _logger.info("%s: %s by %s", self._store.store.url, request.url.path, quoted(session.user))
            found = await run_in_threadpool(lambda: action(self._store, form))
            if isinstance(found, Moved):
                return RedirectResponse(self.root + found.path, status_code=303)
            return self._html(found, Query(request.url.path.removeprefix(self.root), form), request)

        return answer

    def _stream(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if self._console.streams >= _MOST_STREAMS:
                return PlainTextResponse("Too many pages of this console are open. Close some.", 503)
            query = replace(self._query(request, "/live"), is_live=True)
            since = Query("", request.query_params).number("since")
            return _Stream(self._console, self._live(view, query, request.scope["session"], since))

        return answer

    async def _live(self, view: View, query: Query, session: BrowserSession, seen: int | None) -> AsyncIterator[str]:
        """Yield the live parts of a page that differ from those sent before.

        Args:
            seen: the slot that the page shows; None if it is not known.
        """
        monotonic_ms = self._store.store.environment.monotonic_ms
        sent: dict[str, str] = {}
        verified, written_ms = self._store.verification.status, monotonic_ms()
        yield ": open\n\n"
        while not self._console.is_stopped:
            await asyncio.sleep(self._store.poll_ms / 1000)
            if not self._console.is_current(session):
                return
            try:
                newest = await run_in_threadpool(self._store.newest_slot)
                is_old = monotonic_ms() - written_ms >= _AGES_EVERY_MS
                status = self._store.verification.status
                if newest == seen and status is verified and not is_old:
                    continue
                parts = await run_in_threadpool(self._live_parts, view, query, session)
            except EosLogError as error:
                # The page stays as it is, with its time. The next round tries again.
                _logger.info("%s: a page was not brought up to date: %s", query.path, error)
                yield ": no answer\n\n"
                continue
            seen, verified, written_ms = newest, status, monotonic_ms()
            changed = "".join(partial(name, html) for name, html in parts.items() if sent.get(name) != html)
            sent = parts
            yield _event(changed) if changed else ": nothing new\n\n"

    def _live_parts(self, view: View, query: Query, session: BrowserSession) -> dict[str, str]:
        page = view(self._store, query)
        return self._templates.live_parts(page, self._common(query, session))

    def error(self, request: Request, page: Page) -> Response:
        """Return the page of an error."""
        query = Query(request.url.path)
        html = self._templates.page(page, self._frame(query, request.scope.get("session")))
        return HTMLResponse(html, status_code=page.status)


class Console:
    """The web console of one store, or of several."""

    def __init__(
        self, stores: Mapping[str, ConsoleStore], access: Access, cookie: str, *, is_secure: bool = False
    ) -> None:
        """
        Args:
            stores: the stores by their names. The name of a single store is empty.
            cookie: the name of the cookie.
            is_secure: True if browsers reach the console by HTTPS alone. Then they send the cookie by nothing else.
        """
        self._access = access
        self._cookie = cookie
        self._is_secure = is_secure
        self._templates = Templates("")
        self._logins = CapacityLimiter(1)
        self.stores = {name: StorePages(self, store, name) for name, store in stores.items()}
        self.streams = 0
        """How many streams are open."""
        self.is_stopped = False
        """If it is True, the streams end."""

    def application(self, names: set[str], public_url: str | None = None) -> ASGIApp:
        """Return the application.

        Args:
            names: the host names under which it answers.
            public_url: the URL by which browsers reach it through a proxy; None without a proxy.
        """
        routes = [Route("/assets/{name}", _asset)]
        if isinstance(self._access, PasswordAccess):
            routes.append(Route(LOGIN, self._login_page, methods=["GET"]))
            routes.append(Route(LOGIN, self._login, methods=["POST"]))
            routes.append(Route("/logout", self._logout, methods=["POST"]))
        if "" not in self.stores:
            routes.append(Route("/", self._list, methods=["GET"]))
        for pages in self.stores.values():
            routes += pages.routes()
        handlers: Any = {
            EosLogError: self._on_error,
            HTTPException: self._on_http_error,
            Exception: self._on_fault,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        origin = None if public_url is None else urlsplit(public_url).netloc.lower()
        return Guard(app, access=self._access, names=names, origin=origin, cookie=self._cookie, refused=self._refused)

    def opened(self, session: BrowserSession, path: str) -> Response:
        """Give the browser its cookie, and send it to a path."""
        answer = RedirectResponse(path, status_code=303)
        answer.set_cookie(
            self._cookie, session.name, httponly=True, samesite="strict", secure=self._is_secure, path="/"
        )
        return answer

    def is_current(self, session: BrowserSession) -> bool:
        """Return True if a session has not ended."""
        return self._access.is_current(session)

    def frame(self, query: Query, session: BrowserSession | None) -> dict[str, Any]:
        """Return the values of a page that belongs to no store."""
        return {
            "query": query,
            "url": "",
            "store_name": "",
            "section": None,
            "allow_admin": False,
            "csrf_token": session.csrf_token if session is not None else "",
            "user": session.user if session is not None else "",
            "can_logout": isinstance(self._access, PasswordAccess),
        }

    def _html(self, page: Page, query: Query, session: BrowserSession | None = None) -> Response:
        html = self._templates.page(page, self.frame(query, session))
        return HTMLResponse(html, status_code=page.status)

    async def _list(self, request: Request) -> Response:
        session: BrowserSession = request.scope["session"]
        if request.scope.get("is_new_session"):
            return self.opened(session, "/")
        summaries = await run_in_threadpool(lambda: [pages.summary() for pages in self.stores.values()])
        return self._html(Page("stores.html", "Stores", {"stores": summaries}, is_live=False), Query("/"), session)

    async def _login_page(self, request: Request) -> Response:
        return self._login_form(_own_path(request.query_params.get("to", "/")))

    def _login_form(self, to: str, problem: str | None = None, status: int = 200) -> Response:
        return self._html(Page("login.html", "Log in", {"to": to, "problem": problem}, status), Query(LOGIN))

    async def _login(self, request: Request) -> Response:
        assert isinstance(self._access, PasswordAccess)
        form = await _form_of(request)
        to = _own_path(form.get("to", "/"))
        name, password = form.get("name", ""), form.get("password", "")
        try:
            # One at a time: a hash takes memory and time by design, and strangers may ask for many.
            session = await to_thread.run_sync(self._access.login, name, password, limiter=self._logins)
        except InvalidRequest as error:
            return self._login_form(to, without_code(error), 429)
        if session is None:
            _logger.warning("a login as %s failed", quoted(name))
            return self._login_form(to, "The name or the password is wrong.", 403)
        return self.opened(session, to)

    async def _logout(self, request: Request) -> Response:
        assert isinstance(self._access, PasswordAccess)
        session: BrowserSession = request.scope["session"]
        await _checked_form(request, session)
        self._access.logout(session)
        return RedirectResponse(LOGIN, status_code=303)

    async def _refused(self, scope: Any, receive: Any, send: Any) -> None:
        query = Query(scope["path"])
        answer: Response
        if scope["refusal"] == "login" and scope["method"] == "GET" and "/live/" not in scope["path"]:
            to = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            answer = RedirectResponse(f"{LOGIN}?{urlencode({'to': to})}", status_code=303)
        else:
            answer = self._html(Page("refused.html", "No access", {"refusal": scope["refusal"]}, 403), query)
        await answer(scope, receive, send)

    def _on_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, EosLogError)
        return self._error(request, str(error), _status_of(error))

    def _on_http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._error(request, error.detail, error.status_code)

    def _on_fault(self, request: Request, error: Exception) -> Response:
        # Starlette logs the error with its traceback. The page shows neither: a message may contain data of the store.
        return self._error(request, f"The console failed ({type(error).__name__}). Its log has the details.", 500)

    def _error(self, request: Request, message: str, status: int) -> Response:
        page = Page("error.html", "Not found" if status == 404 else "Error", {"message": message}, status)
        for pages in self.stores.values():
            if request.url.path.startswith(f"{pages.root}/"):
                return pages.error(request, page)
        return self._html(page, Query(request.url.path), request.scope.get("session"))


class _Stream(StreamingResponse):
    """The stream of a page. It counts as open since the check of the number of streams, before its first part."""

    def __init__(self, console: Console, parts: AsyncIterator[str]) -> None:
        super().__init__(parts, media_type="text/event-stream")
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._console.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._console.streams -= 1


def _status_of(error: EosLogError) -> int:
    if isinstance(error, _NOT_FOUND):
        return 404
    if isinstance(error, (InvalidOption, InvalidRequest, OffsetOutOfRange)):
        return 400
    if isinstance(error, RetriableError):
        return 503
    return 409 if isinstance(error, (FatalError, ApplicationRecoverableError)) else 500


def _own_path(given: str) -> str:
    """Return a path of the console to which a login leads; the first page if the text is another site's address."""
    return given if _OWN_PATH.fullmatch(given) else "/"


async def _checked_form(request: Request, session: BrowserSession) -> dict[str, str]:
    """Return the fields of a form of this session.

    Raises:
        HTTPException: the form is not from a page of this session, or it is too large.
    """
    form = await _form_of(request)
    if not compare_digest(form.get("csrf_token", "").encode(), session.csrf_token.encode()):
        raise HTTPException(403, "The form is not from a page of this session. Load the page again.")
    return form


async def _form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; the last value of each.

    Raises:
        HTTPException: the form is too large.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_FORM_BYTES:
            raise HTTPException(413, f"A form has at most {LARGEST_FORM_BYTES} bytes.")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise HTTPException(404, "There is no such file.")
    body = (ASSETS / name).read_bytes()
    return Response(body, media_type=_ASSETS[name], headers={"Cache-Control": "max-age=31536000, immutable"})


def _event(html: str) -> str:
    """Return a message of a stream of events."""
    return "".join(f"data: {line}\n" for line in re.split(r"\r\n|\r|\n", html)) + "\n"
