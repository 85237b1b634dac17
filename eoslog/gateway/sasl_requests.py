"""Requests of clients that authenticate themselves: SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from kio.schema.errors import ErrorCode

from eoslog.gateway.authentication import Authentication
from eoslog.gateway.protocol import ApiKey, Request
from eoslog.storage.library_threads import LibraryExecutor
from eoslog.wording import quoted

_THREADS = 4
"""The threads of each mechanism."""


class SaslRequests:
    """The answers to these requests."""

    def __init__(self, mechanisms: Iterable[str]) -> None:
        # They read files, and ask the issuer of tokens. Users with passwords do not wait for an issuer that is slow.
        self._executors = {each: LibraryExecutor(_THREADS, "eoslog-gateway-authentication") for each in mechanisms}

    async def answer(self, request: Request, authentication: Authentication) -> tuple[bytes, str | None]:
        """Return the answer, and why the connection ends after it; None: it does not end."""
        if request.api.key is ApiKey.SASL_HANDSHAKE:
            return _handshake(request, authentication)
        if authentication.mechanism is None:
            return _authenticate(request, authentication)
        executor = self._executors[authentication.mechanism]
        return await asyncio.get_running_loop().run_in_executor(executor, _authenticate, request, authentication)

    def close(self) -> None:
        """End the threads."""
        for each in self._executors.values():
            each.shutdown(wait=False, cancel_futures=True)


def _handshake(request: Request, authentication: Authentication) -> tuple[bytes, str | None]:
    mechanism = request.message.mechanism
    answer = authentication.handshake(mechanism)
    content = request.encoded(request.api.response(error_code=answer.error, mechanisms=answer.mechanisms))
    is_wrong = answer.error is not ErrorCode.none
    return content, f"{answer.error.name}: it asks for {quoted(mechanism)}" if is_wrong else None


def _authenticate(request: Request, authentication: Authentication) -> tuple[bytes, str | None]:
    answer = authentication.authenticate(bytes(request.message.auth_bytes))
    response = request.api.response(
        error_code=answer.error,
        error_message=answer.message,
        auth_bytes=answer.content,
        session_lifetime=timedelta(milliseconds=answer.session_lifetime_ms),
    )
    return request.encoded(response), answer.message
