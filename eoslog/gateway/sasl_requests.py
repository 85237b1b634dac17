"""Requests of clients that authenticate themselves: SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from datetime import timedelta

from kio.schema.errors import ErrorCode

from eoslog.gateway.authentication import Authentication
from eoslog.gateway.protocol import ApiKey, Request
from eoslog.wording import quoted


class SaslRequests:
    """The answers to these requests."""

    def __init__(self, executor: Executor) -> None:
        """
        Args:
            executor: threads for the read of files, and for requests to the issuer of tokens.
        """
        self._executor = executor

    async def answer(self, request: Request, authentication: Authentication) -> tuple[bytes, str | None]:
        """Return the answer, and why the connection ends after it; None: it does not end."""
        step = _handshake if request.api.key is ApiKey.SASL_HANDSHAKE else _authenticate
        return await asyncio.get_running_loop().run_in_executor(self._executor, step, request, authentication)


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
