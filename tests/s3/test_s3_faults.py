"""What an S3 store says when answers are lost, spoiled or late, and that nothing is sent again unseen."""

from __future__ import annotations

import logging
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import eoslog
from eoslog.errors import NotAStore, PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, PutOutcome
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from tests.conftest import s3_store_at
from tests.fault_proxy import FaultProxy
from tests.s3.servers import S3Server

pytestmark = pytest.mark.s3


def test_a_conflict_is_told_apart_from_an_existing_object(faulty_s3_store: S3Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.answer(409, "ConditionalRequestConflict", "PUT", "slot")

    assert faulty_s3_store.put_if_absent("slot/1", b"mine") is PutOutcome.CONFLICT
    assert faulty_s3_store.put_if_absent("slot/1", b"mine") is PutOutcome.CREATED
    assert faulty_s3_store.requests == fault_proxy.counts


@pytest.mark.slow
def test_a_store_that_ignores_the_condition_of_a_put_is_refused(
    moto_server: S3Server, environment: Environment
) -> None:
    with FaultProxy(moto_server.endpoint_url) as proxy:
        proxy.ignored_headers.add("if-none-match")
        server = moto_server.behind(proxy.url)
        bucket = server.new_bucket()

        with pytest.raises(PutIfAbsentUnsupported, match="does not enforce put-if-absent"):
            eoslog.connect(f"s3://{bucket}/store", **server.options()).admin.create_topic("t")

        assert list(s3_store_at(server, bucket, environment).list("")) == []


def test_a_limited_list_sends_one_request(
    faulty_s3_store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.storage.http_store._PAGE", 4)
    faulty_s3_store.put_many([(f"n/{number}", b"") for number in range(10)])

    assert [info.path for info in faulty_s3_store.list("n/", start_after="n/2", limit=2)] == ["n/3", "n/4"]

    assert fault_proxy.counts["LIST"] == 1


def test_many_objects_in_no_order_are_deleted_by_one_request(faulty_s3_store: S3Store, fault_proxy: FaultProxy) -> None:
    faulty_s3_store.put_many([(f"d/{number}", b"") for number in range(50)])

    faulty_s3_store.delete_many([f"d/{number}" for number in range(50)])

    assert fault_proxy.counts["DELETE"] == 1
    assert list(faulty_s3_store.list("d/")) == []


def test_only_a_long_upload_asks_for_leave_to_send_its_body(
    faulty_s3_store: S3Store, fault_proxy: FaultProxy, s3_bucket: str
) -> None:
    faulty_s3_store.put_if_absent("short", b"body")
    faulty_s3_store.put("long", bytes(2 * 1024 * 1024))

    assert fault_proxy.asked_to_continue == [f"/{s3_bucket}/some/prefix/long"]
    assert len(faulty_s3_store.get("long").body) == 2 * 1024 * 1024


def test_a_server_that_is_not_there_is_unavailable(environment: Environment) -> None:
    options = S3Options(endpoint_url="http://127.0.0.1:9", key="k", secret="s", max_attempts=2, retry_base_ms=0)
    store = S3Store("bucket", "", environment, options)

    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        store.put_if_absent("a", b"")

    assert +store.requests == {"GET": 2, "PUT": 1}


def test_missing_credentials_are_a_refusal(
    s3_server: S3Server, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)

    with pytest.raises(StoreAccessDenied, match="credentials"):
        S3Store("bucket", "", environment, S3Options(endpoint_url=s3_server.endpoint_url)).get("a")
    with pytest.raises(StoreAccessDenied, match="ProfileNotFound"):
        S3Store("bucket", "", environment, S3Options(endpoint_url=s3_server.endpoint_url, profile="nobody")).get("a")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"secret": "x" * 40}, "SignatureDoesNotMatch: the secret does not belong to the access key"),
        ({"key": "nobody"}, "does not know the access key"),
        ({"key": None, "secret": None, "anon": True}, "AccessDenied: check credentials, permissions and options"),
    ],
)
def test_the_error_after_a_refusal_of_a_real_server_names_the_remedy(
    real_server: S3Server, environment: Environment, wrong: dict[str, Any], message: str
) -> None:
    given = {**real_server.options(), **wrong}
    store = S3Store(real_server.new_bucket(), "", environment, S3Options(**given))

    with pytest.raises(StoreAccessDenied, match=message) as caught:
        store.get("a")

    assert real_server.secret not in str(caught.value)
    assert real_server.key not in str(caught.value)


def test_an_endpoint_that_is_no_s3_server_is_reported(environment: Environment) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html></html>")

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        options = S3Options(endpoint_url=f"http://127.0.0.1:{server.server_port}", key="k", secret="s", max_attempts=1)
        try:
            with pytest.raises(StoreUnavailable, match=r"no S3 server answers\. Check endpoint_url"):
                S3Store("bucket", "", environment, options).get("a")
        finally:
            server.shutdown()
            thread.join()


def test_no_representation_or_error_shows_a_credential(s3_server: S3Server, environment: Environment) -> None:
    options = S3Options(
        endpoint_url=s3_server.endpoint_url, key="THE-KEY", secret="THE-SECRET", token="THE-TOKEN", max_attempts=1
    )
    store = S3Store("no-such-bucket", "", environment, options)
    shown = [repr(store), repr(options), str(store), store.url]
    # Who looks at the key first refuses it.
    with pytest.raises((NotAStore, StoreAccessDenied)) as raised:
        store.get("a")
    shown.append(str(raised.value))

    assert not [text for text in shown if "THE-" in text]


def test_a_logged_request_shows_its_outcome_and_no_credential(
    s3_server: S3Server, s3_bucket: str, environment: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "eoslog")
    store = S3Store(s3_bucket, "prefix", environment, S3Options.of(s3_server.options()))

    store.put_if_absent("a", b"1")
    store.put_if_absent("a", b"2")
    store.get_range("a", 0, 1)
    list(store.list("a"))
    store.delete(["a"])
    with pytest.raises(ObjectNotFound):
        store.get("a")

    told = [each.getMessage() for each in caplog.records if each.name.startswith("eoslog")]
    assert [re.sub(r" in \d+ ms$", "", each) for each in told] == [
        f"s3://{s3_bucket}/prefix: {line}"
        for line in (
            "PUT a: 200",
            "PUT a: 412 PreconditionFailed",
            "GET a bytes=0-0: 206",
            "LIST a: 200",
            "DELETE a: 204",
            "GET a: 404 NoSuchKey",
        )
    ]
    assert not any(s3_server.secret in each or s3_server.key in each for each in told)


def test_a_directory_bucket_is_listed_by_directory_and_filtered_here(
    s3_server: S3Server, s3_bucket: str, environment: Environment
) -> None:
    store = s3_store_at(s3_server, s3_bucket, environment)
    store.put_many([(path, b"") for path in ("s/10", "s/11", "s/2", "t/1")])
    assert store.lists_in_order is True
    store.lists_in_order = False

    assert [info.path for info in store.list("s/1")] == ["s/10", "s/11"]
    assert [info.path for info in store.list("s/", start_after="s/10")] == ["s/11", "s/2"]
    assert S3Store("bucket--use1-az4--x-s3", "", environment).lists_in_order is False
