"""An object store in an S3 bucket, through s3fs. Put-if-absent uses ``If-None-Match``, and every retry is made here."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from eoslog.errors import InvalidOption, PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage import tracing
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue
from eoslog.storage.object_store import (
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    StoredObject,
    check_directory,
    check_path,
    check_prefix,
    check_range,
)
from eoslog.storage.process import forks
from eoslog.storage.request_log import TimedRequest
from eoslog.storage.s3_connection import RENEWABLE_CODES, S3Connection, answer_of, code_of, status_of, translated
from eoslog.storage.s3_options import S3Options

_T = TypeVar("_T")
_R = TypeVar("_R")
_PAGE = 1000
_PARALLEL_REQUESTS = 32
_LONGEST_WAIT_MS = 5_000
_TURN_PATIENCE_MS = 5_000
"""A put may take a second, and may have to be repeated."""
_DIRECTORY_BUCKET = "--x-s3"
_EXPECTED = (404, 409, 412, 416)
"""Answers that belong to the protocol: a missing object, a lost race for a name, a range beyond the end."""


class S3Store(ObjectStore):
    """Objects below ``prefix`` in ``bucket``. Each process opens its own connection, so a forked child may use it."""

    tail_bytes = 64 * 1024
    reads_at_once = 16

    def __init__(self, bucket: str, prefix: str, environment: Environment, options: S3Options | None = None) -> None:
        if not bucket:
            raise InvalidOption("An S3 URL names a bucket: s3://bucket/prefix.")
        prefix = prefix.strip("/")
        if prefix:
            check_path(prefix)
        super().__init__(f"s3://{bucket}/{prefix}".rstrip("/"), StoreClock(environment))
        self.lists_in_order = not bucket.endswith(_DIRECTORY_BUCKET)
        self._bucket = bucket
        self._key_prefix = f"{prefix}/" if prefix else ""
        self._environment = environment
        self._options = options or S3Options()
        self._connections: dict[int, S3Connection] = {}
        """Connections by ``forks()``. A child never uses or closes its parent's connection: closing it would hang."""

    def __repr__(self) -> str:
        return f"S3Store({self.url!r}, {self._options!r})"

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        key = self._key(path)
        return self._run(lambda: self._put_if_absent(path, key, body))

    def put(self, path: str, body: bytes) -> None:
        self.put_many([(path, body)])

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        named = [(path, self._key(path), body) for path, body in objects]
        self._run_all([partial(self._put, path, key, body) for path, key, body in named])

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        named = [(path, self._key(path), body) for path, body in objects]
        self._run_all([partial(self._put_new, path, key, body) for path, key, body in named])

    def get(self, path: str) -> StoredObject:
        key = self._key(path)
        return self._run(lambda: self._get(path, key))

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        named = [(path, self._key(path)) for path in paths]
        return self._run_all([partial(self._get_or_nothing, path, key) for path, key in named])

    def for_each(self, function: Callable[[_T], _R], items: Sequence[_T]) -> Sequence[_R]:
        if len(items) < 2:
            return super().for_each(function, items)
        with ThreadPoolExecutor(min(len(items), _PARALLEL_REQUESTS)) as threads:
            return list(threads.map(tracing.carried(function), items))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get_ranges(path, [(start, length)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        key, asked = self._key(path), []
        for start, length in ranges:
            check_range(start, length)
            # S3 has no empty range. Ask for one byte, to learn whether the object exists.
            asked.append(partial(self._get, path, key, Range=f"bytes={start}-{start + max(length, 1) - 1}"))
        found = self._run_all(asked)
        return [each.body[:length] for each, (_, length) in zip(found, ranges, strict=True)]

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        parameters: dict[str, Any] = {"MaxKeys": _PAGE if limit is None else max(1, min(limit, _PAGE))}
        asked = prefix
        if self.lists_in_order:
            if start_after:
                parameters["StartAfter"] = self._key_prefix + start_after
        else:
            # A directory bucket (S3 Express) lists only whole directories, and does not support StartAfter.
            asked = prefix[: prefix.rfind("/") + 1]
        found = 0
        for page in self._pages(asked, parameters):
            for entry in page.get("Contents", ()):
                path = entry["Key"][len(self._key_prefix) :]
                if not path.startswith(prefix) or path <= start_after or path.endswith("/"):
                    continue
                if limit is not None and found >= limit:
                    return
                found += 1
                yield ObjectInfo(path, entry["Size"], _milliseconds(entry["LastModified"]))
            if limit is not None:
                return

    def list_directories(self, prefix: str) -> Sequence[str]:
        check_directory(prefix)
        below = len(self._key_prefix + prefix)
        pages = self._pages(prefix, {"MaxKeys": _PAGE, "Delimiter": "/"})
        return sorted(
            common["Prefix"][below:].rstrip("/") for page in pages for common in page.get("CommonPrefixes", ())
        )

    def holds(self, other: ObjectStore) -> bool:
        return (
            isinstance(other, S3Store)
            and (other._bucket, other._options.endpoint_url) == (self._bucket, self._options.endpoint_url)
            and other._key_prefix.startswith(self._key_prefix)
        )

    def share_turns(self, store_id: str) -> None:
        if HostQueue.is_supported:
            self.host_queue = HostQueue(
                cache(partial(self._queue_name, store_id)), self._environment, patience_ms=_TURN_PATIENCE_MS
            )

    def _queue_name(self, store_id: str) -> str:
        # A copy of a store has its id, and may have its URL at another server.
        place = f"{self._connected().endpoint_url}/{self._bucket}/{self._key_prefix}/{store_id}"
        return hashlib.sha256(place.encode()).hexdigest()

    def unfinished_uploads(self) -> Iterator[str]:
        asked: dict[str, Any] = {"Prefix": self._key_prefix}
        while True:
            page = self._run(partial(self._uploads, asked))
            for upload in page.get("Uploads") or ():
                yield upload["Key"][len(self._key_prefix) :]
            if not page.get("IsTruncated"):
                return
            asked |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def delete(self, paths: Sequence[str]) -> None:
        # Delete one by one: S3 promises no order within one request for many objects.
        named = [(path, self._key(path)) for path in paths]

        async def work() -> None:
            for path, key in named:
                await self._delete(path, key)

        self._run(work)

    def delete_many(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        self._run_all([partial(self._delete_batch, keys[at : at + _PAGE]) for at in range(0, len(keys), _PAGE)])

    async def _put_if_absent(self, path: str, key: str, body: bytes) -> PutOutcome:
        try:
            await self._send("put_object", Key=key, Body=body, IfNoneMatch="*", **self._options.headers_of_puts)
        except Exception as error:
            status = status_of(error)
            if status == 412:
                return PutOutcome.EXISTS
            if status == 409:
                return PutOutcome.CONFLICT
            if status == 501:
                raise PutIfAbsentUnsupported(
                    f"{self.url} answered {status} {code_of(error)} to a put with If-None-Match, so it cannot hold a"
                    " store; use an object store that supports conditional writes."
                ) from error
            raise self._meaning_of_failed_put(error, path) from error
        return PutOutcome.CREATED

    async def _put(self, path: str, key: str, body: bytes) -> None:
        async def attempt() -> None:
            try:
                await self._send("put_object", Key=key, Body=body, **self._options.headers_of_puts)
            except Exception as error:
                raise self._meaning_of_failed_put(error, path) from error

        await self._retried(attempt)

    async def _put_new(self, path: str, key: str, body: bytes) -> None:
        """Put an object under a new name, with ``If-None-Match``. A policy may require this to prevent replacement."""

        async def attempt() -> None:
            try:
                await self._send("put_object", Key=key, Body=body, IfNoneMatch="*", **self._options.headers_of_puts)
            except Exception as error:
                if status_of(error) != 412:
                    raise self._meaning_of_failed_put(error, path) from error
                # The name is unique, so an earlier attempt that got no answer has landed. Compare to be sure.
                if (await self._get(path, key)).body != body:
                    raise StoreAccessDenied(
                        f"{self.url}: {path!r} already exists with other bytes, although its name is new. Nothing was"
                        " replaced; check that no other program writes here."
                    ) from error

        await self._retried(attempt)

    async def _get(self, path: str, key: str, **parameters: str) -> StoredObject:
        async def attempt() -> StoredObject:
            try:
                answer = await self._send("get_object", Key=key, **parameters)
            except Exception as error:
                if status_of(error) == 416:
                    return StoredObject(b"", 0)
                raise translated(error, self.url, path) from error
            body = answer["Body"]
            if "ContentLength" not in answer or "LastModified" not in answer:
                raise StoreUnavailable(
                    f"{self.url}: {path!r} came without its length or time, as no S3 server answers; check endpoint_url"
                    " and the proxies before it."
                )
            if len(body) != answer["ContentLength"]:
                raise StoreUnavailable(
                    f"{self.url}: {path!r} came with {len(body)} of {answer['ContentLength']} bytes; try again."
                )
            return StoredObject(body, _milliseconds(answer["LastModified"]))

        return await self._retried(attempt)

    async def _get_or_nothing(self, path: str, key: str) -> StoredObject | None:
        try:
            return await self._get(path, key)
        except ObjectNotFound:
            return None

    async def _delete(self, path: str, key: str) -> None:
        async def attempt() -> None:
            try:
                await self._send("delete_object", Key=key)
            except Exception as error:
                meaning = translated(error, self.url, path)
                if not isinstance(meaning, ObjectNotFound):
                    raise meaning from error

        await self._retried(attempt)

    async def _delete_batch(self, keys: Sequence[str]) -> None:
        async def attempt() -> None:
            objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            try:
                answer = await self._send("delete_objects", Delete=objects)
            except Exception as error:
                raise translated(error, self.url, "several objects", of_an_object=False) from error
            for failure in answer.get("Errors", ()):
                code, path = failure.get("Code"), str(failure.get("Key"))[len(self._key_prefix) :]
                if code == "AccessDenied":
                    raise StoreAccessDenied(
                        f"{self.url}: DeleteObjects of {path!r} was refused with {code}; check credentials,"
                        " permissions and options."
                    )
                if code not in ("NoSuchKey", "NoSuchVersion"):
                    raise StoreUnavailable(f"{self.url}: {path!r} was not deleted ({code}); try again.")

        await self._retried(attempt)

    def _pages(self, prefix: str, parameters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        asked = {**parameters, "Prefix": self._key_prefix + prefix}
        while True:
            page = self._run(partial(self._page, prefix, asked))
            yield page
            if not page.get("IsTruncated"):
                return
            asked = {**asked, "ContinuationToken": page["NextContinuationToken"]}

    async def _page(self, prefix: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        async def attempt() -> Mapping[str, Any]:
            try:
                return await self._send("list_objects_v2", **parameters)
            except Exception as error:
                raise translated(error, self.url, prefix, of_an_object=False) from error

        return await self._retried(attempt)

    async def _uploads(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        async def attempt() -> Mapping[str, Any]:
            try:
                return await self._send("list_multipart_uploads", **parameters)
            except Exception as error:
                raise translated(error, self.url, "", of_an_object=False) from error

        return await self._retried(attempt)

    async def _send(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """Send a request, and return its answer with all of its body. Observe its ``Date``, also that of an error.

        If S3 refuses the credentials, look for renewed ones and send the request again. A refused request changes
        nothing.
        """
        connection = self._connected()
        renewals = connection.renewals
        try:
            return await self._send_once(operation, **parameters)
        except Exception as error:
            if code_of(error) not in RENEWABLE_CODES:
                raise
            # Another request may have found the renewed credentials while this one was on its way.
            if connection.renewals == renewals and not await connection.renew_credentials():
                raise
        return await self._send_once(operation, **parameters)

    async def _send_once(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        # The parameters hold neither credentials nor a signature.
        path = str(parameters.get("Key", parameters.get("Prefix", ""))).removeprefix(self._key_prefix)
        if "Range" in parameters:
            path += f" {parameters['Range']}"
        with TimedRequest(self, self._environment, operation.split("_")[0].upper(), path) as request:
            try:
                client = await self._connected().client()
                answer: dict[str, Any] = await getattr(client, operation)(Bucket=self._bucket, **parameters)
                self._observe(answer)
                if operation == "get_object":
                    async with answer["Body"] as stream:
                        answer["Body"] = await stream.read()
            except Exception as error:
                self._observe(answer_of(error))
                if answer_of(error):
                    request.outcome = f"{status_of(error)} {code_of(error)}"
                    request.is_answered = status_of(error) in _EXPECTED
                tracing.describe(request.span, {"http.response.status_code": status_of(error) or None})
                raise
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
            request.outcome = status
            size = answer.get("ContentLength") if "Body" not in parameters else len(parameters["Body"])
            tracing.describe(request.span, {"http.response.status_code": status, "eoslog.object.bytes": size})
            return answer

    async def _retried(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(StoreUnavailable),
            stop=stop_after_attempt(self._options.max_attempts),
            wait=self._wait_seconds,
            reraise=True,
        )
        return await retrying(attempt)

    def _wait_seconds(self, state: RetryCallState) -> float:
        wait_ms = min(_LONGEST_WAIT_MS, self._options.retry_base_ms * 2 ** (state.attempt_number - 1))
        return float(wait_ms * (0.5 + self._environment.jitter()) / 1000)

    def _meaning_of_failed_put(self, error: Exception, path: str) -> Exception:
        meaning = translated(error, self.url, path)
        if isinstance(meaning, ObjectNotFound):
            return StoreUnavailable(f"{self.url}: the put of {path!r} was answered 404; try again.")
        return meaning

    def _connected(self) -> S3Connection:
        connection = self._connections.get(forks())
        if connection is None:
            # Concurrent threads all get the connection that was stored first. A lock could be held forever after a
            # fork.
            connection = self._connections.setdefault(forks(), S3Connection(self._options, self.requests))
        return connection

    def _run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        return self._connected().run(work)

    def _run_all(self, works: Sequence[Callable[[], Awaitable[_T]]]) -> Sequence[_T]:
        """Run all in parallel. Raise the first error, but only after all of them have ended."""

        async def gathered() -> Sequence[_T]:
            free = asyncio.Semaphore(_PARALLEL_REQUESTS)

            async def bounded(work: Callable[[], Awaitable[_T]]) -> _T:
                async with free:
                    return await work()

            results = await asyncio.gather(*(bounded(work) for work in works), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            return results  # type: ignore[return-value]

        return self._run(gathered) if works else []

    def _observe(self, answer: Mapping[str, Any]) -> None:
        """Observe the ``Date`` of an answer, also of an error."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date:
            self.clock.observe(_milliseconds(parsedate_to_datetime(date)))

    def _key(self, path: str) -> str:
        return self._key_prefix + check_path(path)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
