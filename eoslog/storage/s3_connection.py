"""The connection of one process to S3 through s3fs, without hidden retries, and the meaning of its errors.

An error is a clear refusal, a missing object, or an unknown outcome.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore import exceptions as boto  # type: ignore[import-untyped]
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]
from botocore.loaders import create_loader  # type: ignore[import-untyped]
from fsspec.asyn import sync
from s3fs import S3FileSystem

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.object_store import ObjectNotFound
from eoslog.storage.s3_options import S3Options

_T = TypeVar("_T")
_PARALLEL_REQUESTS = 32
_SMALL_BODY_BYTES = 1024 * 1024
_KINDS = {
    "PutObject": "PUT",
    "GetObject": "GET",
    "ListObjectsV2": "LIST",
    "ListMultipartUploads": "LIST",
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


def _session(profile: str | None) -> Any:
    """Return a session with credentials of its own. The sessions of a process share the description of S3's API.

    A client takes 0.1 s of CPU time to read this description.
    """
    session = AioSession(profile=profile)
    session.lazy_register_component("data_loader", lambda: _loader(session.get_config_variable("data_path")))
    return session


_loader = cache(create_loader)

_CHECKSUM_SETTINGS = ("request_checksum_calculation", "response_checksum_validation")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def _checksums(options: S3Options, session: Any) -> dict[str, str]:
    """Return the settings of S3's own checksums.

    By default a client sends a checksum after the body of a put, in chunks. Many servers other than Amazon's do not
    know that. eoslog has checksums of its own.
    """
    if not _has_own_endpoint(options, session):
        return {}
    return {name: "when_required" for name in _CHECKSUM_SETTINGS if not os.environ.get(f"AWS_{name.upper()}")}


def _has_own_endpoint(options: S3Options, session: Any) -> bool:
    """Return True if the server is not Amazon's, as far as the settings tell."""
    if options.endpoint_url is not None or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES):
        return True
    try:
        return "endpoint_url" in session.get_scoped_config()
    except boto.BotoCoreError:
        # The first request names the error of the profile.
        return False


class S3Connection:
    """An s3fs file system and its client. Only its own process may use it, because fsspec's loop is a thread."""

    def __init__(self, options: S3Options, requests: Counter[str]) -> None:
        self._requests = requests
        self._counted_client: Any = None
        self._options = options
        self._session = _session(options.profile)
        self.renewals = 0
        """How often renewed credentials were found."""
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
                **_checksums(options, self._session),
            },
            use_listings_cache=False,
            skip_instance_cache=True,
            session=self._session,
        )
        self._file_system.retries = 1

    async def client(self) -> Any:
        """Return the connected S3 client. It is called directly, as s3fs drops parameters that it does not know."""
        client = await self._file_system.set_session()
        if client is not self._counted_client:
            self._counted_client = client
            client.meta.events.register("before-send.s3", self._before_send)
        return client

    @property
    def endpoint_url(self) -> str:
        """The URL of the server."""
        return str(self.run(self.client).meta.endpoint_url)

    async def renew_credentials(self) -> bool:
        """Read the credentials again, for example from a file that a program renews. Return True if they differ.

        The credentials of a role renew themselves, and those of the options stay.
        """
        if self._options.key is not None or self._options.anon:
            return False
        try:
            used = await self._session.get_credentials()
            found = await _session(self._options.profile).get_credentials()
        except boto.BotoCoreError:
            # For example, the file is being replaced. The error that S3 has answered says what is wrong.
            return False
        if used is None or found is None or isinstance(used, RefreshableCredentials):
            return False
        now = await found.get_frozen_credentials()
        if now == await used.get_frozen_credentials():
            return False
        # The client signs with this object.
        used.access_key, used.secret_key, used.token = now.access_key, now.secret_key, now.token
        self.renewals += 1
        return True

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


_TRANSIENT_CODES = frozenset(
    {
        "BadDigest",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "ConditionalRequestConflict",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentSHA256Mismatch",
    }
)
RENEWABLE_CODES = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"})
"""Codes of a refusal after which renewed credentials may be accepted."""
_NO_SUCH_OBJECT_CODES = frozenset({"NoSuchKey", "NotFound", "404", ""})
"""Codes of a 404 that mean a missing object. Other codes are about an account, an access point and the like. An answer
without a body has the code ``404`` or none."""
_WHERE_CREDENTIALS_ARE = (
    "in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), in a profile (option profile, s3.profile in "
    "conf/eoslog.toml, or AWS_PROFILE), in the options key and secret, or from the instance's role"
)
_SET_THE_REGION = "set the region to the bucket's (option region, s3.region in conf/eoslog.toml, or AWS_REGION)"
_CHECK_THE_KEY = "the server does not know the access key: check it, and that endpoint_url is the server it belongs to"
_RENEW = "renew the credentials. A file of credentials is read again by itself"
_CHUNKS = (
    "the server, or a proxy before it, does not take a body in chunks (aws-chunked). Set "
    "AWS_REQUEST_CHECKSUM_CALCULATION=when_required, or upgrade it"
)
_HINTS = {
    "AccessDenied": "check credentials, permissions and options; docs/security.md has the policy of each role",
    "AuthorizationHeaderMalformed": _SET_THE_REGION,
    "IllegalLocationConstraintException": _SET_THE_REGION,
    "PermanentRedirect": _SET_THE_REGION,
    "InvalidAccessKeyId": _CHECK_THE_KEY,
    "XAdminUserNotFound": _CHECK_THE_KEY,
    "SignatureDoesNotMatch": "the secret does not belong to the access key: correct both",
    "ExpiredToken": _RENEW,
    "InvalidToken": _RENEW,
    "TokenRefreshRequired": _RENEW,
    "MissingContentLength": _CHUNKS,
    "InvalidBucketName": "correct the name of the bucket in the URL",
    "RequestTimeTooSkewed": "set this host's clock",
    "EntityTooLarge": "write smaller files",
    "NotImplemented": "the store lacks a function that is needed",
}
_LOCAL_HINTS = {
    boto.NoCredentialsError: f"there are no credentials. S3 takes them {_WHERE_CREDENTIALS_ARE}. A public bucket needs "
    "none with anon=True",
    boto.PartialCredentialsError: f"the credentials are incomplete. S3 takes them {_WHERE_CREDENTIALS_ARE}",
    boto.ProfileNotFound: "the profile is neither in ~/.aws/config nor in ~/.aws/credentials; correct the option "
    "profile, s3.profile in conf/eoslog.toml, or AWS_PROFILE",
    boto.NoRegionError: _SET_THE_REGION,
    boto.InvalidRegionError: f"the name of the region is not valid; {_SET_THE_REGION}",
}
_CONFIGURATION_ERRORS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.NoRegionError,
    boto.InvalidRegionError,
    boto.ParamValidationError,
    boto.UnknownServiceError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
    boto.ConfigParseError,
    boto.ConfigNotFound,
)


def answer_of(error: BaseException) -> Mapping[str, Any]:
    """Return S3's answer; empty if there was none."""
    return error.response if isinstance(error, boto.ClientError) else {}


def status_of(error: BaseException) -> int:
    """Return the HTTP status of the error; 0 if there was no answer."""
    return int(answer_of(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: BaseException) -> str:
    """Return S3's error code; empty if there was no answer."""
    return str(answer_of(error).get("Error", {}).get("Code", ""))


def _operation_of(error: BaseException) -> str:
    """Return S3's name of the operation, as used in policies."""
    return str(error.operation_name) if isinstance(error, boto.ClientError) else "the request"


def _region_in(error: BaseException) -> str | None:
    """Return the region of the bucket, if the answer of S3 contains it."""
    answer = answer_of(error)
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    return str(region) if region else None


def translated(error: Exception, url: str, path: str, *, of_an_object: bool = True) -> Exception:
    """Return eoslog's error for an error of s3fs, botocore or the network.

    Args:
        url: the URL of the store.
        path: the path of the object in the store.
        of_an_object: the request was for one object, so a 404 may mean that it does not exist. False for a LIST and for
            requests for several objects.
    """
    status, code = status_of(error), code_of(error)
    where = f"{url}: {path!r}"
    if status == 0:
        if isinstance(error, _CONFIGURATION_ERRORS):
            hint = next((_LOCAL_HINTS[each] for each in type(error).__mro__ if each in _LOCAL_HINTS), None)
            return StoreAccessDenied(
                f"{where} was not requested ({type(error).__name__}): {hint or 'check credentials and options'}."
            )
        if isinstance(error, ValueError) and str(error).startswith("Invalid endpoint"):
            # The option endpoint_url is checked before. botocore checks its own settings at the first request.
            return InvalidOption(
                f"{url}: the endpoint is not an http:// or https:// URL. Correct AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL "
                "or endpoint_url in ~/.aws/config"
            )
        if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return StoreUnavailable(
                f"{where} was not requested: the server's certificate is not trusted. If it comes from an authority of "
                "your own, set AWS_CA_BUNDLE to the file with the certificate of this authority, for each process. "
                f"Otherwise check endpoint_url: {error!r}"
            )
        scheme = " (http:// or https:// as the server expects)" if isinstance(error, boto.SSLError) else ""
        return StoreUnavailable(
            f"{where} got no answer; check endpoint_url{scheme} and the network, or try again: {error!r}"
        )
    answer = f"{status} {code}".strip()
    if code == "NoSuchBucket":
        return NotAStore(
            f"Bucket {urlsplit(url).netloc!r} does not exist; create it, or correct the URL or endpoint_url."
        )
    if status in (409, 429) or (status >= 500 and status != 501) or code in _TRANSIENT_CODES or status < 300:
        return StoreUnavailable(f"{where} was answered {answer}; try again.")
    if status == 404 and of_an_object and code in _NO_SUCH_OBJECT_CODES:
        return ObjectNotFound(path)
    hint = _HINTS.get(code, "check credentials, permissions and options")
    if status == 411:
        hint = _CHUNKS
    elif code == "InvalidArgument" and _operation_of(error) == "PutObject":
        hint = (
            f"the server does not know a header of the put. Leave out server_side_encryption if it is set. Or {_CHUNKS}"
        )
    if hint is _SET_THE_REGION and (region := _region_in(error)):
        hint = f"{hint}: {region}"
    return StoreAccessDenied(f"{url}: {_operation_of(error)} of {path!r} was refused with {answer}; {hint}.")
