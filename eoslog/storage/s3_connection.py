"""The connection of one process to S3 through s3fs. All hidden retries are switched off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]
from fsspec.asyn import sync
from s3fs import S3FileSystem

from eoslog.storage.s3_options import S3Options

_T = TypeVar("_T")
_PARALLEL_REQUESTS = 32
_SMALL_BODY_BYTES = 1024 * 1024
_KINDS = {
    "PutObject": "PUT",
    "GetObject": "GET",
    "ListObjectsV2": "LIST",
    "DeleteObject": "DELETE",
    "DeleteObjects": "DELETE",
}


class _SingleAttemptSession(AIOHTTPSession):  # type: ignore[misc]
    """An HTTP session without hidden retries.

    By default aiohttp repeats a PUT when a kept connection breaks. If the first one had landed, the second is answered
    412, and this process would take its own success for that of another writer.
    """

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


class S3Connection:
    """An s3fs file system and its client. Only its own process may use it, because fsspec's loop is a thread."""

    def __init__(self, options: S3Options, requests: Counter[str]) -> None:
        self._requests = requests
        self._counted_client: Any = None
        self._file_system = S3FileSystem(
            anon=options.anon,
            key=options.key,
            secret=options.secret,
            token=options.token,
            endpoint_url=options.endpoint_url,
            client_kwargs={"region_name": options.region} if options.region else {},
            config_kwargs={
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                "connect_timeout": options.connect_timeout_ms / 1000,
                "read_timeout": options.read_timeout_ms / 1000,
                "max_pool_connections": _PARALLEL_REQUESTS,
                "http_session_cls": _SingleAttemptSession,
            },
            use_listings_cache=False,
            skip_instance_cache=True,
            **({"profile": options.profile} if options.profile else {}),
        )
        self._file_system.retries = 1

    async def client(self) -> Any:
        """Return the connected S3 client. It is called directly, as s3fs drops parameters that it does not know."""
        client = await self._file_system.set_session()
        if client is not self._counted_client:
            self._counted_client = client
            client.meta.events.register("before-send.s3", self._before_send)
        return client

    def run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run a coroutine on the file system's loop and wait for it."""
        result: _T = sync(self._file_system.loop, work)
        return result

    def _before_send(self, request: Any, event_name: str, **_: object) -> None:
        operation = event_name.rpartition(".")[2]
        self._requests[_KINDS.get(operation, operation)] += 1
        headers = request.headers
        # A body that is sent in chunks has its length in a header of Amazon's.
        if int(headers.get("X-Amz-Decoded-Content-Length") or headers.get("Content-Length") or 0) <= _SMALL_BODY_BYTES:
            # ``Expect: 100-continue`` costs a round trip. It pays only where a refusal saves a long upload.
            headers.pop("Expect", None)
