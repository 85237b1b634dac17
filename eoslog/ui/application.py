"""The console as an ASGI application: its routes, its errors, its forms, and the streams of its live parts."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs

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
from eoslog.ui.access import LARGEST_FORM_BYTES, Access, BrowserSession, Guard
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import ASSETS, Moved, Page, Query, Templates, partial

View = Callable[[ConsoleStore, Query], Page]
Action = Callable[[ConsoleStore, Mapping[str, str]], Page | Moved]

VIEWS: dict[str, View] = {
    "/": overview_page.overview,
    "/topics": topic_pages.topics,
    "/topics/{topic}": topic_pages.topic,
    "/topics/{topic}/rows": row_pages.rows,
    "/topics/{topic}/rows/{partition}/{offset}": row_pages.row,
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
_NOT_FOUND = (UnknownTopicOrPartition, TransactionalIdNotFound, GroupIdNotFound)
_logger = logging.getLogger(__name__)


class Console:
    """The web console of one store."""

    def __init__(self, store: ConsoleStore, access: Access, cookie: str) -> None:
        self._store = store
        self._access = access
        self._cookie = cookie
        self._templates = Templates()
        self.streams = 0
        """How many streams are open."""
        self.is_stopped = False
        """If it is True, the streams end."""

    def application(self, names: set[str]) -> ASGIApp:
        """Return the application. It answers requests under these host names only."""
        routes = [Route("/assets/{name}", _asset)]
        for path, action in {**ACTIONS, **ADMIN_ACTIONS}.items():
            routes.append(Route(path, self._form(action, is_admin=path in ADMIN_ACTIONS), methods=["POST"]))
        for path, view in VIEWS.items():
            routes.append(Route(f"/live{path}", self._stream(view), methods=["GET"]))
            routes.append(Route(path, self._page(view), methods=["GET"]))
        handlers: Any = {
            EosLogError: self._on_error,
            HTTPException: self._on_http_error,
            Exception: self._on_fault,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, access=self._access, names=names, cookie=self._cookie, refused=self._refused)

    def _page(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if request.scope.get("is_new_session"):
                return self._opened(request.scope["session"])
            query = _query(request, request.url.path)
            return await run_in_threadpool(lambda: self._html(view(self._store, query), query, request))

        return answer

    def _opened(self, session: BrowserSession) -> Response:
        """Give the browser its cookie, and send it to the address without the token."""
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._cookie, session.name, httponly=True, samesite="strict", path="/")
        return answer

    def _html(self, page: Page, query: Query, request: Request) -> Response:
        html = self._templates.page(page, self._common(query, request.scope.get("session")))
        return HTMLResponse(html, status_code=page.status)

    def _common(self, query: Query, session: BrowserSession | None) -> dict[str, Any]:
        slot = self._store.store.read(lambda state, slot: slot, refresh=False)
        return {
            "query": query,
            "url": self._store.store.url,
            "slot": slot,
            "now_ms": self._store.now_ms(),
            "allow_admin": self._store.allow_admin,
            "csrf_token": session.csrf_token if session is not None else "",
            "section": query.path.split("/")[1],
        }

    def _form(self, action: Action, *, is_admin: bool) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            form = await _form_of(request)
            session: BrowserSession = request.scope["session"]
            if not compare_digest(form.get("csrf_token", "").encode(), session.csrf_token.encode()):
                raise HTTPException(403, "The form is not from a page of this session. Load the page again.")
            if is_admin and not self._store.allow_admin:
                raise HTTPException(403, "The console is read-only. Start it with --allow-admin to change the store.")
            found = await run_in_threadpool(lambda: action(self._store, form))
            if isinstance(found, Moved):
                return RedirectResponse(found.path, status_code=303)
            return self._html(found, Query(request.url.path, form), request)

        return answer

    def _stream(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if self.streams >= _MOST_STREAMS:
                return PlainTextResponse("Too many pages of this console are open. Close some.", 503)
            query = replace(_query(request, request.url.path.removeprefix("/live") or "/"), is_live=True)
            since = Query("", request.query_params).number("since")
            return _Stream(self, self._live(view, query, request.scope["session"], since))

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
        while not self.is_stopped:
            await asyncio.sleep(self._store.poll_ms / 1000)
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

    async def _refused(self, scope: Any, receive: Any, send: Any) -> None:
        page = Page("refused.html", "No access", {"refusal": scope["refusal"]})
        values = {"query": Query(scope["path"]), "url": "", "section": None, "csrf_token": "", "allow_admin": False}
        html = self._templates.page(page, values)
        await HTMLResponse(html, status_code=403)(scope, receive, send)

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
        query = Query(request.url.path)
        page = Page("error.html", "Not found" if status == 404 else "Error", {"message": message}, status)
        session = request.scope.get("session")
        csrf_token = session.csrf_token if session is not None else ""
        values = {"query": query, "url": self._store.store.url, "section": None, "csrf_token": csrf_token}
        html = self._templates.page(page, {**values, "allow_admin": self._store.allow_admin})
        return HTMLResponse(html, status_code=status)


class _Stream(StreamingResponse):
    """The stream of a page. It counts as open from the check of their number on, before its first part is sent."""

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


def _query(request: Request, path: str) -> Query:
    values = {name: value for name, value in request.query_params.items() if name != "since"}
    return Query(path, values, request.path_params)


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
