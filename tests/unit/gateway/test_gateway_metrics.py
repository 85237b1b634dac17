"""What a gateway counts, and how Prometheus sees it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry, generate_latest

from eoslog.gateway.error_codes import first_error
from eoslog.gateway.gateway_health import GatewayHealth
from eoslog.gateway.protocol import VERSIONS, ApiKey, api
from eoslog.prometheus import GatewayCollector
from eoslog.store import Store
from tests.pages import REPOSITORY, table_rows
from tests.unit.gateway.group_clients import GroupClient
from tests.unit.gateway.raw_client import (
    Client,
    Producer,
    Running,
    Transactional,
    batch,
    fetch,
    fetch_values,
    frame,
    produce,
    produce_values,
    running,
)
from tests.unit.support.world import World
from tests.unit.test_prometheus import samples

PAGE = REPOSITORY / "docs/gateway.md"
_UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    with running(store, group_initial_rebalance_delay_ms=0) as found:
        yield found


@pytest.fixture
def client(gateway: Running) -> Iterator[Client]:
    with Client(gateway.port) as client:
        yield client


def exposed(store: Store, gateway: Running) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The metrics of a gateway, as Prometheus reads them."""
    registry = CollectorRegistry()
    health = gateway.in_loop(lambda: GatewayHealth(store, gateway.gateway))
    registry.register(GatewayCollector(store, gateway.gateway, health))
    return samples(generate_latest(registry).decode())


class Figures:
    """Reads the metrics of a gateway, with short names."""

    def __init__(self, store: Store, gateway: Running) -> None:
        self._found = exposed(store, gateway)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._found.get((f"eoslog_gateway_{name}", frozenset(labels.items())))


def test_requests_are_counted_by_type_and_by_the_first_error_of_their_answer(
    store: Store, gateway: Running, client: Client, world: World
) -> None:
    for topics in (("t", "t"), ("t", "missing")):
        produce(client, *((topic, 0, batch(b"v")) for topic in topics))
    fetch(client, "missing", 0)
    GroupClient(client).heartbeat()

    found = Figures(store, gateway)

    assert found("requests_total", api="produce", outcome="NONE") == 1
    assert found("requests_total", api="produce", outcome=_UNKNOWN) == 1
    assert found("requests_total", api="fetch", outcome=_UNKNOWN) == 1
    assert found("requests_total", api="heartbeat", outcome="UNKNOWN_MEMBER_ID") == 1
    assert found("request_seconds_count", api="produce") == 2
    assert found("request_seconds_count", api="metadata") is None


def test_a_refused_request_without_an_answer_counts_and_one_that_its_client_gave_up_does_not(
    store: Store, gateway: Running
) -> None:
    with Client(gateway.port) as client:
        client.send(ApiKey.PRODUCE, 9, **produce_values(("missing", 0, batch(b"v")), acks=0))
        assert client.is_closed
    with Client(gateway.port) as client:
        client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
    with Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"v")))

        found = Figures(store, gateway)

    assert found("requests_total", api="produce", outcome=_UNKNOWN) == 1
    assert found("requests_total", api="produce", outcome="NONE") == 1
    assert found("request_seconds_count", api="fetch") is None


def test_the_time_of_a_request_begins_when_it_is_read(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
        while not gateway.in_loop(lambda: gateway.gateway._follower._waiters):
            pass
        world.pass_time(3_000)
        with Client(gateway.port) as other:
            produce(other, ("t", 0, batch(b"v")))
        client.answer(ApiKey.FETCH, 11)

        found = Figures(store, gateway)

    assert (found("request_seconds_sum", api="fetch") or 0) >= 3
    assert found("request_seconds_bucket", api="fetch", le="2.5") == 0
    assert found("request_seconds_bucket", api="produce", le="2.5") == 1


def test_rows_batches_and_bytes_count_in_both_directions(store: Store, gateway: Running, client: Client) -> None:
    values = produce_values(("t", 0, batch(b"a", b"b", b"c")), ("t", 1, batch(b"d")))
    client.send(ApiKey.PRODUCE, 9, **values)
    sent = len(frame(ApiKey.PRODUCE, 9, **values))
    received = 4 + len(client.content())
    values = fetch_values("t", 0)
    client.send(ApiKey.FETCH, 11, **values)
    sent += len(frame(ApiKey.FETCH, 11, **values))
    received += 4 + len(client.content())

    found = Figures(store, gateway)

    assert (found("rows_in_total"), found("batches_in_total"), found("appends_total")) == (4, 2, 1)
    assert (found("rows_out_total"), found("batches_out_total")) == (3, 1)
    assert (found("bytes_in_total"), found("bytes_out_total")) == (sent, received)
    assert [found("batch_seconds_count", step=step) for step in ("wait", "upload", "append")] == [2, 1, 1]


def test_repeated_and_refused_batches_and_markers_add_no_rows(store: Store, gateway: Running, client: Client) -> None:
    transactional = Transactional(client)
    transactional.init()
    transactional.add(0)
    assert transactional.send(b"a", b"b").base_offset == 0
    transactional.sequences[0] = 0
    assert transactional.send(b"a", b"b").base_offset == 0
    transactional.sequences[0] = 7
    assert transactional.send(b"z").error_code is ErrorCode.out_of_order_sequence_number
    transactional.end(commit=False)
    fetch(client, "t", 0, isolation=1)

    found = Figures(store, gateway)

    assert (found("rows_in_total"), found("batches_in_total"), found("appends_total")) == (2, 1, 1)
    assert (found("rows_out_total"), found("batches_out_total")) == (0, 1)
    assert found("requests_total", api="produce", outcome="OUT_OF_ORDER_SEQUENCE_NUMBER") == 1


def test_connections_that_were_refused_or_sent_no_request_count(store: Store) -> None:
    with running(store, max_connections=1) as gateway:
        with Client(gateway.port) as client:
            client.call(ApiKey.API_VERSIONS, 0)
            with Client(gateway.port) as other:
                assert other.is_closed
            open_now = Figures(store, gateway)
            client.socket.sendall(struct.pack(">ihhi", 8, 99, 0, 1))
            assert client.is_closed
        found = Figures(store, gateway)

    assert (open_now("connections"), open_now("connections_limit")) == (1, 1)
    assert (open_now("refused_connections_total"), open_now("malformed_requests_total")) == (1, 0)
    assert found("malformed_requests_total") == 1


def test_groups_their_members_and_their_generations_are_shown(store: Store, gateway: Running, client: Client) -> None:
    member = GroupClient(client)
    member.join()
    member.sync({member.member_id: b"all"})
    GroupClient(client, "other").join()

    found = Figures(store, gateway)
    member.leave()
    after = Figures(store, gateway)

    assert (found("groups"), found("group_members"), found("rebalances_total")) == (2, 2, 2)
    assert (found("memory_bytes", use="groups") or 0) > 10_000
    assert after("group_members") == 1


def test_overdue_transactions_that_the_gateway_aborts_count(
    store: Store, gateway: Running, client: Client, world: World
) -> None:
    transactional = Transactional(client)
    transactional.init(timeout_ms=1_000)
    transactional.add(0)
    transactional.send(b"v")
    world.pass_time(2_000)

    fetch(client, "t", 0, isolation=1, max_wait_ms=2_000)

    assert Figures(store, gateway)("aborted_transactions_total") == 1


def test_lookups_of_the_cache_and_its_memory_are_shown(store: Store, gateway: Running, client: Client) -> None:
    produce(client, ("t", 0, batch(b"v" * 5_000)))
    fetch(client, "t", 0)
    with store.producer() as producer:
        producer.send("t", b"not through the gateway", partition=1)
    fetch(client, "t", 0, partition=1, max_wait_ms=5_000)

    found = Figures(store, gateway)

    assert found("cache_lookups_total", outcome="hit") == 1
    assert found("cache_lookups_total", outcome="miss") == 1
    assert 5_000 < (found("memory_bytes", use="cache") or 0) < (found("memory_limit_bytes", use="cache") or 0)
    assert [found("memory_bytes", use=use) for use in ("requests", "rows", "responses")] == [0, 0, 0]


def test_memory_that_requests_hold_is_in_use_until_they_are_answered(store: Store, gateway: Running) -> None:
    with Client(gateway.port) as client:
        client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
        while not gateway.in_loop(lambda: gateway.gateway._follower._waiters):
            pass

        found = Figures(store, gateway)

    size = len(frame(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))) - 4
    assert found("memory_bytes", use="requests") == size
    assert found("waiting_batches") == 0


def test_labels_have_few_values_and_none_of_a_client(store: Store, gateway: Running, client: Client) -> None:
    produce(client, ("t", 0, batch(b"v", producer=Producer(7, 0, 0))), ("secret-topic", 0, batch(b"v")))
    GroupClient(client, "secret-group").join()

    found = exposed(store, gateway)

    apis = {key.name.lower() for key in ApiKey}
    outcomes = {code.name.upper() for code in ErrorCode} | {"hit", "miss"}
    labels = {label for name, labels in found if name.startswith("eoslog_gateway_") for label in labels}
    assert {value for label, value in labels if label == "api"} <= apis
    assert {value for label, value in labels if label == "outcome"} <= outcomes
    assert {label for label, _ in labels} == {"api", "outcome", "le", "step", "use"}
    assert not any("secret" in value for _, value in labels)


def test_the_page_lists_all_metrics(store: Store, gateway: Running, client: Client) -> None:
    produce(client, ("t", 0, batch(b"v")))
    registry = CollectorRegistry()
    registry.register(
        GatewayCollector(store, gateway.gateway, gateway.in_loop(lambda: GatewayHealth(store, gateway.gateway)))
    )
    shown = {
        (
            family.name + "_total" * (family.type == "counter"),
            *sorted(family.samples[0].labels.keys() - {"store", "le"}),
        )
        for family in registry.collect()
        if family.name.startswith("eoslog_gateway_")
    }

    names = re.findall(r"`([a-z_]+)(?:{([a-z, ]+)})?`", " ".join(row[0] for row in table_rows(PAGE, "metrics")))
    assert sorted((f"eoslog_gateway_{name}", *filter(None, labels.split(", "))) for name, labels in names) == sorted(
        shown
    )


def test_the_state_of_the_store_is_not_shown_by_each_gateway(store: Store, gateway: Running) -> None:
    names = {name for name, _ in exposed(store, gateway)}

    assert {"eoslog_up", "eoslog_requests_total", "eoslog_request_seconds_bucket", "eoslog_appends_total"} <= names
    assert names.isdisjoint({"eoslog_log_slot", "eoslog_end_offset", "eoslog_consumer_lag", "eoslog_topic_bytes"})


def with_error(kind: Any, code: ErrorCode) -> Iterator[Any]:
    """Answers of a class without an error, except for one field: each field of the class and of its parts."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        if hints[field.name] is ErrorCode:
            yield blank(kind, **{field.name: code})
            continue
        for part in filter(is_dataclass, get_args(hints[field.name])):
            for each in with_error(part, code):
                yield blank(kind, **{field.name: (each,)})


def blank(kind: Any, **values: Any) -> Any:
    """An object of a class whose other fields have the value None, or no error."""
    found = object.__new__(kind)
    hints = get_type_hints(kind)
    for field in fields(kind):
        default = ErrorCode.none if hints[field.name] is ErrorCode else None
        object.__setattr__(found, field.name, values.get(field.name, default))
    return found


@pytest.mark.parametrize("key", ApiKey)
def test_an_error_is_found_wherever_an_answer_has_it(key: ApiKey) -> None:
    for version in VERSIONS[key]:
        kind = load_response_schema(key, version)
        broken = list(with_error(kind, ErrorCode.request_timed_out))

        assert {first_error(each) for each in broken} == {ErrorCode.request_timed_out}
        assert first_error(blank(kind)) is ErrorCode.none
        assert api(key, version).name == key.name.lower()
