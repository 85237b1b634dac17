"""The append service: it appends for writers on all hosts, and a writer that cannot use it appends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import eoslog
from eoslog.errors import InvalidOption, TopicAlreadyExists
from eoslog.log import append_client
from eoslog.log.announcements import OwnService
from eoslog.log.append_client import APPEND_KEY_PATH, AppendClient
from eoslog.log.slots import LONGEST_LEASE_MS, AppendServiceAnnouncement, SlotRecord, records_backwards
from eoslog.maintenance import append_service
from eoslog.maintenance.append_service import AppendService
from eoslog.producer.producer import Producer
from eoslog.storage.append_channel import GREETING, NONCE_BYTES, PROOF_BYTES
from eoslog.storage.environment import Backoff
from eoslog.store import Store
from tests.s3.servers import S3Server

ANYWHERE = "127.0.0.1:0"


class Killed(BaseException):
    """The process ends here."""


EVERYWHERE = pytest.mark.parametrize("connected", ["local", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)


@pytest.fixture
def connected(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """A function that connects to the store like a process on a host of its own."""
    options: dict[str, object] = {"fsync": False}
    url = str(tmp_path / "store")
    if getattr(request, "param", "local") == "s3":
        server: S3Server = request.getfixturevalue("moto_server")
        url, options = f"s3://{server.new_bucket()}/store", dict(server.options())

    eoslog.connect(url, **options).admin.create_topic("t")  # type: ignore[arg-type]

    def connect() -> Store:
        store = eoslog.connect(url, **options)  # type: ignore[arg-type]
        store.describe()
        store.object_store.host_queue = None
        return store

    return connect


@pytest.fixture
def service(connected: Callable[[], Store]) -> Iterator[AppendService]:
    """A service that is announced."""
    with running(connected) as found:
        yield found


@contextlib.contextmanager
def running(connected: Callable[[], Store], **options: str) -> Iterator[AppendService]:
    store = connected()
    with AppendService(store, ANYWHERE, **options) as found:
        await_announcement(store)
        yield found


def await_announcement(store: Store) -> None:
    """Wait until the log announces a service."""
    while announced(store) is None:
        threading.Event().wait(0.005)


def announced(store: Store) -> AppendServiceAnnouncement | None:
    return store.log.read(lambda state, slot: store.log.replica.append_service)


def writer(store: Store, transactional_id: str = "tx") -> Producer:
    producer = store.producer(transactional_id, staged=True)
    producer.init_transactions()
    return producer


def commit(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send("t", value, partition=0)
    producer.commit_transaction()


def values(store: Store) -> list[bytes]:
    return [value.as_py() for value in store.scan("t").to_table().column("value")]


def records(store: Store) -> list[SlotRecord]:
    """All records, the oldest first."""
    newest = store.log.read(lambda state, slot: slot)
    return list(records_backwards(store.object_store, newest))[::-1]


def announce(store: Store, address: str, lease_ms: int = 600_000, certificate: str | None = None) -> None:
    """Let the log announce a service that this process is not."""
    store.log.announce(OwnService("a" * 32, address, certificate, lease_ms))
    store.log.appender.announcements.own_service = None


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket that accepts connections into its backlog, and nobody answers them."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


# With a service


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
def test_a_small_commit_costs_its_writer_no_request(moto_server: S3Server) -> None:
    url, options = f"s3://{moto_server.new_bucket()}/store", moto_server.options()

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


# Without one


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


def append_key(store: Store) -> bytes:
    return append_service._append_key(store)


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


# Several services


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


def test_a_service_replaces_one_that_does_not_answer(connected: Callable[[], Store]) -> None:
    with listening() as listener:
        announce(connected(), address_of(listener))
        with running(connected) as service:
            while (found := announced(connected())) is None or found.service_id != service._service_id:
                threading.Event().wait(0.005)


# Strangers


def greeted(service: AppendService, first: bytes) -> socket.socket:
    host, _, port = service.address.rpartition(":")
    found = socket.create_connection((host, int(port)), 10)
    found.sendall(first)
    return found


def test_a_stranger_gets_no_answer_to_what_is_no_greeting(service: AppendService) -> None:
    with greeted(service, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as stranger:
        assert stranger.recv(1_000) == b""


def test_a_stranger_without_the_key_changes_nothing(connected: Callable[[], Store], service: AppendService) -> None:
    before = len(records(connected()))
    with greeted(service, GREETING + b"n" * NONCE_BYTES) as stranger:
        answer = b""
        while len(answer) < NONCE_BYTES + PROOF_BYTES:
            answer += stranger.recv(1_000)
        # Its own proof, sent back.
        stranger.sendall(answer[NONCE_BYTES:])
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1_000) == b""
    assert len(records(connected())) == before


def test_a_writer_sends_nothing_to_a_service_without_the_key(connected: Callable[[], Store]) -> None:
    """An impostor at the address of a service that has ended."""
    store = connected()
    append_key(store)
    with listening() as listener:
        announce(connected(), address_of(listener))
        producer_thread = threading.Thread(target=lambda: commit(writer(store), b"one"))
        producer_thread.start()
        connection, _ = listener.accept()
        with connection:
            while len(connection.recv(1_000, socket.MSG_PEEK)) < len(GREETING) + NONCE_BYTES:
                pass
            connection.sendall(b"x" * (NONCE_BYTES + PROOF_BYTES))
            producer_thread.join()
            assert len(connection.recv(1_000)) == len(GREETING) + NONCE_BYTES
    assert values(connected()) == [b"one"]


def test_a_malformed_message_ends_its_connection_only(connected: Callable[[], Store], service: AppendService) -> None:
    store = connected()
    producer = writer(store)
    found = announced(store)
    assert found is not None
    client = AppendClient(store.object_store, store.environment)
    assert client.reach(found)
    assert client.ask(b'{"name": 1}', None) is None
    client.close()

    commit(producer, b"one")

    assert store.log.appender.counts.by_others == 1


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate and its key."""
    directory = tmp_path_factory.mktemp("tls")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "append service")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now.replace(year=2100))
        .sign(key, hashes.SHA256())
    )
    (directory / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / "key.pem").write_bytes(key.private_bytes(*encoding))
    return str(directory / "certificate.pem"), str(directory / "key.pem")


def test_writers_use_tls_where_the_service_has_a_certificate(
    connected: Callable[[], Store], certificate: tuple[str, str]
) -> None:
    with running(connected, certificate=certificate[0], private_key=certificate[1]) as service:
        store = connected()
        commit(writer(store), b"one")
        found = announced(store)
        assert found is not None
        assert found.certificate_sha256 is not None
        assert store.log.appender.counts.by_others == 1

        with greeted(service, GREETING + b"n" * NONCE_BYTES) as without_tls:
            # At most an alert of TLS.
            assert len(without_tls.recv(1_000)) < NONCE_BYTES


def test_a_service_with_another_certificate_than_announced_gets_nothing(
    connected: Callable[[], Store], certificate: tuple[str, str]
) -> None:
    with running(connected, certificate=certificate[0], private_key=certificate[1]) as service:
        store = connected()
        found = announced(store)
        assert found is not None
        client = AppendClient(store.object_store, store.environment)

        assert not client.reach(found.model_copy(update={"certificate_sha256": "0" * 64}))
        assert not client.reach(found.model_copy(update={"certificate_sha256": None}))
        assert service._connections <= 1


def test_half_a_certificate_is_refused(connected: Callable[[], Store], certificate: tuple[str, str]) -> None:
    with pytest.raises(InvalidOption, match="both"):
        AppendService(connected(), ANYWHERE, certificate=certificate[0])
    with pytest.raises(InvalidOption, match="no TLS certificate"):
        AppendService(connected(), ANYWHERE, certificate=certificate[1], private_key=certificate[1])


# Forks


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


# Options


@pytest.mark.parametrize("listen", ["9300", "host:", "host:x", "host:70000", "::1:9300", ""])
def test_an_address_without_host_and_port_is_refused(connected: Callable[[], Store], listen: str) -> None:
    with pytest.raises(InvalidOption, match="host:port"):
        AppendService(connected(), listen)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "0:9300", ":9300", "[::]:9300", "[::0]:9300"])
def test_an_address_that_names_no_host_needs_another_one_to_announce(
    connected: Callable[[], Store], listen: str
) -> None:
    with pytest.raises(InvalidOption, match="advertise"):
        AppendService(connected(), listen)


def test_a_port_in_use_is_an_error_that_names_it(connected: Callable[[], Store]) -> None:
    with (
        listening() as listener,
        pytest.raises(InvalidOption, match="Choose another address"),
        AppendService(connected(), address_of(listener)),
    ):
        pass


def test_the_advertised_address_is_announced(connected: Callable[[], Store]) -> None:
    with running(connected, advertise="writers.example.com:9300"):
        found = announced(connected())

    assert found is not None
    assert found.address == "writers.example.com:9300"


def test_the_key_is_no_unknown_file(connected: Callable[[], Store], service: AppendService) -> None:
    store = connected()

    assert not [each for each in store.admin.verify() if APPEND_KEY_PATH in each.path]
