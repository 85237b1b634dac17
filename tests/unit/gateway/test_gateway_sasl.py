"""Connections of clients that have to authenticate themselves."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from eoslog.errors import InvalidOption
from eoslog.gateway.addresses import Address, check_address
from eoslog.gateway.authentication import AuthenticationFailed, Identity, MechanismAnswer
from eoslog.gateway.protocol import VERSIONS, ApiKey
from eoslog.gateway.scram import write_user
from eoslog.gateway.security import Security, security
from eoslog.gateway.server import listening_socket
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.certificates import write_certificate
from tests.unit.gateway.raw_client import (
    Client,
    Running,
    batch,
    fetch_values,
    frame,
    produce,
    produce_values,
    running,
    versions_of,
)
from tests.unit.gateway.sasl_clients import handshake, log_in, message
from tests.unit.support.world import World

PASSWORD = "alice's secret"


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sasl") / "users"
    for name in ("alice", "bob"):
        write_user(path, name, PASSWORD, Environment())
    return path


@pytest.fixture(scope="session")
def scram(users: Path) -> Security:
    return security(Environment(), users=users)


def can_write(client: Client) -> bool:
    return produce(client, ("t", 0, batch(b"v")))[0].error_code is ErrorCode.none


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def strangers(gateway: Running) -> int:
    return gateway.in_loop(lambda: len(list(gateway.gateway._strangers())))  # type: ignore[no-any-return]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", versions_of(ApiKey.SASL_AUTHENTICATE))
def test_an_authenticated_client_may_do_everything(
    store: Store, scram: Security, mechanism: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(store, security=scram) as gateway, Client(gateway.port) as client:
        answer = log_in(client, "alice", PASSWORD, mechanism=mechanism, version=version)

        assert answer.error_code is ErrorCode.none
        assert can_write(client)
        assert strangers(gateway) == 0
    assert gateway.gateway.metrics().counts.strangers == 0
    assert "'alice' at ('127.0.0.1'," in caplog.text


@pytest.mark.parametrize(
    "key", [each for each in ApiKey if "SASL" not in each.name and each is not ApiKey.API_VERSIONS]
)
def test_a_stranger_gets_no_answer_to_other_requests(
    store: Store, scram: Security, key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=scram) as gateway:
        for begins in (False, True):
            with Client(gateway.port) as client:
                if begins:
                    handshake(client, "SCRAM-SHA-256")
                    message(client, b"n,,n=alice,r=nonce")
                # No field of the request is read.
                client.socket.sendall(struct.pack(">ihhi", 8, key, VERSIONS[key].start, 1))
                assert client.is_closed

    assert caplog.text.count(f"it sent a request of the type {int(key)} before it was authenticated") == 2


def test_a_stranger_learns_the_versions_of_requests(store: Store, scram: Security) -> None:
    with running(store, security=scram) as gateway, Client(gateway.port) as client:
        assert client.call(ApiKey.API_VERSIONS, 0).error_code is ErrorCode.none
        assert handshake(client, "SCRAM-SHA-256").error_code is ErrorCode.none
        assert client.call(ApiKey.API_VERSIONS, 0).error_code is ErrorCode.none


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong password"), ("carol", PASSWORD)])
def test_a_failed_authentication_ends_the_connection_after_a_while(
    store: Store, scram: Security, name: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    slow = {"failed_authentication_delay_ms": 200}
    with running(store, security=scram, **slow) as gateway, Client(gateway.port) as client:
        begin = time.monotonic()
        answer = log_in(client, name, password)
        assert time.monotonic() - begin >= 0.2
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert (answer.auth_bytes, answer.session_lifetime.total_seconds()) == (b"", 0)
        assert f"there is no user '{name}', or the password is wrong" in answer.error_message
        assert client.is_closed
    assert gateway.gateway.metrics().counts.strangers == 1

    (record,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert "its authentication failed: SCRAM-SHA-512" in record.getMessage()
    assert password not in caplog.text
    assert record.exc_info is None


def test_without_sasl_there_is_no_authentication(store: Store) -> None:
    with running(store) as gateway:
        with Client(gateway.port) as client:
            assert handshake(client, "SCRAM-SHA-256").error_code is ErrorCode.illegal_sasl_state
            assert client.is_closed
        with Client(gateway.port) as client:
            answer = message(client, b"n,,n=alice,r=nonce")
            assert answer.error_code is ErrorCode.illegal_sasl_state
            assert answer.error_message == "the gateway offers no authentication by SASL"
            assert client.is_closed


def test_requests_wait_for_the_outcome_of_the_authentication(store: Store, scram: Security) -> None:
    produced = frame(ApiKey.METADATA, 1, topics=None)
    with running(store, security=scram) as gateway, Client(gateway.port) as client:
        handshake(client, "SCRAM-SHA-256")
        client.socket.sendall(frame(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=nonce") + produced)

        assert client.answer(ApiKey.SASL_AUTHENTICATE, 2).error_code is ErrorCode.none
        assert client.is_closed


def test_a_stranger_sends_small_requests_only(store: Store, scram: Security, caplog: pytest.LogCaptureFixture) -> None:
    with running(store, security=scram) as gateway:
        with Client(gateway.port) as client:
            client.socket.sendall(struct.pack(">i", (64 << 10) + 1))
            assert client.is_closed
        with Client(gateway.port) as client:
            handshake(client, "SCRAM-SHA-256")
            assert message(client, bytes(63 << 10)).error_code is ErrorCode.sasl_authentication_failed
        with Client(gateway.port) as client:
            log_in(client, "alice", PASSWORD)
            assert produce(client, ("t", 0, batch(bytes(1 << 20))))[0].error_code is ErrorCode.none

    assert f"a request of {(64 << 10) + 1} bytes was announced, and the largest has {64 << 10}" in caplog.text


def test_an_authentication_that_takes_too_long_is_given_up(
    store: Store, scram: Security, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=scram, handshake_timeout_ms=300) as gateway, Client(gateway.port) as known:
        log_in(known, "alice", PASSWORD)
        with Client(gateway.port) as silent, Client(gateway.port) as slow:
            handshake(slow, "SCRAM-SHA-256")
            assert silent.is_closed
            assert slow.is_closed
        assert can_write(known)

    assert caplog.text.count("it was not authenticated in time") == 2


def test_strangers_keep_no_client_out(store: Store, scram: Security) -> None:
    with running(store, security=scram, max_connections=5) as gateway, ExitStack() as clients:
        with Client(gateway.port) as first:
            log_in(first, "alice", PASSWORD)
            silent = [clients.enter_context(Client(gateway.port)) for _ in range(20)]
            with Client(gateway.port) as second:
                log_in(second, "bob", PASSWORD)
                assert can_write(first)
                assert can_write(second)
        assert all(each.is_closed for each in silent[:10])


def test_strangers_take_no_memory_from_others(store: Store, scram: Security) -> None:
    # Each of them has sent all but a byte of a request that is as large as it may be.
    begin = struct.pack(">ihhi", 64 << 10, ApiKey.SASL_AUTHENTICATE, 2, 1) + bytes((64 << 10) - 9)
    with running(store, security=scram, request_bytes=1 << 20) as gateway, ExitStack() as clients:
        for _ in range(200):
            clients.enter_context(Client(gateway.port)).socket.sendall(begin)
        until(lambda: strangers(gateway) == 200)

        begun = time.monotonic()
        known = clients.enter_context(Client(gateway.port))
        log_in(known, "alice", PASSWORD)
        assert produce(known, ("t", 0, batch(bytes(1 << 20))))[0].error_code is ErrorCode.none
        assert time.monotonic() - begun < 5
        assert strangers(gateway) == 200


def test_a_client_authenticates_again_on_the_same_connection(store: Store, scram: Security) -> None:
    with running(store, security=scram) as gateway, Client(gateway.port) as client:
        for _ in range(3):
            assert log_in(client, "alice", PASSWORD).error_code is ErrorCode.none
            assert can_write(client)
        answer = log_in(client, "bob", PASSWORD)
        assert answer.error_message == "this connection belongs to 'alice'"
        assert client.is_closed


class Slow:
    """A mechanism that waits for another machine."""

    def __init__(self, answers: threading.Event) -> None:
        self._answers = answers

    def answer(self, content: bytes) -> MechanismAnswer:
        self._answers.wait()
        raise AuthenticationFailed("nobody")


def test_clients_of_one_mechanism_do_not_wait_for_those_of_another_one(store: Store, scram: Security) -> None:
    answers = threading.Event()
    both = Security(mechanisms={**scram.mechanisms, "SLOW": lambda: Slow(answers)})
    with running(store, security=both) as gateway, ExitStack() as clients:
        clients.callback(answers.set)
        for _ in range(20):
            slow = clients.enter_context(Client(gateway.port))
            handshake(slow, "SLOW")
            slow.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"content")

        begin = time.monotonic()
        with Client(gateway.port) as client:
            log_in(client, "alice", PASSWORD)
            assert can_write(client)
        assert time.monotonic() - begin < 5


class Brief:
    """A mechanism that proves an identity for a short time."""

    def answer(self, content: bytes) -> MechanismAnswer:
        if content != b"alice":
            raise AuthenticationFailed("only alice")
        return MechanismAnswer(identity=Identity("alice", 400))


def test_a_session_that_has_ended_ends_the_connection(
    world: World, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=Security(mechanisms={"BRIEF": Brief})) as gateway, Client(gateway.port) as client:
        for _ in range(3):
            assert handshake(client, "BRIEF").error_code is ErrorCode.none
            assert message(client, b"alice").session_lifetime.total_seconds() == 0.4
            assert can_write(client)
            # Also a client whose session has ended may authenticate again.
            world.pass_time(400)
        client.send(ApiKey.METADATA, 1, topics=None)
        assert client.is_closed

    assert "'alice' at (" in caplog.text
    assert "its session has ended, and it did not authenticate again" in caplog.text


@pytest.mark.parametrize("mechanism", ["PLAIN", "BRIEF"])
def test_requests_right_behind_a_failed_authentication_do_nothing(store: Store, mechanism: str) -> None:
    failing = frame(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
    failing += frame(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"bob") if mechanism == "BRIEF" else b""
    produced = frame(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"v"))))
    with running(store, security=Security(mechanisms={"BRIEF": Brief})) as gateway:
        for _ in range(10):
            with Client(gateway.port) as client:
                handshake(client, "BRIEF")
                message(client, b"alice")
                client.socket.sendall(failing + produced)
                with suppress(ConnectionError):
                    while True:
                        client.content()
    assert store.scan("t").to_table().num_rows == 0


def test_a_request_that_waits_until_its_session_has_ended_is_refused(
    world: World, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = frame(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=20_000))
    produced = frame(ApiKey.PRODUCE, 9, **produce_values(("t", 1, batch(b"v"))))
    with running(store, security=Security(mechanisms={"BRIEF": Brief})) as gateway, Client(gateway.port) as client:
        handshake(client, "BRIEF")
        message(client, b"alice")
        client.socket.sendall(waiting + produced)
        time.sleep(0.2)
        world.pass_time(400)
        with Client(gateway.port) as other:
            handshake(other, "BRIEF")
            message(other, b"alice")
            assert can_write(other)
        client.content()
        assert client.is_closed
    assert store.scan("t").to_table().num_rows == 1
    assert "its session has ended" in caplog.text


def test_tls_and_sasl_go_together(store: Store, users: Path, tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    both = security(Environment(), tls_certificate=files.certificate, tls_key=files.key, users=users)
    with running(store, security=both) as gateway, Client(gateway.port, tls=files.client_context()) as client:
        assert strangers(gateway) == 1
        assert log_in(client, "alice", PASSWORD).error_code is ErrorCode.none
        assert can_write(client)
        assert strangers(gateway) == 0
    assert gateway.gateway.metrics().counts.strangers == 0
    assert both.protocol == "SASL_SSL"


def test_whatever_strangers_send_ends_without_a_traceback(
    store: Store, scram: Security, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=scram, failed_authentication_delay_ms=0) as gateway:

        @settings(deadline=None)
        @given(
            begins=st.integers(0, 2),
            content=st.binary(max_size=60) | st.binary(max_size=40).map(lambda more: b"n,,n=alice,r=" + more),
        )
        def send(begins: int, content: bytes) -> None:
            with Client(gateway.port) as client:
                if begins:
                    handshake(client, "SCRAM-SHA-256")
                if begins > 1:
                    message(client, b"n,,n=alice,r=nonce")
                answer = message(client, content)
                if answer.error_code is not ErrorCode.none:
                    expected = ErrorCode.sasl_authentication_failed if begins else ErrorCode.illegal_sasl_state
                    assert answer.error_code is expected
                    assert client.is_closed

        send()
        with Client(gateway.port) as client, suppress(ConnectionError):
            client.socket.sendall(b"\xff" * 100)
            client.socket.shutdown(socket.SHUT_WR)
        with Client(gateway.port) as client:
            assert log_in(client, "alice", PASSWORD).error_code is ErrorCode.none
    assert not any(each.exc_info for each in caplog.records)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com", "10.0.0.1"])
@pytest.mark.parametrize(("has_tls", "has_sasl"), [(False, False), (True, False), (False, True), (True, True)])
def test_other_machines_connect_only_with_tls_and_sasl(host: str, has_tls: bool, has_sasl: bool) -> None:
    address = Address(host, 9092)
    if has_tls and has_sasl:
        check_address(address, has_tls=True, has_sasl=True)
        return
    with pytest.raises(InvalidOption, match="without TLS and SASL") as error:
        check_address(address, has_tls=has_tls, has_sasl=has_sasl)
    assert ("--tls-certificate" in str(error.value)) is not has_tls
    assert ("--users" in str(error.value)) is not has_sasl


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
@pytest.mark.parametrize(("has_tls", "has_sasl"), [(False, False), (True, False), (False, True)])
def test_this_machine_needs_neither(host: str, has_tls: bool, has_sasl: bool) -> None:
    check_address(Address(host, 9092), has_tls=has_tls, has_sasl=has_sasl)


def test_a_name_of_this_machine_that_leads_to_an_open_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    original = socket.create_server
    bound: list[socket.socket] = []

    def create_server(address: tuple[str, int], **more: Any) -> socket.socket:
        assert address == ("localhost", 0)
        bound.append(original(("0.0.0.0", 0), **more))
        return bound[0]

    monkeypatch.setattr(socket, "create_server", create_server)
    with pytest.raises(InvalidOption, match=r"cannot listen on '0\.0\.0\.0' without TLS and SASL"):
        listening_socket(Address("localhost", 0))
    assert bound[0].fileno() == -1
