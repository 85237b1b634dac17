"""A writer that cannot use the append service appends by itself, and no row is lost or doubled."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import eoslog
from eoslog.errors import TopicAlreadyExists
from eoslog.log import append_client
from eoslog.log.slots import LONGEST_LEASE_MS
from eoslog.maintenance import append_service
from eoslog.maintenance.append_service import AppendService
from eoslog.storage.environment import Backoff
from eoslog.store import Store
from tests.unit.maintenance.append_services import (
    EVERYWHERE,
    address_of,
    announce,
    announced,
    append_key,
    commit,
    listening,
    running,
    values,
    writer,
)


class Killed(BaseException):
    """The process ends here."""


def test_writers_go_on_when_the_service_has_ended(connected: Callable[[], Store]) -> None:
    store = connected()
    with running(connected):
        producer = writer(store)
        commit(producer, b"one")

    commit(producer, b"two")

    assert announced(store) is None
    assert values(connected()) == [b"one", b"two"]


def test_nobody_listens_at_an_announced_address(
    connected: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = connected()
    with listening() as listener:
        address = address_of(listener)
    append_key(store)
    announce(connected(), address)
    producer = writer(store)

    with caplog.at_level(logging.INFO, logger="eoslog.log.append_client"):
        commit(producer, b"one")
        commit(producer, b"two")

    assert values(connected()) == [b"one", b"two"]
    # The pause after the first attempt of ``init_transactions`` has not ended.
    assert len([each for each in caplog.records if "cannot be reached" in each.message]) <= 1


@pytest.mark.parametrize("lease_ms", [0, LONGEST_LEASE_MS + 60_000])
def test_an_announcement_that_has_expired_or_is_forged_is_neither_used_nor_repeated(
    connected: Callable[[], Store], lease_ms: int
) -> None:
    with listening() as listener:
        announce(connected(), address_of(listener), lease_ms=lease_ms)
        store = connected()
        commit(writer(store), b"one")

        assert announced(store) is None
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_every_process_repeats_an_announcement(connected: Callable[[], Store]) -> None:
    announce(connected(), "127.0.0.1:1")
    store = connected()

    commit(writer(store), b"one")

    found = announced(connected())
    assert found is not None
    assert found.address == "127.0.0.1:1"


def test_a_service_without_access_to_its_key_is_not_used(connected: Callable[[], Store]) -> None:
    """A store without the key: nobody has run a service there, or the role may not read it."""
    with listening() as listener:
        announce(connected(), address_of(listener))
        store = connected()
        commit(writer(store), b"one")

        assert values(connected()) == [b"one"]


def test_a_silent_service_is_asked_again_after_a_pause_only(
    connected: Callable[[], Store], service: AppendService, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = connected()
    producer = writer(store)
    commit(producer, b"one")
    monkeypatch.setattr(append_client, "_PATIENCE_MS", 50)
    monkeypatch.setattr(append_client, "_PAUSE", Backoff(first_ms=1 << 30, longest_ms=1 << 30))
    log = service._store.log
    original, asked, may_answer = log.append_for_others, [], threading.Event()

    def stopped(messages: object) -> None:
        asked.append(messages)
        may_answer.wait()
        original(messages)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "append_for_others", stopped)
    commit(producer, b"two")
    commit(producer, b"three")
    assert len(asked) == 1

    may_answer.set()
    monkeypatch.setattr(append_client, "_PATIENCE_MS", 10_000)
    store.log.appender._contention._client._not_before_ms = 0
    commit(producer, b"four")

    assert len(asked) == 2
    assert values(connected()) == [b"one", b"two", b"three", b"four"]


def test_a_refused_request_does_not_ask_for_a_slot(connected: Callable[[], Store], service: AppendService) -> None:
    """The service would wait for a record that does not come, and all writers with it."""
    store = connected()
    announced(store)
    asked: list[object] = []
    service._leave_slot = asked.append  # type: ignore[method-assign]

    with pytest.raises(TopicAlreadyExists):
        store.admin.create_topic("t")

    assert asked == []


@EVERYWHERE
def test_a_row_whose_answer_is_lost_is_there_once(
    connected: Callable[[], Store], service: AppendService, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = connected()
    producer = writer(store)

    def no_answer(waiting: append_service._Waiting, body: bytes) -> None:
        assert service._loop is not None
        service._loop.call_soon_threadsafe(waiting.answer.set_exception, ConnectionError("lost"))

    monkeypatch.setattr(service, "_tell", no_answer)
    commit(producer, b"one")

    assert values(connected()) == [b"one"]
    assert store.log.appender.counts.by_others == 1


@EVERYWHERE
def test_records_of_another_log_are_no_success(
    connected: Callable[[], Store], service: AppendService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a service whose bytes are wrong loses and doubles nothing."""
    producer = writer(connected())
    original = service._tell
    monkeypatch.setattr(service, "_append_for", lambda taken: [original(each, b"5\n{}") for each in taken])

    commit(producer, b"one")

    assert values(connected()) == [b"one"]


@pytest.mark.parametrize(
    ("point", "expected"),
    [("log.service.before_send", []), ("log.service.answered", [b"one"])],
)
def test_a_writer_that_dies_beside_its_message_leaves_one_copy_or_none(
    connected: Callable[[], Store], service: AppendService, point: str, expected: list[bytes]
) -> None:
    dying = writer(connected())
    store = dying._store

    def die(reached: str) -> None:
        if reached == point:
            raise Killed

    store.environment.reached = die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        commit(dying, b"one")
    commit(writer(connected()), b"of its successor")

    assert values(connected()) == [*expected, b"of its successor"]


def close_connections() -> None:
    """As the death of the service does. Called in its event loop."""
    for task in asyncio.all_tasks():
        if "_connected" in repr(task.get_coro()):
            task.cancel()


def test_a_service_that_dies_before_it_answers_leaves_one_copy(
    connected: Callable[[], Store], service: AppendService
) -> None:
    store = connected()
    producer = writer(store)

    def die(point: str) -> None:
        if point == "service.appended":
            service._tell = lambda waiting, records: None  # type: ignore[method-assign]
            assert service._loop is not None
            service._loop.call_soon_threadsafe(close_connections)

    service._store.environment.reached = die  # type: ignore[method-assign]
    commit(producer, b"one")
    commit(producer, b"two")

    assert values(connected()) == [b"one", b"two"]


def test_writers_of_a_copied_store_do_not_send_to_the_service_of_the_original(tmp_path: Path) -> None:
    """The copy has the announcement and the key, too. The data files of its writers are not in the original."""

    def connect() -> Store:
        store = eoslog.connect(str(tmp_path / "original"), fsync=False)
        store.describe()
        store.object_store.host_queue = None
        return store

    eoslog.connect(str(tmp_path / "original"), fsync=False).admin.create_topic("t")
    with running(connect):
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        copy = eoslog.connect(str(tmp_path / "copy"), fsync=False)
        with copy.producer() as producer:
            producer.send("t", b"of the copy", partition=0)

    assert values(copy) == [b"of the copy"]
    assert values(connect()) == []
