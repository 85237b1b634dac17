"""The meaning of S3's errors. Only "there is no such object" may ever be taken for the end of the log."""

from __future__ import annotations

import re

import pytest
from botocore import exceptions as boto  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.http_store import Answer
from eoslog.storage.object_store import ObjectNotFound
from eoslog.storage.s3_answers import meaning_of_refusal, meaning_of_silence


def refused(
    status: int, code: str, *, operation: str = "GetObject", of_an_object: bool = True, body: bytes = b""
) -> Exception:
    answer = Answer(status, {}, body, code)
    return meaning_of_refusal(answer, operation, "s3://b/p", "a/path", of_an_object=of_an_object)


def unanswered(error: Exception) -> Exception:
    return meaning_of_silence(error, "s3://b/p", "a/path")


@pytest.mark.parametrize("code", ["NoSuchKey", "NotFound", ""])
def test_a_404_about_the_object_or_without_body_means_not_found(code: str) -> None:
    assert isinstance(refused(404, code), ObjectNotFound)


@pytest.mark.parametrize("code", ["XAdminUserNotFound", "NoSuchAccessPoint", "NoSuchUpload"])
def test_a_404_that_speaks_of_something_else_is_a_refusal(code: str) -> None:
    error = refused(404, code)

    assert isinstance(error, StoreAccessDenied)
    assert f"404 {code}" in str(error)


def test_a_404_about_the_bucket_never_means_not_found() -> None:
    error = refused(404, "", of_an_object=False)

    assert isinstance(error, StoreAccessDenied)


def test_a_bucket_that_is_not_there_is_named() -> None:
    error = refused(404, "NoSuchBucket")

    assert isinstance(error, NotAStore)
    assert "'b'" in str(error)


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (409, "OperationAborted"), (400, "RequestTimeout")])
def test_an_answer_after_which_a_retry_may_succeed_means_unavailable(status: int, code: str) -> None:
    assert isinstance(refused(status, code), StoreUnavailable)


def test_a_refusal_says_what_was_asked_for_and_where() -> None:
    error = refused(403, "AccessDenied")

    assert isinstance(error, StoreAccessDenied)
    assert "s3://b/p: GetObject of 'a/path' was refused with 403 AccessDenied" in str(error)


@pytest.mark.parametrize(
    ("meaning", "hint"),
    [
        (
            refused(400, "AuthorizationHeaderMalformed", body=b"<Error><Region>eu-west-1</Region></Error>"),
            r"s3\.region.*AWS_REGION\): eu-west-1\.$",
        ),
        (refused(301, "PermanentRedirect"), r"s3\.region in conf/eoslog\.toml, or AWS_REGION\)\.$"),
        (refused(403, "InvalidAccessKeyId"), r"does not know the access key\. .*endpoint_url"),
        (refused(403, "SignatureDoesNotMatch"), "the secret does not belong to the access key"),
        (refused(403, "AccessDenied"), r"docs/security\.md"),
        (refused(400, "ExpiredToken"), "renew the credentials. A file of credentials is read again"),
        (refused(400, "InvalidArgument", operation="PutObject"), "Leave out server_side_encryption if it is set"),
        (
            unanswered(boto.NoCredentialsError()),
            r"AWS_ACCESS_KEY_ID.*s3\.profile in conf/eoslog\.toml.*instance's role.*anon=True",
        ),
        (
            unanswered(boto.PartialCredentialsError(provider="env", cred_var="secret")),
            "incomplete.*AWS_SECRET_ACCESS_KEY",
        ),
        (unanswered(boto.ProfileNotFound(profile="x")), r"~/\.aws/config.*AWS_PROFILE"),
        (unanswered(boto.InvalidRegionError(region_name="eu west")), "not valid: set the region"),
    ],
)
def test_a_refusal_says_where_the_cause_is_mended(meaning: Exception, hint: str) -> None:
    assert isinstance(meaning, StoreAccessDenied)
    assert re.search(hint, str(meaning)), meaning


def test_a_wrong_scheme_of_the_endpoint_is_named() -> None:
    meaning = unanswered(boto.SSLError(endpoint_url="https://x", error="x"))

    assert isinstance(meaning, StoreUnavailable)
    assert "http:// or https:// as the server expects" in str(meaning)


def test_an_endpoint_without_a_scheme_is_named() -> None:
    with pytest.raises(ValueError, match="Invalid endpoint") as caught:
        Session().create_client("s3", region_name="us-east-1", endpoint_url="127.0.0.1:9000")

    meaning = unanswered(caught.value)

    assert isinstance(meaning, InvalidOption)
    assert "not an http:// or https:// URL. Correct AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL" in str(meaning)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(403, "AccessDenied", StoreAccessDenied), (404, "NoSuchEntity", StoreAccessDenied), (503, "", StoreUnavailable)],
)
def test_a_refusal_of_the_service_of_credentials_is_never_a_missing_object(
    status: int, code: str, kind: type[Exception]
) -> None:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    meaning = unanswered(boto.ClientError(answer, "AssumeRole"))

    assert isinstance(meaning, kind)
    assert f"{status} {code}".strip() in str(meaning)
