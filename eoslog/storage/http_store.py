"""An object store in the cloud: retries, the meaning of answers, ranges, lists and the clock, over HTTP.

A cloud needs two classes. Its subclass of ``HttpStore`` forms the requests and reads the answers. Its ``Transport``
signs a request and sends it once.
"""

from __future__ import annotations

import ssl
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256
from typing import Protocol, TypeVar

from eoslog.errors import EosLogError, PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage import tracing
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.host_queue import HostQueue
from eoslog.storage.http_connections import PARALLEL_REQUESTS, UnsendableRequest
from eoslog.storage.http_options import HttpOptions
from eoslog.storage.library_threads import run_all_to_their_end
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
from eoslog.storage.renewed_credentials import Clocks
from eoslog.storage.request_log import TimedRequest

_T = TypeVar("_T")
_R = TypeVar("_R")
_PAGE = 1000
_LONGEST_WAIT_MS = 5_000
_TURN_PATIENCE_MS = 5_000
"""The longest wait for a turn (ms). Several processes may be first, each with a put that takes up to a second."""
_EXPECTED = (404, 409, 412, 416)
"""Answers that belong to the protocol: a missing object, a lost race for a name, a range beyond the end."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its signature."""

    kind: str
    """How the request is counted and logged: PUT, GET, LIST or DELETE."""
    operation: str
    """The cloud's name of the operation, as policies have it."""
    method: str
    key: str = ""
    """The object's key in the bucket; empty for a request to the bucket."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, also if it is a refusal."""

    status: int
    headers: Mapping[str, str]
    """The headers by their names in lower case."""
    body: bytes
    code: str = ""
    """The cloud's code of a refusal; empty if it has none."""

    def __str__(self) -> str:
        return f"{self.status} {self.code}".strip()


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. Keys are those of the bucket."""

    objects: Sequence[ObjectInfo]
    directories: Sequence[str]
    next_page: str
    """The token of the next page; empty after the last one."""


class Transport(Protocol):
    """The connections and credentials of one process."""

    amendments: int
    """The number of answers that led to other credentials or another region for later requests."""

    def bucket_url(self) -> str:
        """Return the URL of the bucket at its server. Connect if necessary, without a request."""

    def send(self, request: Request) -> Answer:
        """Make exactly one attempt. Raise an error of any class if there is no complete answer."""

    def amends(self, answer: Answer, amendments: int) -> bool:
        """Return True if the same request may be accepted now, although this answer refuses it.

        Args:
            amendments: the number of amendments when the request was sent.
        """


class HttpStore(ObjectStore):
    """Objects whose keys begin with a prefix. Each process opens its own connections, so a forked child may use it.

    Requests run in threads of the library. So an interrupt of the caller never ends a request half way.
    """

    tail_bytes = 64 * 1024
    reads_at_once = 16
    lists_only_directories = False
    """True if a LIST needs a prefix that ends in ``/`` (S3 Express)."""
    service: str
    """The name of the cloud's service."""
    naming = "endpoint_url"
    """The options that name the server, for the advice in an error."""

    def __init__(self, bucket_url: str, prefix: str, environment: Environment, options: HttpOptions) -> None:
        """
        Args:
            bucket_url: the URL of the bucket as users write it, without a slash at its end.
            prefix: the path of the root in the bucket.
        """
        prefix = prefix.strip("/")
        if prefix:
            check_path(prefix)
        super().__init__(f"{bucket_url}/{prefix}".rstrip("/"), StoreClock(environment))
        self._key_prefix = f"{prefix}/" if prefix else ""
        self._environment = environment
        self._options = options
        self._bucket_url = bucket_url
        self._backoff = Backoff(options.retry_base_ms, _LONGEST_WAIT_MS)
        self._clocks = Clocks(self.clock.now_ms, environment.monotonic_ms)
        self._transports: dict[int, Transport] = {}
        """Transports by ``forks()``. A child never uses its parent's connections: both would read the same answers."""

    @abstractmethod
    def _new_transport(self) -> Transport:
        """Return a transport that has no connections yet."""

    @abstractmethod
    def _outcome(self, answer: Answer) -> PutOutcome | None:
        """Return the outcome of a put-if-absent from an answer without success; None if the answer does not tell it."""

    @abstractmethod
    def _put_request(self, key: str, body: bytes, *, if_absent: bool) -> Request: ...

    @abstractmethod
    def _get_request(self, key: str, byte_range: str | None) -> Request:
        """Return the request for an object, or for the bytes that the header ``Range`` names."""

    def _is_directory(self, answer: Answer) -> bool:
        """Return True if a GET found a directory. Some clouds keep directories beside objects."""
        return False

    @abstractmethod
    def _delete_request(self, key: str) -> Request: ...

    @abstractmethod
    def _list_request(
        self, prefix: str, *, start_after: str, limit: int, only_directories: bool, page: str
    ) -> Request: ...

    @abstractmethod
    def _page(self, answer: Answer) -> Page:
        """Return the content of a page. Raise ``ValueError`` if the answer is not understood."""

    @abstractmethod
    def _refusal(self, request: Request, answer: Answer, path: str) -> Exception:
        """Return eoslog's error for an answer without success."""

    def _silence(self, error: Exception, path: str) -> Exception:
        """Return eoslog's error for an error of the transport."""
        if isinstance(error, ssl.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return StoreUnavailable(
                f"{self.url}: {path!r} was not requested: the server's certificate is not trusted. If it comes from an "
                "authority of your own, set SSL_CERT_FILE to the file with the certificate of this authority, for each "
                f"process. Otherwise check endpoint_url: {error!r}"
            )
        return StoreUnavailable(
            f"{self.url}: {path!r} got no answer. Check {self.naming} and the network, or try again: {error!r}"
        )

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        return self._environment.uninterrupted(partial(self._put_if_absent, path, self._key(path), body))

    def put(self, path: str, body: bytes) -> None:
        self.put_many([(path, body)])

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        self._run_all([partial(self._put, path, self._key(path), body) for path, body in objects])

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        self._run_all([partial(self._put_new, path, self._key(path), body) for path, body in objects])

    def get(self, path: str) -> StoredObject:
        return self._environment.uninterrupted(partial(self._get, path, self._key(path)))

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        for path in paths:
            check_path(path)
        return self._run_all([partial(self._get_or_none, path) for path in paths])

    def for_each(self, function: Callable[[_T], _R], items: Sequence[_T]) -> Sequence[_R]:
        if len(items) < 2:
            return super().for_each(function, items)
        with ThreadPoolExecutor(min(len(items), PARALLEL_REQUESTS)) as threads:
            return list(threads.map(tracing.carried(function), items))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get_ranges(path, [(start, length)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        key, asked = self._key(path), []
        for start, length in ranges:
            check_range(start, length)
            # HTTP has no empty range. Ask for one byte, to learn whether the object exists.
            asked.append(partial(self._get, path, key, f"bytes={start}-{start + max(length, 1) - 1}"))
        found = self._run_all(asked)
        return [each.body[:length] for each, (_, length) in zip(found, ranges, strict=True)]

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        asked = prefix[: prefix.rfind("/") + 1] if self.lists_only_directories else prefix
        # A list without order cannot start after a path.
        after = self._key_prefix + start_after if start_after and self.lists_in_order else ""
        found = 0
        for page in self._pages(asked, start_after=after, limit=limit):
            for entry in page.objects:
                path = entry.path[len(self._key_prefix) :]
                if not path.startswith(prefix) or path <= start_after or path.endswith("/"):
                    continue
                found += 1
                yield ObjectInfo(path, entry.size, entry.last_modified_ms)
                if found == limit:
                    return

    def list_directories(self, prefix: str) -> Sequence[str]:
        check_directory(prefix)
        below = len(self._key_prefix + prefix)
        pages = self._pages(prefix, only_directories=True)
        return sorted(directory[below:].rstrip("/") for page in pages for directory in page.directories)

    def delete(self, paths: Sequence[str]) -> None:
        named = [(path, self._key(path)) for path in paths]

        def in_order() -> None:
            for path, key in named:
                self._delete(path, key)

        self._environment.uninterrupted(in_order)

    def delete_many(self, paths: Sequence[str]) -> None:
        self._run_all([partial(self._delete, path, self._key(path)) for path in paths])

    def holds(self, other: ObjectStore) -> bool:
        return (
            isinstance(other, HttpStore)
            and (other._bucket_url, other._options.endpoint_url) == (self._bucket_url, self._options.endpoint_url)
            and other._key_prefix.startswith(self._key_prefix)
        )

    @property
    def location(self) -> str:
        """The address of the root. A copy of the store may have the same URL at another server."""
        return f"{self._environment.uninterrupted(self._transport().bucket_url)}/{self._key_prefix}"

    def share_turns(self, store_id: str) -> None:
        if HostQueue.is_supported:
            name = sha256(f"{self.location}/{store_id}".encode()).hexdigest()
            self.host_queue = HostQueue(lambda: name, self._environment, patience_ms=_TURN_PATIENCE_MS)

    def _put_if_absent(self, path: str, key: str, body: bytes) -> PutOutcome:
        request = self._put_request(key, body, if_absent=True)
        answer = self._send(request, path)
        outcome = self._outcome(answer)
        if outcome is not None:
            return outcome
        if answer.status == 501:
            raise PutIfAbsentUnsupported(
                f"{self.url} answered {answer} to a conditional put, so it cannot hold a store."
                " Use an object store that supports conditional writes."
            )
        self._check(request, answer, path)
        return PutOutcome.CREATED

    def _put(self, path: str, key: str, body: bytes) -> None:
        self._answer(self._put_request(key, body, if_absent=False), path)

    def _put_new(self, path: str, key: str, body: bytes) -> None:
        """Put an object under a new name, if absent. A policy may require this to prevent replacement."""
        request = self._put_request(key, body, if_absent=True)

        def attempt() -> None:
            answer = self._send(request, path)
            if self._outcome(answer) is not PutOutcome.EXISTS:
                self._check(request, answer, path)
            # The name is unique, so an earlier attempt that got no answer has landed. Compare to be sure.
            elif self._get(path, key).body != body:
                raise StoreAccessDenied(
                    f"{self.url}: {path!r} already exists with other bytes, although its name is new. Nothing was"
                    " replaced. Check that no other program writes here."
                )

        self._retried(attempt)

    def _get(self, path: str, key: str, byte_range: str | None = None) -> StoredObject:
        request = self._get_request(key, byte_range)

        def attempt() -> StoredObject:
            answer = self._send(request, path)
            if answer.status == 416:
                return StoredObject(b"", 0)
            self._check(request, answer, path)
            if self._is_directory(answer):
                raise ObjectNotFound(path)
            last_modified_ms = _date_ms(answer.headers.get("last-modified"))
            if last_modified_ms is None or "content-length" not in answer.headers:
                raise StoreUnavailable(
                    f"{self.url}: {path!r} came without its length or time, as no {self.service} server answers. Check"
                    " endpoint_url and the proxies before it."
                )
            return StoredObject(answer.body, last_modified_ms)

        return self._retried(attempt)

    def _delete(self, path: str, key: str) -> None:
        try:
            self._answer(self._delete_request(key), path)
        except ObjectNotFound:
            return

    def _pages(
        self, prefix: str, *, start_after: str = "", limit: int | None = None, only_directories: bool = False
    ) -> Iterator[Page]:
        def attempt(token: str) -> Page:
            request = self._list_request(
                self._key_prefix + prefix,
                start_after=start_after,
                limit=_PAGE if limit is None else max(1, min(limit, _PAGE)),
                only_directories=only_directories,
                page=token,
            )
            answer = self._check(request, self._send(request, prefix), prefix)
            with self._understood(f"the list of {prefix!r}"):
                return self._page(answer)

        token = ""
        while True:
            page = self._environment.uninterrupted(partial(self._retried, partial(attempt, token)))
            yield page
            token = page.next_page
            if not token:
                return

    @contextmanager
    def _understood(self, what: str) -> Iterator[None]:
        """Raise ``StoreUnavailable`` for a ``ValueError``, which means that an answer is not understood."""
        try:
            yield
        except ValueError as error:
            raise StoreUnavailable(
                f"{self.url}: {what} came in a form that no {self.service} server sends ({error}). Check endpoint_url"
                " and the proxies before it."
            ) from error

    def _answer(self, request: Request, path: str) -> Answer:
        """Send a request until it succeeds or is refused, and return its answer."""
        return self._retried(lambda: self._check(request, self._send(request, path), path))

    def _check(self, request: Request, answer: Answer, path: str) -> Answer:
        """Return the answer if it is a success. Raise the error that it means otherwise."""
        if answer.status < 300:
            return answer
        meaning = self._refusal(request, answer, path)
        if request.kind == "PUT" and isinstance(meaning, ObjectNotFound):
            raise StoreUnavailable(f"{self.url}: the put of {path!r} was answered 404. Try again.")
        raise meaning

    def _send(self, request: Request, path: str) -> Answer:
        """Send a request, and return its answer with all of its body. Observe its ``Date``, also that of a refusal.

        If an answer leads to other credentials or to another region, send the request again. A refused request changes
        nothing.
        """
        transport = self._transport()
        amendments = transport.amendments
        try:
            answer = self._send_once(transport, request, path)
            if answer.status >= 300 and transport.amends(answer, amendments):
                answer = self._send_once(transport, request, path)
        except EosLogError:
            raise
        except UnsendableRequest:
            raise StoreAccessDenied(
                f"{self.url}: {path!r} was not requested: the credentials have a character that no header of HTTP may "
                "have, such as a line break. Copy them again."
            ) from None
        except Exception as error:
            raise self._silence(error, path) from error
        return answer

    def _transport(self) -> Transport:
        """Return the transport of this process."""
        transport = self._transports.get(forks())
        if transport is None:
            # Concurrent threads all get the transport that was stored first. A lock could be held forever after a fork.
            transport = self._transports.setdefault(forks(), self._new_transport())
        return transport

    def _send_once(self, transport: Transport, request: Request, path: str) -> Answer:
        byte_range = request.headers.get("Range")
        # The path holds neither credentials nor a signature.
        described = path if byte_range is None else f"{path} {byte_range}"
        with TimedRequest(self, self._environment, request.kind, described) as timed:
            self.requests[request.kind] += 1
            answer = transport.send(request)
            date_ms = _date_ms(answer.headers.get("date"))
            if date_ms is not None:
                self.clock.observe(date_ms)
            timed.outcome = str(answer)
            size = {"PUT": len(request.body), "GET": len(answer.body)}.get(request.kind)
            tracing.describe(timed.span, {"http.response.status_code": answer.status, "eoslog.object.bytes": size})
            if answer.status >= 300 and answer.status not in _EXPECTED:
                tracing.fail(timed.span, answer.code or str(answer.status))
        return answer

    def _retried(self, attempt: Callable[[], _T]) -> _T:
        """Repeat an attempt while its outcome is unknown."""
        failures = 0
        while True:
            try:
                return attempt()
            except StoreUnavailable:
                failures += 1
                if failures >= self._options.max_attempts:
                    raise
            self._environment.sleep_ms(self._backoff.pause_ms(failures, (1 + self._environment.jitter()) / 2))

    def _run_all(self, works: Sequence[Callable[[], _T]]) -> Sequence[_T]:
        """Run all in parallel. Raise the first error, but only after all of them have ended."""
        if len(works) < 2:
            return [self._environment.uninterrupted(work) for work in works]
        return run_all_to_their_end(works, PARALLEL_REQUESTS)

    def _key(self, path: str) -> str:
        return self._key_prefix + check_path(path)


def _date_ms(date: str | None) -> int | None:
    """Return the time of an HTTP date (ms since the epoch); None if there is none."""
    try:
        return int(parsedate_to_datetime(date or "").timestamp() * 1000)
    except ValueError:
        return None
