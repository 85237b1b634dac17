"""The append service answers nobody without the store's key. Its connections have TLS on request."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from eoslog.errors import InvalidOption
from eoslog.log.append_client import AppendClient
from eoslog.maintenance.append_service import AppendService
from eoslog.storage.append_channel import GREETING, NONCE_BYTES, PROOF_BYTES
from eoslog.store import Store
from tests.certificates import write_certificate
from tests.unit.maintenance.append_services import (
    ANYWHERE,
    address_of,
    announce,
    announced,
    append_key,
    commit,
    greeted,
    listening,
    records,
    running,
    values,
    writer,
)


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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate and its key."""
    files = write_certificate(tmp_path_factory.mktemp("tls"))
    return str(files.certificate), str(files.key)


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
    with pytest.raises(InvalidOption, match="are not a TLS certificate"):
        AppendService(connected(), ANYWHERE, certificate=certificate[1], private_key=certificate[1])
