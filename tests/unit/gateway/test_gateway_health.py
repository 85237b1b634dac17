"""When a gateway counts as alive, and when as ready for clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway import gateway_health
from eoslog.gateway.gateway_health import GatewayHealth
from eoslog.gateway.server import Phase
from eoslog.prometheus import serve_gateway
from eoslog.store import Store
from tests.unit.gateway.raw_client import Client, Running, Transactional, running
from tests.unit.support.held import LONGEST_WAIT_S, held, holding_store
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import World, faulty
from tests.unit.test_prometheus import fetch, value


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    with running(store) as found:
        yield found


def served(store: Store, gateway: Running) -> int:
    """Serve the health of a gateway over HTTP, and return the port."""
    health = gateway.in_loop(lambda: GatewayHealth(store, gateway.gateway))
    return serve_gateway(store, "127.0.0.1", 0, gateway.gateway, health)


def test_a_gateway_that_serves_is_alive_and_ready(store: Store, gateway: Running) -> None:
    port = served(store, gateway)

    assert fetch(port, "/livez") == (200, "alive\n")
    assert fetch(port, "/readyz") == (200, "ready\n")
    text = fetch(port, "/metrics")[1]
    assert (value(text, "eoslog_up"), value(text, "eoslog_gateway_ready")) == (1, 1)


def test_a_gateway_whose_event_loop_is_stuck_is_not_alive(
    store: Store, gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_health, "_LOOP_PATIENCE_S", 0.05)
    port = served(store, gateway)
    may_go_on = threading.Event()
    gateway._loop.call_soon_threadsafe(may_go_on.wait, LONGEST_WAIT_S)

    stuck = fetch(port, "/livez")
    may_go_on.set()
    gateway.in_loop(lambda: None)

    assert stuck == (503, "not alive: the event loop has not answered for 0 s\n")
    assert fetch(port, "/livez")[0] == 200


def test_a_gateway_that_has_ended_is_neither_alive_nor_ready(store: Store) -> None:
    with running(store) as gateway:
        port = served(store, gateway)

    assert fetch(port, "/livez") == (503, "not alive: the event loop has ended\n")
    assert fetch(port, "/readyz") == (503, "not ready: the gateway is ending\n")


def test_a_gateway_is_not_ready_before_it_serves(store: Store, gateway: Running) -> None:
    port = served(store, gateway)
    gateway.gateway.phase = Phase.STARTING

    assert fetch(port, "/readyz") == (503, "not ready: the gateway is starting\n")


def test_a_gateway_that_ends_is_not_ready_while_it_answers_its_last_requests(store: Store) -> None:
    is_held, may_go_on = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        assert may_go_on.wait(LONGEST_WAIT_S)

    with running(store) as gateway, Client(gateway.port) as client:
        port = served(store, gateway)
        transactional = Transactional(client)
        transactional.init()
        asleep_at(store, "gateway.transaction.added", hold)
        with ThreadPoolExecutor(1) as threads:
            adding = threads.submit(transactional.add, 0)
            assert is_held.wait(LONGEST_WAIT_S)
            gateway._loop.call_soon_threadsafe(gateway._stop.set)
            while fetch(port, "/readyz")[0] == 200:
                assert not adding.done()
            found = fetch(port, "/readyz"), fetch(port, "/livez")
            was_answered = adding.done()
            may_go_on.set()

            assert adding.result(LONGEST_WAIT_S) == {0: ErrorCode.none}
    assert found == ((503, "not ready: the gateway is ending\n"), (200, "alive\n"))
    assert not was_answered


def test_a_store_that_is_silent_for_a_while_makes_the_gateway_unready(
    store: Store, gateway: Running, world: World
) -> None:
    port = served(store, gateway)
    faulty(store).go_down()

    world.pass_time(10_000)
    assert fetch(port, "/readyz")[0] == 200
    world.pass_time(10_000)
    status, text = fetch(port, "/readyz")
    metrics = fetch(port, "/metrics")[1]

    assert status == 503
    assert text.startswith("not ready: the store has not answered for ")
    assert "no answer" in text
    assert (value(metrics, "eoslog_up"), value(metrics, "eoslog_gateway_ready")) == (0, 0)
    assert fetch(port, "/livez")[0] == 200
    faulty(store).heal()
    assert fetch(port, "/readyz") == (200, "ready\n")


def test_the_text_of_an_unknown_error_is_not_shown(
    store: Store, gateway: Running, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(function: Any, **options: Any) -> Any:
        raise KeyError("a secret")

    port = served(store, gateway)
    monkeypatch.setattr(store, "read", fail)
    world.pass_time(16_000)

    assert fetch(port, "/readyz") == (503, "not ready: the store has not answered for 16 s: KeyError\n")


def test_probes_of_a_store_that_hangs_end_soon_and_send_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_health, "_STORE_PATIENCE_S", 0.05)
    monkeypatch.setattr(gateway_health, "_LONGEST_SILENCE_MS", 0)
    store = holding_store()
    store.admin.create_topic("t")
    with running(store) as gateway:
        health = gateway.in_loop(lambda: GatewayHealth(store, gateway.gateway))
        with held(store, lambda: health.silence) as silence:
            before = store.requests["GET"]
            found = [health.silence for _ in range(5)]

            assert silence.result(LONGEST_WAIT_S)
            assert all(each.startswith("the store has not answered for ") for each in found)
            assert store.requests["GET"] == before
        monkeypatch.setattr(gateway_health, "_LONGEST_SILENCE_MS", 15_000)
        assert health.silence == ""
