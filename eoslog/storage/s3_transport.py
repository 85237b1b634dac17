"""The connections of one process to S3. Credentials, addresses and signatures are botocore's.

botocore's client prepares the address once. A request then skips the client's layers, which cost several times as much
CPU time as the signature and the exchange.
"""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

from botocore import UNSIGNED  # type: ignore[import-untyped]
from botocore import exceptions as boto
from botocore.awsrequest import AWSConnection, AWSRequest  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import ReadOnlyCredentials, RefreshableCredentials  # type: ignore[import-untyped]
from botocore.loaders import create_loader  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]
from botocore.utils import validate_region_name  # type: ignore[import-untyped]
from urllib3.connection import HTTPConnection, HTTPSConnection

from eoslog.storage.http_connections import PARALLEL_REQUESTS, HttpConnections, PlainExchange
from eoslog.storage.http_store import Answer, Request
from eoslog.storage.renewed_credentials import Clocks, Credentials, RenewedCredentials, call_named, mapped
from eoslog.storage.s3_answers import region_in
from eoslog.storage.s3_options import S3Options
from eoslog.storage.xml_answers import detail_of_error

_SMALL_BODY_BYTES = 1024 * 1024
_RENEWABLE_CODES = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"})
"""Codes of a refusal after which renewed credentials may be accepted."""
_OTHER_REGION_CODES = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
_OTHER_REGION_STATUSES = (301, 302, 307)


class _HttpConnection(AWSConnection, PlainExchange, HTTPConnection):  # type: ignore[misc]
    """A connection that sends the headers together with a body of ``bytes``, and knows ``Expect: 100-continue``."""


class _HttpsConnection(AWSConnection, PlainExchange, HTTPSConnection):  # type: ignore[misc]
    """An ``_HttpConnection`` over TLS."""


class _Connections(HttpConnections):
    """The connections to the server of a bucket, with botocore's certificates and proxies."""

    def __init__(self, session: Any, url: str, read_timeout_s: float) -> None:
        """
        Args:
            session: botocore's HTTP session, which has the certificates and the proxies.
        """
        proxy_url = session._proxy_config.proxy_url_for(url)
        # A copy: botocore's own requests, such as those for credentials of a session, need urllib3's connections.
        pool = copy(session._get_connection_manager(url, proxy_url).connection_from_url(url))
        session._setup_ssl_cert(pool, url, session._verify)
        pool.ConnectionCls = _HttpsConnection if url.startswith("https:") else _HttpConnection
        is_forwarded = proxy_url is not None and url.startswith("http:")
        super().__init__(pool, is_forwarded=is_forwarded, read_timeout_s=read_timeout_s)

    def _is_reusable(self, connection: Any) -> bool:
        # A refusal came instead of the leave to send the body. The server may still wait for the body.
        return not connection._response_received


_loader = cache(create_loader)


def _session(profile: str | None) -> Any:
    """Return a session with credentials of its own. The sessions of a process share the description of S3's API.

    A client takes 0.1 s of CPU time to read this description.
    """
    session = Session(profile=profile)
    session.lazy_register_component("data_loader", lambda: _loader(session.get_config_variable("data_path")))
    return session


@dataclass(frozen=True, slots=True)
class _MappedCredentials:
    """The credentials in the mapping of a function, as botocore's signer asks for them."""

    renewed: RenewedCredentials

    def get_frozen_credentials(self) -> Any:
        values = self.renewed.current()
        return ReadOnlyCredentials(values["key"], values["secret"], values.get("token"))


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of requests, and the rules for their signatures."""

    url: str
    """The URL of the bucket, without a slash at its end."""
    connections: _Connections
    context: dict[str, Any]
    """The facts about a request that botocore's signer needs."""

    @property
    def signing(self) -> dict[str, Any]:
        signing: dict[str, Any] = self.context.get("signing", {})
        return signing


class S3Transport:
    """The connections and credentials of one process for one bucket. It connects at the first request.

    Its methods run in threads of the library. So no interrupt leaves its lock locked.
    """

    def __init__(self, bucket: str, options: S3Options, url: str, clocks: Clocks) -> None:
        """
        Args:
            url: the URL of the store, for the function that gives credentials.
        """
        self.amendments = 0
        self._bucket = bucket
        self._options = options
        self._url = url
        self._clocks = clocks
        self._region: str | None = None
        """The region of the bucket, if an answer has told it."""
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(PARALLEL_REQUESTS)
        self._client: Any = None
        self._credentials: Any = None
        self._user_agent = ""
        self._address: _Address | None = None

    def bucket_url(self) -> str:
        return (self._address or self._connect()).url

    def send(self, request: Request) -> Answer:
        address = self._address or self._connect()
        headers = {"User-Agent": self._user_agent, **request.headers}
        body: bytes | memoryview | None = request.body or None
        if len(request.body) > _SMALL_BODY_BYTES:
            # It costs a round trip. It pays only where a refusal saves a long upload.
            headers["Expect"] = "100-continue"
            body = memoryview(request.body)
        signed = AWSRequest(request.method, _url(address.url, request), headers, request.body)
        # The signer adds to the context.
        signing = {**address.signing, "request_credentials": self._credentials}
        signed.context = {**address.context, "signing": signing}
        self._client._request_signer.sign(request.operation, signed)
        with self._free:
            status, answered, found = address.connections.exchange(
                request.method, signed.url, dict(signed.headers.items()), body
            )
        return Answer(status, answered, found, detail_of_error(found, "Code") if status >= 300 else "")

    def amends(self, answer: Answer, amendments: int) -> bool:
        is_elsewhere = answer.status in _OTHER_REGION_STATUSES or answer.code in _OTHER_REGION_CODES
        if answer.code not in _RENEWABLE_CODES and not is_elsewhere:
            return False
        with self._lock:
            # Another request may have been refused, too, while this one was on its way.
            if self.amendments == amendments:
                try:
                    self.amendments += self._follow(answer) if is_elsewhere else self._renew_credentials()
                except (boto.BotoCoreError, boto.ClientError):
                    # For example, the file of credentials is being replaced. The refusal says what is wrong.
                    return False
            return self.amendments != amendments

    def _connect(self) -> _Address:
        with self._lock:
            if self._address is not None:
                return self._address
            options = self._options
            session = _session(options.profile)
            self._client = session.create_client(
                "s3",
                region_name=options.region,
                endpoint_url=options.endpoint_url,
                aws_access_key_id=options.key,
                aws_secret_access_key=options.secret,
                aws_session_token=options.token,
                config=Config(
                    retries={"total_max_attempts": 1, "mode": "standard"},
                    connect_timeout=options.connect_timeout_ms / 1000,
                    read_timeout=options.read_timeout_ms / 1000,
                    max_pool_connections=PARALLEL_REQUESTS,
                    signature_version=UNSIGNED if options.anon else None,
                ),
            )
            self._client.meta.events.register("before-endpoint-resolution.s3", self._use_region)
            if options.credentials is not None:
                self._credentials = self._from_function(options.credentials)
            else:
                self._credentials = self._client._request_signer._credentials
            self._user_agent = session.user_agent()
            self._address = self._resolved()
            return self._address

    def _resolved(self) -> _Address:
        """Return the address of the bucket by botocore's rules, which cost about 1 ms."""
        client = self._client
        model = client.meta.service_model.operation_model("GetObject")
        context = {
            "client_region": client.meta.region_name,
            "client_config": client.meta.config,
            "auth_type": model.resolved_auth_type,
        }
        given = client._emit_api_params({"Bucket": self._bucket, "Key": "key"}, model, context)
        url, _, _ = client._resolve_endpoint_ruleset(model, given, context)
        url = url.rstrip("/")
        session = client._endpoint.http_session
        return _Address(url, _Connections(session, url, client.meta.config.read_timeout), context)

    def _use_region(self, builtins: dict[str, Any], **_: object) -> None:
        if self._region is not None:
            builtins["AWS::Region"] = self._region

    def _follow(self, answer: Answer) -> bool:
        """Send later requests to the region of the bucket. Return True if it is another one than before."""
        region = region_in(answer) or self._asked_region()
        if region in ("", self._region) or self._bucket.startswith("arn:"):
            return False
        validate_region_name(region)
        self._region = region
        before, self._address = self._address, self._resolved()
        return before is None or before.url != self._address.url or before.signing != self._address.signing

    def _asked_region(self) -> str:
        try:
            answer = self._client.head_bucket(Bucket=self._bucket)
        except boto.ClientError as error:
            answer = error.response
        return str(answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", ""))

    def _from_function(self, name: str) -> Any:
        """Return the credentials of a function: a mapping, or a session of botocore or its credentials."""
        found = call_named(name, self._url)
        if hasattr(found, "get_credentials"):
            found = found.get_credentials()
        if hasattr(found, "get_frozen_credentials"):
            return found
        first = [found]

        def ask() -> Credentials:
            answer = first.pop() if first else call_named(name, self._url)
            return mapped(answer, name, self._url, required=("key", "secret"), optional=("token",))

        return _MappedCredentials(RenewedCredentials(ask, self._clocks))

    def _renew_credentials(self) -> bool:
        """Read the credentials again, for example from a file that a program renews. Return True if they differ.

        The credentials of a role renew themselves, and those of the options stay.
        """
        used = self._credentials
        if isinstance(used, _MappedCredentials):
            return used.renewed.renew()
        if (
            self._options.credentials is not None
            or self._options.key is not None
            or used is None
            or isinstance(used, RefreshableCredentials)
        ):
            return False
        found = _session(self._options.profile).get_credentials()
        if found is None or found.get_frozen_credentials() == used.get_frozen_credentials():
            return False
        # One assignment: a request in another thread must not be signed with parts of both.
        self._credentials = found
        return True


def _url(bucket_url: str, request: Request) -> str:
    url = bucket_url
    if request.key or not urlsplit(bucket_url).path:
        url += "/" + quote(request.key, safe="/")
    if request.query:
        url += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in request.query.items())
    return url
