"""The append service: it appends for writers on all hosts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

import eoslog
from eoslog.log import append_client
from eoslog.maintenance import append_service
from eoslog.maintenance.append_service import AppendService
from eoslog.store import Store
from tests.s3.servers import S3Server
from tests.unit.maintenance.append_services import (
    EVERYWHERE,
    address_of,
    announce,
    announced,
    commit,
    listening,
    records,
    running,
    values,
    writer,
)


@EVERYWHERE
def test_the_service_appends_for_writers(connected: Callable[[], Store], service: AppendService) -> None:
    store = connected()
    producer = writer(store)

    commit(producer, b"one")
    commit(producer, b"two")
    with connected().producer() as idempotent:
        idempotent.send("t", b"three", partition=0)

    assert store.log.appender.counts.by_others == 2
    assert values(connected()) == [b"one", b"two", b"three"]
    assert [len(record.requests or ()) for record in records(store)][-1] == 1


@pytest.mark.s3
def test_a_small_commit_costs_its_writer_no_request(any_s3_server: S3Server) -> None:
    url, options = f"s3://{any_s3_server.new_bucket()}/store", any_s3_server.options()

    def connect() -> Store:
        return eoslog.connect(url, **options)  # type: ignore[arg-type]

    connect().admin.create_topic("t")
    with running(connect):
        store = connect()
        producer = writer(store)
        commit(producer, b"imports and connects")
        before = store.requests.copy()
        commit(producer, b"one")

        assert store.requests == before


@EVERYWHERE
def test_one_record_has_the_commits_of_all_writers_that_wait(
    connected: Callable[[], Store], service: AppendService, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = [writer(connected(), f"tx{number}") for number in range(3)]
    log = service._store.log
    original, has_taken, may_append = log.append_for_others, threading.Event(), threading.Event()

    def held(messages: object) -> None:
        has_taken.set()
        may_append.wait()
        original(messages)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "append_for_others", held)
    threads = [threading.Thread(target=commit, args=(producers[0], b"0"))]
    threads[0].start()
    has_taken.wait()
    for number in (1, 2):
        threads.append(threading.Thread(target=commit, args=(producers[number], str(number).encode())))
        threads[-1].start()
    while len(service._waiting) < 2:
        threading.Event().wait(0.005)
    may_append.set()
    for thread in threads:
        thread.join()

    assert [len(record.requests or ()) for record in records(connected())][-2:] == [1, 2]
    assert sorted(values(connected())) == [b"0", b"1", b"2"]


@EVERYWHERE
def test_a_writer_that_knows_a_newer_state_is_served_on_that_state(
    connected: Callable[[], Store], service: AppendService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has not read the record that made the producer."""
    store = connected()
    with monkeypatch.context() as without_service:
        without_service.setattr(store.log.appender._contention._client, "reach", lambda announced: False)
        producer = writer(store)
    assert service._store.log.replica.slot < store.log.replica.slot

    commit(producer, b"one")

    assert store.log.appender.counts.by_others == 1


def test_a_request_that_only_its_process_may_append_ask_for_slot(
    connected: Callable[[], Store], service: AppendService
) -> None:
    store = connected()
    store.describe()
    announced(store)
    asked: list[object] = []
    original = service._leave_slot
    service._leave_slot = lambda waiting: (asked.append(waiting), original(waiting))[1]  # type: ignore[method-assign]

    writer(store)

    assert len(asked) == 1
    assert store.log.appender.counts.conflicts == 0


@EVERYWHERE
def test_a_refused_request_gets_the_error_of_its_own_attempt(
    connected: Callable[[], Store], service: AppendService
) -> None:
    old = writer(connected())
    old.begin_transaction()
    old.send("t", b"fenced", partition=0)
    writer(connected())

    with pytest.raises(eoslog.ProducerFenced):
        old.commit_transaction()
    assert values(connected()) == []


def test_a_second_service_waits_until_the_first_has_ended(
    connected: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_service, "_CHECK_S", 0.02)
    first = running(connected)
    one = first.__enter__()
    with running(connected) as two:
        found = announced(connected())
        assert found is not None
        assert found.service_id == one._service_id
        first.__exit__(None, None, None)
        while (found := announced(connected())) is None or found.service_id != two._service_id:
            threading.Event().wait(0.005)
        store = connected()
        commit(writer(store), b"one")
        assert store.log.appender.counts.by_others == 1


def test_a_service_replaces_one_that_does_not_answer(
    connected: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_client, "_LONGEST_GREETING_MS", 10)
    with listening() as listener:
        announce(connected(), address_of(listener))
        with running(connected) as service:
            while (found := announced(connected())) is None or found.service_id != service._service_id:
                threading.Event().wait(0.005)


@EVERYWHERE
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_a_connection_of_its_own(connected: Callable[[], Store], service: AppendService) -> None:
    store = connected()
    producer = writer(store)
    commit(producer, b"before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            commit(writer(store, "child"), b"of the child")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    commit(producer, b"after")

    assert sorted(values(connected())) == [b"after", b"before", b"of the child"]
