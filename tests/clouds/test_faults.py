"""What a store in a cloud says when answers are lost, spoiled or late, and that nothing is sent again unseen."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

import pytest

from eoslog.errors import NotAStore, PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import HttpStore
from eoslog.storage.object_store import ObjectNotFound, PutOutcome
from eoslog.storage.probe import probe_put_if_absent
from tests.clouds.servers import CloudServer, GcsServer, cloud_store_at
from tests.fault_proxy import FaultProxy

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
def store(request: pytest.FixtureRequest, faulty_store: HttpStore) -> HttpStore:
    """A broken connection is worse when it was kept: HTTP clients like to send the request again."""
    if request.param == "kept connection":
        faulty_store.put("warm", b"")
    return faulty_store


def assert_nothing_was_sent_unseen(store: HttpStore, proxy: FaultProxy) -> None:
    assert store.requests == proxy.counts


@pytest.mark.parametrize("spoil", AFTER_LANDING)
def test_an_unanswered_put_if_absent_is_sent_once_and_unknown(
    store: HttpStore, cloud_proxy: FaultProxy, cloud_store: HttpStore, spoil: Spoil
) -> None:
    sent = store.requests["PUT"]
    spoil(cloud_proxy)

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 1
    assert cloud_store.get("slot/1").body == b"mine"
    assert store.put_if_absent("slot/1", b"mine") is PutOutcome.EXISTS
    assert_nothing_was_sent_unseen(store, cloud_proxy)


@pytest.mark.parametrize("spoil", BEFORE_LANDING)
def test_a_lost_put_if_absent_is_unknown_and_may_be_repeated(
    store: HttpStore, cloud_proxy: FaultProxy, cloud_store: HttpStore, spoil: Spoil
) -> None:
    sent = store.requests["PUT"]
    spoil(cloud_proxy)

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 1
    with pytest.raises(ObjectNotFound):
        cloud_store.get("slot/1")
    assert store.put_if_absent("slot/1", b"mine") is PutOutcome.CREATED
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_a_put_if_absent_may_land_long_after_it_was_given_up(
    store: HttpStore, cloud_proxy: FaultProxy, cloud_store: HttpStore
) -> None:
    release = threading.Event()
    fault = cloud_proxy.delay(release, "PUT", "slot")

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"late")
    with pytest.raises(ObjectNotFound):
        cloud_store.get("slot/1")
    release.set()
    assert fault.landed.wait(30)

    assert cloud_store.get("slot/1").body == b"late"
    assert store.put_if_absent("slot/1", b"late") is PutOutcome.EXISTS


def test_a_late_put_if_absent_cannot_take_an_occupied_key(
    store: HttpStore, cloud_proxy: FaultProxy, cloud_store: HttpStore
) -> None:
    release = threading.Event()
    fault = cloud_proxy.delay(release, "PUT", "slot")
    with pytest.raises(StoreUnavailable):
        store.put_if_absent("slot/1", b"late")

    assert store.put_if_absent("slot/1", b"other") is PutOutcome.CREATED
    release.set()
    assert fault.landed.wait(30)

    assert cloud_store.get("slot/1").body == b"other"


def test_a_refused_put_is_denied_and_not_repeated(store: HttpStore, cloud_proxy: FaultProxy) -> None:
    sent = store.requests["PUT"]
    cloud_proxy.answer(403, "AccessDenied", "PUT", "slot", times=2)

    with pytest.raises(StoreAccessDenied, match="AccessDenied"):
        store.put_if_absent("slot/1", b"mine")
    with pytest.raises(StoreAccessDenied, match="AccessDenied"):
        store.put("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 2
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_a_store_without_conditional_puts_is_refused(
    faulty_store: HttpStore, cloud_proxy: FaultProxy, environment: Environment
) -> None:
    cloud_proxy.answer(501, "NotImplemented", "PUT", "probe")

    with pytest.raises(PutIfAbsentUnsupported):
        probe_put_if_absent(faulty_store, environment)


@pytest.mark.parametrize("spoil", AFTER_LANDING + BEFORE_LANDING)
def test_a_put_is_repeated_until_it_succeeds(
    store: HttpStore, cloud_proxy: FaultProxy, cloud_store: HttpStore, spoil: Spoil
) -> None:
    sent = store.requests["PUT"]
    spoil(cloud_proxy)

    store.put("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 2
    assert cloud_store.get("slot/1").body == b"mine"
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_a_put_gives_up_after_its_attempts(store: HttpStore, cloud_proxy: FaultProxy) -> None:
    sent = store.requests["PUT"]
    cloud_proxy.answer(503, "SlowDown", "PUT", "slot", times=100)

    with pytest.raises(StoreUnavailable, match="SlowDown"):
        store.put("slot/1", b"mine")

    assert store.requests["PUT"] == sent + 3
    assert_nothing_was_sent_unseen(store, cloud_proxy)


@pytest.mark.parametrize("spoil", SPOILED_READS)
def test_a_read_is_repeated_until_it_succeeds(
    store: HttpStore, cloud_proxy: FaultProxy, spoil: Callable[[FaultProxy, str], object]
) -> None:
    store.put("a", b"body")
    spoil(cloud_proxy, "GET")
    spoil(cloud_proxy, "LIST")
    spoil(cloud_proxy, "DELETE")

    assert store.get("a").body == b"body"
    assert [info.path for info in store.list("a")] == ["a"]
    store.delete(["a"])
    store.delete_many(["a"])

    assert store.requests["GET"] == 2
    assert store.requests["LIST"] == 2
    assert store.requests["DELETE"] == 3
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_a_truncated_body_is_noticed_and_read_again(store: HttpStore, cloud_proxy: FaultProxy) -> None:
    body = bytes(range(256)) * 1000
    store.put("a", body)
    cloud_proxy.truncate("/a$", times=2)

    assert store.get("a").body == body

    assert store.requests["GET"] == 3
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_the_log_line_of_a_truncated_body_is_no_success(
    store: HttpStore, cloud_proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("a", bytes(100_000))
    cloud_proxy.truncate("/a$", times=1)
    caplog.set_level(logging.DEBUG, "eoslog.storage.requests")

    store.get("a")

    truncated, whole = (each.getMessage() for each in caplog.records if "GET a" in each.getMessage())
    assert ": 200 in" in whole
    assert ": 200 in" not in truncated


def test_a_body_that_is_truncated_each_time_is_never_returned(store: HttpStore, cloud_proxy: FaultProxy) -> None:
    store.put("a", b"0123456789")
    cloud_proxy.truncate("/a$", times=100)

    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        store.get_range("a", 2, 6)
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_one_failure_among_many_reads_is_repeated_alone(store: HttpStore, cloud_proxy: FaultProxy) -> None:
    store.put_many([(f"m/{number}", b"%d" % number) for number in range(10)])
    cloud_proxy.lose_answer("GET", "m/7")

    found = store.get_many([f"m/{number}" for number in range(10)])

    assert [stored and stored.body for stored in found] == [b"%d" % number for number in range(10)]
    assert store.requests["GET"] == 11
    assert_nothing_was_sent_unseen(store, cloud_proxy)


def test_a_later_page_of_a_list_is_repeated_alone(
    faulty_store: HttpStore, cloud_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.storage.http_store._PAGE", 4)
    faulty_store.put_many([(f"n/{number}", b"") for number in range(10)])
    cloud_proxy.answer(503, "SlowDown", "LIST", nth=2)

    assert [info.path for info in faulty_store.list("n/")] == [f"n/{number}" for number in range(10)]

    assert faulty_store.requests["LIST"] == 4
    assert_nothing_was_sent_unseen(faulty_store, cloud_proxy)


def test_objects_are_deleted_in_the_given_order(faulty_store: HttpStore, cloud_proxy: FaultProxy) -> None:
    faulty_store.put_many([(f"d/{number}", b"") for number in range(5)])
    cloud_proxy.answer(403, "AccessDenied", "DELETE", "d/2")

    with pytest.raises(StoreAccessDenied):
        faulty_store.delete([f"d/{number}" for number in range(5)])

    assert [info.path for info in faulty_store.list("d/")] == ["d/2", "d/3", "d/4"]


def test_error_answers_tell_the_time_too(faulty_store: HttpStore, environment: Environment) -> None:
    with pytest.raises(ObjectNotFound):
        faulty_store.get("missing")
    assert faulty_store.clock.last_date_ms > 0

    faulty_store.put("a", b"")
    faulty_store.clock = StoreClock(environment)
    assert faulty_store.put_if_absent("a", b"") is PutOutcome.EXISTS
    assert faulty_store.clock.last_date_ms > 0


def test_a_missing_bucket_is_named(cloud_server: CloudServer, environment: Environment) -> None:
    store = cloud_store_at(cloud_server, "no-such-bucket", environment)
    calls: list[Callable[[], object]] = [
        lambda: list(store.list("")),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
    ]
    if not isinstance(cloud_server, GcsServer):
        # fake-gcs-server answers these as for an object that is missing.
        calls += [lambda: store.get("a"), lambda: store.delete(["a"]), lambda: store.delete_many(["a"])]
    for call in calls:
        with pytest.raises(NotAStore, match="no-such-bucket"):
            call()


def test_a_store_is_usable_on_both_sides_of_a_fork(cloud_store: HttpStore) -> None:
    cloud_store.put("before", b"parent")

    child = os.fork()
    if child == 0:
        try:
            seen = cloud_store.get("before").body == b"parent"
            os._exit(0 if seen and cloud_store.put_if_absent("after", b"child") is PutOutcome.CREATED else 1)
        finally:
            os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cloud_store.get("after").body == b"child"
