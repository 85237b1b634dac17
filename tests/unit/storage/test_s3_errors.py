"""What S3's errors mean. Only "there is no such object" may ever be taken for the end of the log."""

from __future__ import annotations

import re

import pytest
from botocore import exceptions as boto  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.object_store import ObjectNotFound
from eoslog.storage.s3_connection import translated


def answered(status: int, code: str, **details: str) -> ClientError:
    error = {"Code": code, **details}
    return ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")


def of_put(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize("code", ["NoSuchKey", "404", "NotFound", ""])
def test_a_404_about_the_object_or_without_body_means_not_found(code: str) -> None:
    assert isinstance(translated(answered(404, code), "s3://b/p", "a/path"), ObjectNotFound)


@pytest.mark.parametrize("code", ["XAdminUserNotFound", "NoSuchAccessPoint", "NoSuchUpload"])
def test_a_404_that_speaks_of_something_else_is_a_refusal(code: str) -> None:
    error = translated(answered(404, code), "s3://b/p", "a/path")

    assert isinstance(error, StoreAccessDenied)
    assert f"404 {code}" in str(error)


def test_a_404_about_the_bucket_never_means_not_found() -> None:
    error = translated(answered(404, "404"), "s3://b/p", "a/", of_an_object=False)

    assert isinstance(error, StoreAccessDenied)


def test_a_bucket_that_is_not_there_is_named() -> None:
    error = translated(answered(404, "NoSuchBucket"), "s3://b/p", "a/path")

    assert isinstance(error, NotAStore)
    assert "'b'" in str(error)


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (409, "OperationAborted"), (400, "RequestTimeout")])
def test_what_may_succeed_later_is_unavailable(status: int, code: str) -> None:
    assert isinstance(translated(answered(status, code), "s3://b/p", "a/path"), StoreUnavailable)


def test_a_refusal_says_what_was_asked_for_and_where() -> None:
    error = translated(answered(403, "AccessDenied"), "s3://b/p", "a/path")

    assert isinstance(error, StoreAccessDenied)
    assert "s3://b/p: GetObject of 'a/path' was refused with 403 AccessDenied" in str(error)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (answered(400, "AuthorizationHeaderMalformed", Region="eu-west-1"), r"s3\.region.*AWS_REGION\): eu-west-1\.$"),
        (answered(301, "PermanentRedirect"), r"s3\.region in conf/eoslog\.toml, or AWS_REGION\)\.$"),
        (answered(403, "InvalidAccessKeyId"), "does not know the access key: .*endpoint_url"),
        (answered(403, "SignatureDoesNotMatch"), "the secret does not belong to the access key"),
        (answered(403, "AccessDenied"), r"docs/security\.md"),
        (answered(400, "ExpiredToken"), "renew the credentials. A file of credentials is read again"),
        (answered(411, "MissingContentLength"), "aws-chunked.*AWS_REQUEST_CHECKSUM_CALCULATION=when_required"),
        (answered(411, ""), "AWS_REQUEST_CHECKSUM_CALCULATION=when_required"),
        (of_put(400, "InvalidArgument"), "server_side_encryption.*aws-chunked.*AWS_REQUEST_CHECKSUM_CALCULATION"),
        (boto.NoCredentialsError(), r"AWS_ACCESS_KEY_ID.*s3\.profile in conf/eoslog\.toml.*instance's role.*anon=True"),
        (boto.PartialCredentialsError(provider="env", cred_var="secret"), "incomplete.*AWS_SECRET_ACCESS_KEY"),
        (boto.ProfileNotFound(profile="x"), r"~/\.aws/config.*AWS_PROFILE"),
        (boto.InvalidRegionError(region_name="eu west"), "not valid; set the region"),
    ],
)
def test_a_refusal_says_where_the_cause_is_mended(error: Exception, hint: str) -> None:
    meaning = translated(error, "s3://b/p", "a/path")

    assert isinstance(meaning, StoreAccessDenied)
    assert re.search(hint, str(meaning)), meaning


def test_a_wrong_scheme_of_the_endpoint_is_named() -> None:
    meaning = translated(boto.SSLError(endpoint_url="https://x", error="x"), "s3://b/p", "a/path")

    assert isinstance(meaning, StoreUnavailable)
    assert "http:// or https:// as the server expects" in str(meaning)


def test_an_endpoint_without_a_scheme_is_named() -> None:
    with pytest.raises(ValueError, match="Invalid endpoint") as caught:
        Session().create_client("s3", region_name="us-east-1", endpoint_url="127.0.0.1:9000")

    meaning = translated(caught.value, "s3://b/p", "a/path")

    assert isinstance(meaning, InvalidOption)
    assert "not an http:// or https:// URL. Correct AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL" in str(meaning)
