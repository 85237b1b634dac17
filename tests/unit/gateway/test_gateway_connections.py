"""Connections of clients that send nonsense, too much, or nothing: the others do not notice."""

from __future__ import annotations

import gc
import logging
import resource
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import VERSIONS, ApiKey
from eoslog.store import Store
from tests.unit.gateway.raw_client import (
    Client,
    Running,
    batch,
    fetch,
    fetch_values,
    frame,
    produce,
    produce_values,
    running,
    values_of,
)


def versions(client: Client) -> set[int]:
    answer = client.call(ApiKey.API_VERSIONS, 3, client_software_name="tests", client_software_version="1")
    return {each.api_key for each in answer.api_keys}


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_served(gateway: Running) -> bool:
    """Return True if a new client can produce and fetch."""
    with Client(gateway.port) as client:
        (answer,) = produce(client, ("t", 1, batch(b"served")))
        return answer.error_code is ErrorCode.none and values_of(
            fetch(client, "t", answer.base_offset, partition=1).records
        ) == [(answer.base_offset, b"served")]


def test_a_client_learns_the_versions_of_all_requests(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        answer = client.call(ApiKey.API_VERSIONS, 0)

        assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
            key: (versions.start, versions.stop - 1) for key, versions in VERSIONS.items()
        }


def test_a_client_of_the_future_gets_the_versions_in_the_oldest_form(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        client.socket.sendall(struct.pack(">ihhi", 20, ApiKey.API_VERSIONS, 99, 4711) + b"\xff" * 12)

        content = client.content()
        assert struct.unpack_from(">ihi", content) == (4711, ErrorCode.unsupported_version, len(VERSIONS))
        assert len(content) == 10 + 6 * len(VERSIONS)
        assert versions(client) == set(VERSIONS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (struct.pack(">hhi", 38, 5, 1), "requests of the type 38 are not supported"),
        (struct.pack(">hhi", 999, 0, 1), "requests of the type 999 are not supported"),
        (struct.pack(">hhi", ApiKey.FETCH, 99, 1), "version 99 of FETCH is not supported"),
        (struct.pack(">hhi", ApiKey.PRODUCE, 0, 1), "version 0 of PRODUCE is not supported"),
        (struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + b"\0\0\0\x05", "MetadataRequest: "),
        (b"\0", "at least 8 bytes"),
        (frame(ApiKey.METADATA, 1, topics=None)[4:-1], "MetadataRequest: "),
    ],
)
def test_a_request_that_cannot_be_answered_ends_its_connection_only(
    store: Store, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store) as gateway, Client(gateway.port) as other:
        with Client(gateway.port) as client, caplog.at_level(logging.WARNING):
            client.socket.sendall(struct.pack(">i", len(content)) + content)
            assert client.is_closed

        assert reason in caplog.text
        assert versions(other) == set(VERSIONS)


@pytest.mark.parametrize("size", [0, -1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_frame_of_a_forbidden_size_ends_its_connection(store: Store, size: int) -> None:
    with running(store, max_frame_bytes=1 << 20) as gateway:
        with Client(gateway.port) as client:
            client.socket.sendall(struct.pack(">i", size))
            assert client.is_closed

        assert is_served(gateway)


def test_http_ends_its_connection(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert client.is_closed


def test_a_client_that_announces_a_request_and_sends_nothing_keeps_no_memory(store: Store) -> None:
    with running(store, request_bytes=2 << 20, frame_timeout_ms=60_000) as gateway:
        clients = [Client(gateway.port) for _ in range(10)]
        for client in clients:
            client.socket.sendall(struct.pack(">i", 2 << 20) + b"\0")
        time.sleep(0.1)

        assert is_served(gateway)
        for client in clients:
            client.socket.close()


def test_a_request_that_does_not_end_is_given_up(store: Store) -> None:
    content = frame(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(bytes(100_000)))))
    with running(store, frame_timeout_ms=100, request_bytes=150_000) as gateway:
        for size in (2, 10, 90_000):
            with Client(gateway.port) as client:
                client.socket.sendall(content[:size] if size > 2 else content[:5])
                assert client.is_closed

        # Its memory is free again.
        assert is_served(gateway)
        with Client(gateway.port) as client:
            client.socket.sendall(content)
            assert client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code is ErrorCode.none


def test_an_idle_connection_is_closed(store: Store) -> None:
    with running(store, max_idle_ms=50) as gateway, Client(gateway.port) as client:
        assert client.is_closed


def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten(store: Store) -> None:
    with running(store) as gateway:
        for size in (1, 4, 10, 50):
            with Client(gateway.port) as client:
                client.socket.sendall(frame(ApiKey.METADATA, 1, topics=None)[:size])

        assert is_served(gateway)


def test_the_requests_of_ended_connections_are_forgotten_at_once(store: Store) -> None:
    part = bytes(3 << 20)
    contents = [struct.pack(">i", 4 << 20) + part, struct.pack(">i", len(part)) + part]
    whole = frame(ApiKey.PRODUCE, 9, **produce_values(("missing", 0, batch(part))))
    with running(store) as gateway, Client(gateway.port) as idle:
        # The idle client's connection does not keep its last request, either.
        idle.socket.sendall(whole)
        idle.answer(ApiKey.PRODUCE, 9)
        gc.disable()
        tracemalloc.start()
        try:
            idle.socket.sendall(whole)
            idle.answer(ApiKey.PRODUCE, 9)
            for content in contents * 5:
                with Client(gateway.port) as client, suppress(ConnectionError):
                    client.socket.sendall(content)
            until(lambda: gateway.in_loop(lambda: len(gateway.gateway._connections)) == 1)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()

    assert kept < 1 << 20


def test_a_client_that_leaves_while_it_waits_for_rows_is_forgotten_at_once(store: Store) -> None:
    with running(store) as gateway:
        with Client(gateway.port) as client:
            client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=60_000))
            time.sleep(0.2)
            assert gateway.in_loop(lambda: len(gateway.gateway._connections)) == 1

        until(lambda: gateway.in_loop(lambda: len(gateway.gateway._connections)) == 0)


def test_a_client_that_does_not_read_is_disconnected_and_holds_no_others_up(store: Store) -> None:
    with running(store, frame_timeout_ms=300, response_bytes=4 << 20) as gateway:
        with Client(gateway.port) as client:
            for _ in range(8):
                produce(client, ("t", 0, batch(bytes(1_000_000))))
        slow = [Client(gateway.port) for _ in range(20)]
        for each in slow:
            each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            for _ in range(4):
                each.send(ApiKey.FETCH, 11, **fetch_values("t", 0))

        assert is_served(gateway)
        until(lambda: gateway.in_loop(lambda: len(gateway.gateway._connections)) == 0)
        assert gateway.in_loop(lambda: gateway.gateway._responses.free) == 4 << 20
        for each in slow:
            each.socket.close()


def test_more_connections_than_allowed_are_refused_until_one_ends(store: Store) -> None:
    with running(store, max_connections=2) as gateway:
        with Client(gateway.port) as first, Client(gateway.port) as second:
            assert versions(first) == versions(second) == set(VERSIONS)
            with Client(gateway.port) as third:
                assert third.is_closed
        time.sleep(0.1)

        assert is_served(gateway)


def test_a_thousand_connections_are_served(store: Store) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))
    with running(store) as gateway:
        clients = [Client(gateway.port) for _ in range(1_000)]
        for client in clients:
            client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
        for client in clients[:10]:
            client.socket.close()

        with Client(gateway.port) as producer:
            produce(producer, ("t", 0, batch(b"for all")))

        for client in clients[10:]:
            answer = client.answer(ApiKey.FETCH, 11).responses[0].partitions[0]
            assert values_of(answer.records) == [(0, b"for all")]
            client.socket.close()


def test_the_answers_of_a_connection_come_in_the_order_of_its_requests(store: Store) -> None:
    with running(store, linger_ms=20) as gateway, Client(gateway.port) as client:
        for number in range(20):
            client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"%d" % number))))
            client.send(ApiKey.METADATA, 1, topics=None)

        for number in range(20):
            (answer,) = client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses
            assert answer.base_offset == number
            assert client.answer(ApiKey.METADATA, 1).topics[0].name == "t"


def test_a_client_cannot_send_without_end_while_its_requests_wait(store: Store) -> None:
    with running(store, max_in_flight=5) as gateway, Client(gateway.port, timeout_s=2) as client:
        request = frame(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=60_000))
        sent = 0
        with suppress(TimeoutError):
            while sent < 100 << 20:
                sent += client.socket.send(request * 1_000)

        assert sent < 100 << 20

        assert is_served(gateway)


def test_requests_that_were_read_are_answered_when_the_gateway_ends(store: Store) -> None:
    with running(store, linger_ms=500) as gateway, Client(gateway.port) as client:
        client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"last"))))
        time.sleep(0.1)
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()

        (answer,) = client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
        assert client.is_closed
        stopping.join()
        assert gateway.failure is None


def test_a_client_that_disconnects_does_not_delay_the_end_of_the_gateway(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=1_000))
        time.sleep(0.1)
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()
        time.sleep(0.1)
        # The connection is reset, so the answer cannot be sent.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
        stopping.join(5)
        assert not stopping.is_alive()


def test_whatever_clients_send_the_others_are_served(store: Store) -> None:
    requests = [
        frame(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"some", b"rows")), ("t", 9, batch(bytes(300))))),
        frame(ApiKey.PRODUCE, 3, **produce_values(("t", 0, batch(b"x", compression=1)), version=3, acks=0)),
        frame(ApiKey.FETCH, 11, **fetch_values("t", 0)),
        frame(ApiKey.METADATA, 1, topics=None),
    ]
    with running(store, frame_timeout_ms=200) as gateway:

        @settings(deadline=None)
        @given(
            request=st.sampled_from(requests),
            changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
            more=st.binary(max_size=30),
        )
        def send(request: bytes, changes: list[tuple[int, int]], more: bytes) -> None:
            content = bytearray(request)
            for place, byte in changes:
                content[4 + place % (len(content) - 4)] = byte
            with Client(gateway.port) as client, suppress(ConnectionError):
                client.socket.sendall(bytes(content) + more)
                client.socket.shutdown(socket.SHUT_WR)
                while client.socket.recv(1 << 16):
                    pass

        send()
        assert is_served(gateway)
        until(lambda: gateway.in_loop(lambda: len(gateway.gateway._connections)) == 0)
        for budget in ("_requests", "_rows", "_responses"):
            left = gateway.in_loop(lambda budget=budget: vars(gateway.gateway)[budget])
            assert left.free == left.total
