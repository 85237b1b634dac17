"""What S3's errors mean. Only "there is no such object" may ever be taken for the end of the log."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from eoslog.errors import NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.object_store import ObjectNotFound
from eoslog.storage.s3_connection import translated


def answered(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")


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
