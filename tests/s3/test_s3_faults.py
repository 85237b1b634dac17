"""What an S3 store says when answers are lost, spoiled or late, and that nothing is sent again unseen."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import eoslog
from eoslog.errors import NotAStore, PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, PutOutcome
from eoslog.storage.probe import probe_put_if_absent
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from tests.conftest import s3_store_at
from tests.fault_proxy import FaultProxy
from tests.s3.servers import S3Server

pytestmark = pytest.mark.s3

Spoil = Callable[[FaultProxy], object]

AFTER_LANDING: list[Spoil] = [
    lambda proxy: proxy.lose_answer("PUT", "slot"),
    lambda proxy: proxy.forward_then_answer(500, "InternalError", "PUT", "slot"),
    lambda proxy: proxy.forward_then_answer(503, "SlowDown", "PUT", "slot"),
]
BEFORE_LANDING: list[Spoil] = [
    lambda proxy: proxy.reset("PUT", "slot"),
    lambda proxy: proxy.answer(500, "InternalError", "PUT", "slot"),
    lambda proxy: proxy.answer(503, "SlowDown", "PUT", "slot"),
]
SPOILED_READS: list[Callable[[FaultProxy, str], object]] = [
    lambda proxy, kind: proxy.reset(kind),
    lambda proxy, kind: proxy.lose_answer(kind),
    lambda proxy, kind: proxy.answer(500, "InternalError", kind),
    lambda proxy, kind: proxy.answer(503, "SlowDown", kind),
    lambda proxy, kind: proxy.answer(429, "TooManyRequests", kind),
]


@pytest.fixture(params=["new connection", "kept connection"])
def store(request: pytest.FixtureRequest, faulty_s3_store: S3Store) -> S3Store:
    """A broken connection is worse when it was kept: HTTP clients like to send the request again."""
    if request.param == "kept connection":
        faulty_s3_store.put("warm", b"")
    return faulty_s3_store


def assert_nothing_was_sent_unseen(store: S3Store, proxy: FaultProxy) -> None:
    assert store.requests == proxy.counts


@pytest.mark.parametrize("spoil", AFTER_LANDING)
def test_an_unanswered_put_if_absent_is_sent_once_and_unknown(
    store: S3Store, fault_proxy: FaultProxy, s3_store: S3Store, spoil: Spoil
) -> None:
    sent = store.requests["PUT"]
    spoil(fault_proxy)

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 1
    assert s3_store.get("slot/1").body == b"mine"
    assert store.put_if_absent("slot/1", b"mine") is PutOutcome.EXISTS
    assert_nothing_was_sent_unseen(store, fault_proxy)


@pytest.mark.parametrize("spoil", BEFORE_LANDING)
def test_a_lost_put_if_absent_is_unknown_and_may_be_repeated(
    store: S3Store, fault_proxy: FaultProxy, s3_store: S3Store, spoil: Spoil
) -> None:
    sent = store.requests["PUT"]
    spoil(fault_proxy)

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 1
    with pytest.raises(ObjectNotFound):
        s3_store.get("slot/1")
    assert store.put_if_absent("slot/1", b"mine") is PutOutcome.CREATED
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_a_put_if_absent_may_land_long_after_it_was_given_up(
    store: S3Store, fault_proxy: FaultProxy, s3_store: S3Store
) -> None:
    release = threading.Event()
    fault = fault_proxy.delay(release, "PUT", "slot")

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"late")
    with pytest.raises(ObjectNotFound):
        s3_store.get("slot/1")
    release.set()
    assert fault.landed.wait(30)

    assert s3_store.get("slot/1").body == b"late"
    assert store.put_if_absent("slot/1", b"late") is PutOutcome.EXISTS


def test_a_late_put_if_absent_cannot_take_an_occupied_key(
    store: S3Store, fault_proxy: FaultProxy, s3_store: S3Store
) -> None:
    release = threading.Event()
    fault = fault_proxy.delay(release, "PUT", "slot")
    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"late")

    assert store.put_if_absent("slot/1", b"other") is PutOutcome.CREATED
    release.set()
    assert fault.landed.wait(30)

    assert s3_store.get("slot/1").body == b"other"


def test_a_conflict_is_told_apart_from_an_existing_object(store: S3Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.answer(409, "ConditionalRequestConflict", "PUT", "slot")

    assert store.put_if_absent("slot/1", b"mine") is PutOutcome.CONFLICT
    assert store.put_if_absent("slot/1", b"mine") is PutOutcome.CREATED
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_a_refused_put_is_denied_and_not_repeated(store: S3Store, fault_proxy: FaultProxy) -> None:
    sent = store.requests["PUT"]
    fault_proxy.answer(403, "AccessDenied", "PUT", "slot", times=2)

    with pytest.raises(StoreAccessDenied, match="AccessDenied"):
        store.put_if_absent("slot/1", b"mine")
    with pytest.raises(StoreAccessDenied, match="AccessDenied"):
        store.put("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 2
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_a_store_without_conditional_puts_is_refused(
    faulty_s3_store: S3Store, fault_proxy: FaultProxy, environment: Environment
) -> None:
    fault_proxy.answer(501, "NotImplemented", "PUT", "probe")

    with pytest.raises(PutIfAbsentUnsupported):
        probe_put_if_absent(faulty_s3_store, environment)


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


@pytest.mark.parametrize("spoil", AFTER_LANDING + BEFORE_LANDING)
def test_a_put_is_repeated_until_it_succeeds(
    store: S3Store, fault_proxy: FaultProxy, s3_store: S3Store, spoil: Spoil
) -> None:
    sent = store.requests["PUT"]
    spoil(fault_proxy)

    store.put("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 2
    assert s3_store.get("slot/1").body == b"mine"
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_a_put_gives_up_after_its_attempts(store: S3Store, fault_proxy: FaultProxy) -> None:
    sent = store.requests["PUT"]
    fault_proxy.answer(503, "SlowDown", "PUT", "slot", times=100)

    with pytest.raises(StoreUnavailable, match="SlowDown"):
        store.put("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 3
    assert_nothing_was_sent_unseen(store, fault_proxy)


@pytest.mark.parametrize("spoil", SPOILED_READS)
def test_a_read_is_repeated_until_it_succeeds(
    store: S3Store, fault_proxy: FaultProxy, spoil: Callable[[FaultProxy, str], object]
) -> None:
    store.put("a", b"body")
    spoil(fault_proxy, "GET")
    spoil(fault_proxy, "LIST")
    spoil(fault_proxy, "DELETE")

    assert store.get("a").body == b"body"
    assert [info.path for info in store.list("a")] == ["a"]
    store.delete(["a"])
    store.delete_many(["a"])

    assert store.requests["GET"] == 2
    assert store.requests["LIST"] == 2
    assert store.requests["DELETE"] == 3
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_a_truncated_body_is_noticed_and_read_again(store: S3Store, fault_proxy: FaultProxy) -> None:
    body = bytes(range(256)) * 1000
    store.put("a", body)
    fault_proxy.truncate("/a$", times=2)

    assert store.get("a").body == body

    assert store.requests["GET"] == 3
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_the_log_line_of_a_truncated_body_is_no_success(
    store: S3Store, fault_proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("a", bytes(100_000))
    fault_proxy.truncate("/a$", times=1)
    caplog.set_level(logging.DEBUG, "eoslog.storage.requests")

    store.get("a")

    truncated, whole = (each.getMessage() for each in caplog.records if "GET a" in each.getMessage())
    assert ": 200 in" in whole
    assert ": 200 in" not in truncated


def test_a_body_that_is_truncated_each_time_is_never_returned(store: S3Store, fault_proxy: FaultProxy) -> None:
    store.put("a", b"0123456789")
    fault_proxy.truncate("/a$", times=100)

    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        store.get_range("a", 2, 6)
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_one_failure_among_many_reads_is_repeated_alone(store: S3Store, fault_proxy: FaultProxy) -> None:
    store.put_many([(f"m/{number}", b"%d" % number) for number in range(10)])
    fault_proxy.lose_answer("GET", "m/7")

    found = store.get_many([f"m/{number}" for number in range(10)])

    assert [stored and stored.body for stored in found] == [b"%d" % number for number in range(10)]
    assert store.requests["GET"] == 11
    assert_nothing_was_sent_unseen(store, fault_proxy)


def test_a_later_page_of_a_list_is_repeated_alone(
    faulty_s3_store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.storage.http_store._PAGE", 4)
    faulty_s3_store.put_many([(f"n/{number}", b"") for number in range(10)])
    fault_proxy.answer(503, "SlowDown", "LIST", nth=2)

    assert [info.path for info in faulty_s3_store.list("n/")] == [f"n/{number}" for number in range(10)]

    assert faulty_s3_store.requests["LIST"] == 4
    assert_nothing_was_sent_unseen(faulty_s3_store, fault_proxy)


def test_a_limited_list_sends_one_request(
    faulty_s3_store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.storage.http_store._PAGE", 4)
    faulty_s3_store.put_many([(f"n/{number}", b"") for number in range(10)])

    assert [info.path for info in faulty_s3_store.list("n/", start_after="n/2", limit=2)] == ["n/3", "n/4"]

    assert fault_proxy.counts["LIST"] == 1


def test_objects_are_deleted_in_the_given_order(faulty_s3_store: S3Store, fault_proxy: FaultProxy) -> None:
    faulty_s3_store.put_many([(f"d/{number}", b"") for number in range(5)])
    fault_proxy.answer(403, "AccessDenied", "DELETE", "d/2")

    with pytest.raises(StoreAccessDenied):
        faulty_s3_store.delete([f"d/{number}" for number in range(5)])

    assert [info.path for info in faulty_s3_store.list("d/")] == ["d/2", "d/3", "d/4"]


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


def test_error_answers_tell_the_time_too(faulty_s3_store: S3Store, environment: Environment) -> None:
    with pytest.raises(ObjectNotFound):
        faulty_s3_store.get("missing")
    assert faulty_s3_store.clock.last_date_ms > 0

    faulty_s3_store.put("a", b"")
    faulty_s3_store.clock = StoreClock(environment)
    assert faulty_s3_store.put_if_absent("a", b"") is PutOutcome.EXISTS
    assert faulty_s3_store.clock.last_date_ms > 0


def test_a_missing_bucket_is_named(s3_server: S3Server, environment: Environment) -> None:
    store = s3_store_at(s3_server, "no-such-bucket", environment)
    for call in (
        lambda: store.get("a"),
        lambda: list(store.list("")),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.delete(["a"]),
        lambda: store.delete_many(["a"]),
    ):
        with pytest.raises(NotAStore, match="no-such-bucket"):
            call()


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
        ({"secret": "x" * 40}, "SignatureDoesNotMatch; the secret does not belong to the access key"),
        ({"key": "nobody"}, "does not know the access key"),
        ({"key": None, "secret": None, "anon": True}, "AccessDenied; check credentials, permissions and options"),
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
            with pytest.raises(StoreUnavailable, match="no S3 server answers; check endpoint_url"):
                S3Store("bucket", "", environment, options).get("a")
        finally:
            server.shutdown()
            thread.join()


def test_a_store_is_usable_on_both_sides_of_a_fork(s3_store: S3Store) -> None:
    s3_store.put("before", b"parent")

    child = os.fork()
    if child == 0:
        try:
            seen = s3_store.get("before").body == b"parent"
            os._exit(0 if seen and s3_store.put_if_absent("after", b"child") is PutOutcome.CREATED else 1)
        finally:
            os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert s3_store.get("after").body == b"child"


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
