"""The answers of S3: the meaning of a refusal and of silence."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from botocore import exceptions as boto  # type: ignore[import-untyped]

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.http_store import Answer
from eoslog.storage.object_store import ObjectNotFound
from eoslog.storage.xml_answers import detail_of_error

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
_NO_SUCH_OBJECT_CODES = frozenset({"NoSuchKey", "NotFound", ""})
"""Codes of a 404 that mean a missing object. Other codes are about an account, an access point and the like. An answer
without a body has no code."""
_WHERE_CREDENTIALS_ARE = (
    "in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), in a profile (option profile, s3.profile in "
    "conf/eoslog.toml, or AWS_PROFILE), in the options key and secret, or from the instance's role"
)
_SET_THE_REGION = "set the region to the bucket's (option region, s3.region in conf/eoslog.toml, or AWS_REGION)"
_CHECK_THE_KEY = "the server does not know the access key. Check the key, and that endpoint_url names the right server"
_RENEW = "renew the credentials. A file of credentials is read again by itself"
_HINTS = {
    "AccessDenied": "check credentials, permissions and options. The policy of each role is in docs/security.md",
    "AuthorizationHeaderMalformed": _SET_THE_REGION,
    "IllegalLocationConstraintException": _SET_THE_REGION,
    "PermanentRedirect": _SET_THE_REGION,
    "InvalidAccessKeyId": _CHECK_THE_KEY,
    "XAdminUserNotFound": _CHECK_THE_KEY,
    "SignatureDoesNotMatch": "the secret does not belong to the access key: correct both",
    "ExpiredToken": _RENEW,
    "InvalidToken": _RENEW,
    "TokenRefreshRequired": _RENEW,
    "InvalidBucketName": "correct the name of the bucket in the URL",
    "RequestTimeTooSkewed": "set this host's clock",
    "EntityTooLarge": "write smaller files",
    "NotImplemented": "the store lacks a function that is needed",
}
_LOCAL_HINTS = {
    boto.NoCredentialsError: f"there are no credentials. S3 takes them {_WHERE_CREDENTIALS_ARE}. A public bucket needs "
    "none with anon=True",
    boto.PartialCredentialsError: f"the credentials are incomplete. S3 takes them {_WHERE_CREDENTIALS_ARE}",
    boto.ProfileNotFound: "the profile is neither in ~/.aws/config nor in ~/.aws/credentials. Correct the option "
    "profile, s3.profile in conf/eoslog.toml, or AWS_PROFILE",
    boto.NoRegionError: _SET_THE_REGION,
    boto.InvalidRegionError: f"the name of the region is not valid: {_SET_THE_REGION}",
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


def region_in(answer: Answer) -> str:
    """Return the region of the bucket, if the answer contains it; otherwise an empty string."""
    return answer.headers.get("x-amz-bucket-region") or detail_of_error(answer.body, "Region")


def meaning_of_refusal(answer: Answer, operation: str, url: str, path: str, *, of_an_object: bool) -> Exception:
    """Return eoslog's error for an answer without success.

    Args:
        operation: S3's name of the operation, as policies have it.
        url: the URL of the store.
        path: the path of the object in the store.
        of_an_object: the request was for one object, so a 404 may mean that it does not exist. False for a LIST and for
            requests for several objects.
    """
    status, code = answer.status, answer.code
    if code == "NoSuchBucket":
        return NotAStore(
            f"Bucket {urlsplit(url).netloc!r} does not exist. Create it, or correct the URL or endpoint_url."
        )
    if status in (409, 429) or (status >= 500 and status != 501) or code in _TRANSIENT_CODES or status < 300:
        return StoreUnavailable(f"{url}: {path!r} was answered {answer}. Try again.")
    if status == 404 and of_an_object and code in _NO_SUCH_OBJECT_CODES:
        return ObjectNotFound(path)
    hint = _HINTS.get(code, "check credentials, permissions and options")
    if code == "InvalidArgument" and operation == "PutObject":
        hint = "the server does not know a header of the put. Leave out server_side_encryption if it is set"
    if hint is _SET_THE_REGION and (region := region_in(answer)):
        hint = f"{hint}: {region}"
    return StoreAccessDenied(f"{url}: {operation} of {path!r} was refused with {answer}: {hint}.")


def meaning_of_silence(error: Exception, url: str, path: str) -> Exception:
    """Return eoslog's error for an error of botocore, urllib3, http.client or the network."""
    where = f"{url}: {path!r}"
    if isinstance(error, boto.ClientError):
        # A service that gives credentials refused, such as AssumeRole.
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        answer = Answer(status, {}, b"", error.response["Error"].get("Code", ""))
        return meaning_of_refusal(answer, error.operation_name, url, path, of_an_object=False)
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
    is_tls = isinstance(error, boto.SSLError | ssl.SSLError)
    if is_tls and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return StoreUnavailable(
            f"{where} was not requested: the server's certificate is not trusted. If it comes from an authority of "
            "your own, set AWS_CA_BUNDLE to the file with the certificate of this authority, for each process. "
            f"Otherwise check endpoint_url: {error!r}"
        )
    scheme = " (http:// or https:// as the server expects)" if is_tls else ""
    return StoreUnavailable(
        f"{where} got no answer. Check endpoint_url{scheme} and the network, or try again: {error!r}"
    )
