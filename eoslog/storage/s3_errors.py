"""What an error on the way to S3 means: a clear refusal, no such object, or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from botocore import exceptions as boto  # type: ignore[import-untyped]

from eoslog.errors import NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.object_store import ObjectNotFound

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
_NO_SUCH_OBJECT_CODES = frozenset({"NoSuchKey", "NotFound", "404", ""})
"""Of a 404: others speak of an account, an access point and the like. The last two are answers without a body."""
_HINTS = {
    "AuthorizationHeaderMalformed": "set the option region to the bucket's",
    "PermanentRedirect": "set the option region to the bucket's",
    "ExpiredToken": "renew the credentials",
    "RequestTimeTooSkewed": "set this host's clock",
    "EntityTooLarge": "write smaller files",
    "NotImplemented": "the store lacks a function that is needed",
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
    """S3's answer, empty if there was none."""
    return error.response if isinstance(error, boto.ClientError) else {}


def status_of(error: BaseException) -> int:
    """The HTTP status that the error reports, 0 if there was no answer."""
    return int(answer_of(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: BaseException) -> str:
    """S3's error code, empty if there was no answer."""
    return str(answer_of(error).get("Error", {}).get("Code", ""))


def _operation_of(error: BaseException) -> str:
    """What was asked for in S3's own terms, which are those of policies."""
    return str(error.operation_name) if isinstance(error, boto.ClientError) else "the request"


def translated(error: Exception, url: str, path: str, *, of_an_object: bool = True) -> Exception:
    """The store's own error for one that s3fs, botocore or the network raised.

    Args:
        url: of the store.
        path: from there.
        of_an_object: an object was asked for, so it may be what is not there; else a list, or several at once.
    """
    status, code = status_of(error), code_of(error)
    where = f"{url}: {path!r}"
    if status == 0:
        if isinstance(error, _CONFIGURATION_ERRORS):
            return StoreAccessDenied(
                f"{where} could not be asked for: {type(error).__name__}; check credentials and options."
            )
        return StoreUnavailable(f"{where} got no answer; check the endpoint and the network, or try again: {error!r}")
    answer = f"{status} {code}".strip()
    if code == "NoSuchBucket":
        return NotAStore(f"Bucket {urlsplit(url).netloc!r} does not exist; create it, or correct the URL.")
    if status in (409, 429) or (status >= 500 and status != 501) or code in _TRANSIENT_CODES or status < 300:
        return StoreUnavailable(f"{where} was answered {answer}; try again.")
    if status == 404 and of_an_object and code in _NO_SUCH_OBJECT_CODES:
        return ObjectNotFound(path)
    return StoreAccessDenied(
        f"{url}: {_operation_of(error)} of {path!r} was refused with {answer};"
        f" {_HINTS.get(code, 'check credentials, permissions and options')}."
    )
