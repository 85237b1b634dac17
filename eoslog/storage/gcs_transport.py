"""The connections and credentials of one process to Google Cloud Storage. google-auth gets the credentials."""

from __future__ import annotations

import json
import os
import threading
from calendar import timegm
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from eoslog.errors import InvalidOption, StoreAccessDenied, StoreUnavailable
from eoslog.storage.gcs_options import GcsOptions
from eoslog.storage.http_connections import PARALLEL_REQUESTS, connections_to
from eoslog.storage.http_options import check_address
from eoslog.storage.http_store import Answer, Request
from eoslog.storage.renewed_credentials import Clocks, Credentials, RenewedCredentials, call_named, mapped
from eoslog.storage.xml_answers import detail_of_error
from eoslog.wording import quoted

_ENDPOINT = "https://storage.googleapis.com"
_EMULATOR = "STORAGE_EMULATOR_HOST"
"""Google's own clients use the server that this variable names, too."""
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class GcsTransport:
    """The connections of one process for one bucket. It asks for credentials at the first request.

    Its methods run in threads of the library. So no interrupt leaves its lock locked.
    """

    def __init__(self, bucket: str, options: GcsOptions, url: str, clocks: Clocks) -> None:
        """
        Args:
            url: the URL of the store, for the function that gives credentials.
        """
        self.amendments = 0
        self._bucket = bucket
        self._url = url
        self._options = options
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(PARALLEL_REQUESTS)
        emulator = _emulator()
        self._endpoint = (options.endpoint_url or emulator or _ENDPOINT).rstrip("/")
        # A server of tests takes every request, and must not see the credentials for the cloud.
        self._is_anonymous = options.anon or (
            _is_emulator(self._endpoint, emulator) and not (options.token or options.key_file or options.credentials)
        )
        self._connections = connections_to(
            self._endpoint,
            connect_timeout_ms=options.connect_timeout_ms,
            read_timeout_ms=options.read_timeout_ms,
        )
        self._credentials = RenewedCredentials(self._new_credentials, clocks)
        self._library: Any = None
        """The credentials of google-auth, which are kept because they know how to renew themselves."""

    def bucket_url(self) -> str:
        return f"{self._endpoint}/{self._bucket}"

    def send(self, request: Request) -> Answer:
        headers = dict(request.headers)
        if not self._is_anonymous:
            headers["Authorization"] = f"Bearer {self._credentials.current()['token']}"
        if request.method == "POST":
            headers["Content-Type"] = "application/octet-stream"
        with self._free:
            status, answered, body = self._connections.exchange(
                request.method, self._url_of(request), headers, request.body or None
            )
        return Answer(status, answered, body, _code_of(body) if status >= 300 else "")

    def amends(self, answer: Answer, amendments: int) -> bool:
        if answer.status != 401 or self._is_anonymous or self._options.token is not None:
            return False
        with self._lock:
            # Another request may have been refused, too, while this one was on its way.
            if self.amendments == amendments:
                self.amendments += self._credentials.renew()
            return self.amendments != amendments

    def _url_of(self, request: Request) -> str:
        objects = f"/storage/v1/b/{self._bucket}/o"
        match request.operation:
            case "storage.objects.create":
                path = f"/upload{objects}"
            case "storage.objects.get":
                # The older API: it documents Last-Modified, and tells a missing bucket from a missing object.
                path = f"/{self._bucket}/{quote(request.key, safe='/')}"
            case "storage.objects.delete":
                path = f"{objects}/{quote(request.key, safe='')}"
            case _:
                path = objects
        query = f"?{urlencode(request.query, safe='/', quote_via=quote)}" if request.query else ""
        return f"{self._endpoint}{path}{query}"

    def _new_credentials(self) -> Credentials:
        options = self._options
        if options.token is not None:
            return Credentials({"token": options.token})
        if self._library is None and options.credentials is not None:
            found = call_named(options.credentials, self._url)
            if not hasattr(found, "refresh"):
                return mapped(found, options.credentials, self._url, required=("token",))
            self._library = found
        return self._from_library()

    def _from_library(self) -> Credentials:
        try:
            import google.auth
            from google.auth import exceptions
            from google.auth.transport.urllib3 import Request as AuthRequest
            from urllib3 import PoolManager
        except ImportError as error:
            raise InvalidOption(
                f"{self._url}: credentials for Google Cloud Storage need google-auth. Install eoslog[gcs], or give the "
                "option token, credentials or anon."
            ) from error
        try:
            if self._library is None and self._options.key_file is not None:
                self._library, _ = google.auth.load_credentials_from_file(  # type: ignore[no-untyped-call]
                    self._options.key_file, scopes=[_SCOPE]
                )
            elif self._library is None:
                self._library, _ = google.auth.default(scopes=[_SCOPE])
            self._library.refresh(AuthRequest(PoolManager()))  # type: ignore[no-untyped-call]
        except (exceptions.GoogleAuthError, OSError, ValueError) as error:
            if isinstance(error, exceptions.TransportError) or getattr(error, "retryable", False):
                raise StoreUnavailable(
                    f"{self._url}: Google gave no access token ({type(error).__name__}). Try again."
                ) from error
            if self._options.key_file is not None:
                raise StoreAccessDenied(
                    f"{self._url}: key_file {quoted(self._options.key_file)} gave no access token "
                    f"({type(error).__name__}). Check that this host has the file, and that it is a key of Google's."
                ) from error
            raise StoreAccessDenied(
                f"{self._url}: there are no credentials ({type(error).__name__}). Google Cloud Storage takes the "
                "application default credentials (gcloud auth application-default login, "
                "GOOGLE_APPLICATION_CREDENTIALS, or the service account of the machine or the workload), or the option "
                "key_file, token or credentials. A public bucket needs none with anon=True."
            ) from error
        expiry = self._library.expiry
        # google-auth gives the expiry as a naive time in UTC.
        return Credentials(
            {"token": self._library.token}, None if expiry is None else timegm(expiry.timetuple()) * 1000
        )


def _emulator() -> str | None:
    """Return the URL of the server for tests that the environment names; None if it names none."""
    emulator = os.environ.get(_EMULATOR)
    if not emulator:
        return None
    if "://" not in emulator:
        emulator = f"http://{emulator}"
    check_address(_EMULATOR, emulator, "give credentials as options")
    return emulator


def _is_emulator(endpoint: str, emulator: str | None) -> bool:
    """Return True if an endpoint is the server for tests. Google's own servers are never one."""
    if emulator is None:
        return False
    server = urlsplit(endpoint)
    is_googles = f".{server.hostname}".endswith(".googleapis.com")
    return server.netloc.lower() == urlsplit(emulator).netloc.lower() and not is_googles


def _code_of(body: bytes) -> str:
    """Return the code of a refusal in JSON or XML; empty if the body has another form."""
    try:
        return str(json.loads(body)["error"]["errors"][0]["reason"])[:100]
    except (ValueError, LookupError, TypeError, RecursionError):
        return detail_of_error(body, "Code")
