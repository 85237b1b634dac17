"""Translation of S3 errors: a clear refusal, a missing object, or an unknown outcome."""

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
"""Codes of a 404 that mean a missing object. Other codes are about an account, an access point and the like. An answer
without a body has the code ``404`` or none."""
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
            return StoreAccessDenied(
                f"{where} could not be requested ({type(error).__name__}); check credentials and options."
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
