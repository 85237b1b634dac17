"""Several gateways in front of one store: clients see them as the brokers of one cluster."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway import discovery, group_coordinator, known_topics, live_gateways
from eoslog.gateway.addresses import Address
from eoslog.gateway.live_gateways import GatewayDirectory, GatewayRecord, brokers_of, decode_gateway
from eoslog.gateway.protocol import ApiKey
from eoslog.session.heartbeats import host_name
from eoslog.state.groups import EMPTY_GROUP
from eoslog.store import Store
from eoslog.verification.findings import Kind
from tests.unit.gateway.group_clients import GroupClient
from tests.unit.gateway.raw_client import Client, Running, batch, fetch, fetch_values, part, produce, running, values_of
from tests.unit.support.paused_processes import Died, asleep_at, die
from tests.unit.support.world import SLOTS, World, faulty

NONE = ErrorCode.none
PARTITIONS = 60
DIRECTORY = "__gateways/"
NAME = "0123456789abcdef" * 2
_PATIENCE_S = 20
Start = Callable[..., Running]


@pytest.fixture(autouse=True)
def _always_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways read the list of live gateways for each request that needs it."""
    monkeypatch.setattr(live_gateways, "_PERIOD_MS", 0)


@pytest.fixture
def start(store: Store, world: World) -> Iterator[Start]:
    """Return a function that starts another gateway, in a process of its own."""
    with ExitStack() as gateways:

        def begin(store: Store | None = None, **settings: Any) -> Running:
            settings = {"group_initial_rebalance_delay_ms": 0} | settings
            return gateways.enter_context(running(store or world.process(), **settings))

        yield begin


@pytest.fixture
def connect() -> Iterator[Callable[[Running], Client]]:
    with ExitStack() as clients:
        yield lambda gateway: clients.enter_context(Client(gateway.port))


def wait_until(is_reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.01)


METADATA = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def metadata(client: Client, topic: str = "t") -> Any:
    topics = (part(ApiKey.METADATA, 8, "MetadataRequestTopic", name=topic),)
    return client.call(ApiKey.METADATA, 8, topics=topics, **METADATA)


def brokers(client: Client) -> list[tuple[int, int]]:
    """Return the id and the port of each broker."""
    return [(each.node_id, each.port) for each in metadata(client).brokers]


def named(*gateways: Running) -> list[tuple[int, int]]:
    return sorted(((each.node_id, each.port) for each in gateways), key=lambda each: f"127.0.0.1:{each[1]}")


def leaders(client: Client, topic: str) -> list[int]:
    (found,) = metadata(client, topic).topics
    assert all(each.replica_nodes == each.isr_nodes == (each.leader_id,) for each in found.partitions)
    return [each.leader_id for each in found.partitions]


def coordinators(client: Client, *keys: str, kind: int = 0) -> list[Any]:
    return list(client.call(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=keys).coordinators)


def objects(store: Store) -> set[str]:
    return {info.path.removeprefix(DIRECTORY) for info in store.object_store.list(DIRECTORY)}


def put(store: Store, name: str, content: object) -> None:
    store.object_store.put(DIRECTORY + name, content if isinstance(content, bytes) else json.dumps(content).encode())


def record(**values: Any) -> GatewayRecord:
    return GatewayRecord(**{"address": "127.0.0.1:1", "host": host_name(), "session_timeout_ms": 15_000} | values)


def members(store: Store, group_id: str = "g") -> set[str]:
    return set(store.read(lambda state, slot: state.groups.get(group_id, EMPTY_GROUP)).members)


# Brokers


def test_all_gateways_tell_the_same_brokers_and_leaders(store: Store, start: Start, connect: Any) -> None:
    store.admin.create_topic("many", partitions=PARTITIONS)
    gateways = [start(rack=each) for each in ("a", "b", None)]
    clients = [connect(each) for each in gateways]

    assert {tuple(brokers(each)) for each in clients} == {tuple(named(*gateways))}
    racks = {each.node_id: each.rack for each in metadata(clients[0]).brokers}
    assert racks == {each.node_id: rack for each, rack in zip(gateways, ("a", "b", None), strict=True)}
    found = {tuple(leaders(each, "many")) for each in clients}
    assert len(found) == 1
    shares = Counter(found.pop())
    assert shares.keys() == racks.keys()
    assert min(shares.values()) > PARTITIONS // 10
    for gateway, client in zip(gateways, clients, strict=True):
        answer = client.call(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert {each.broker_id: each.rack for each in answer.brokers} == racks
        assert answer.controller_id == gateway.node_id


def test_only_the_partitions_of_a_gateway_that_ends_move(
    store: Store, world: World, start: Start, connect: Any
) -> None:
    store.admin.create_topic("many", partitions=PARTITIONS)
    client = connect(start())
    start()
    with running(world.process()) as ending:
        before = leaders(client, "many")
    after = leaders(client, "many")
    assert ending.node_id in before
    assert ending.node_id not in after
    assert [new for old, new in zip(before, after, strict=True) if old != ending.node_id] == [
        old for old in before if old != ending.node_id
    ]


def test_any_gateway_serves_any_partition(store: Store, start: Start, connect: Any) -> None:
    clients = [connect(start()) for _ in range(2)]
    for number, client in enumerate(clients):
        assert [produce(client, ("t", index, batch(b"v")))[0].error_code for index in (0, 1)] == [NONE, NONE]
        for other in clients:
            assert [len(values_of(fetch(other, "t", number, partition=index).records)) for index in (0, 1)] == [1, 1]


def test_ids_of_brokers_come_from_their_addresses() -> None:
    found = {each.address.port: each.node_id for each in brokers_of(record(address=f"[::1]:{n}") for n in range(200))}
    assert (found[0], found[199]) == (467_783_494, 737_526_361)
    assert len(set(found.values())) == 200
    # Java's client adds 2^31 - 1 - id for a coordinator.
    assert all(0 < each < 1 << 30 for each in found.values())


def test_an_address_whose_id_another_one_has_is_no_broker(
    monkeypatch: pytest.MonkeyPatch, start: Start, connect: Any
) -> None:
    monkeypatch.setattr(live_gateways, "_LARGEST_ID", 1)
    gateways = [start() for _ in range(3)]
    found = {tuple(brokers(connect(each))) for each in gateways}
    assert found == {tuple(named(*gateways)[:1])}
    (transaction,) = coordinators(connect(gateways[2]), "tx", kind=1)
    assert transaction.port == named(*gateways)[0][1]


def test_gateways_with_one_address_are_one_broker(start: Start, connect: Any) -> None:
    shared = Address("kafka.example", 9092)
    client = connect(start(advertised=shared))
    start(advertised=shared)
    assert [(each.host, each.port) for each in metadata(client).brokers] == [("kafka.example", 9092)]


@pytest.mark.parametrize(
    ("other", "is_listed"),
    [
        ({"address": "127.0.0.1:9093"}, True),
        ({"address": "localhost:9093"}, True),
        ({"address": "127.0.0.1:9093", "host": "another"}, False),
        ({"address": "[::1]:9093", "host": "another"}, False),
        ({"address": "192.0.2.1:9093"}, False),
        ({"address": "127.0.0.1:9093", "protocol": "SASL_SSL"}, False),
    ],
)
def test_clients_of_a_loopback_address_get_brokers_of_their_host(
    store: Store, start: Start, connect: Any, other: dict[str, Any], is_listed: bool
) -> None:
    client = connect(start())
    put(store, NAME, record(**other).model_dump())
    assert len(brokers(client)) == 1 + is_listed


@pytest.mark.parametrize(("address", "is_listed"), [("192.0.2.2:9092", True), ("127.0.0.1:9092", False)])
def test_clients_of_other_machines_get_no_loopback_address(
    store: Store, start: Start, connect: Any, address: str, is_listed: bool
) -> None:
    client = connect(start(advertised=Address("192.0.2.1", 9092)))
    put(store, NAME, record(address=address, host="another").model_dump())
    assert len(metadata(client).brokers) == 1 + is_listed


INVALID: Sequence[object] = (
    b"",
    b"\xff",
    b"[" * 100_000,
    [],
    {},
    record().model_dump() | {"address": "127.0.0.1"},
    record().model_dump() | {"address": "127.0.0.1:65536"},
    record().model_dump() | {"address": "[127.0.0.1]:x"},
    record().model_dump() | {"address": "a b:1"},
    record().model_dump() | {"host": "h" * 256},
    record().model_dump() | {"rack": 7},
    record().model_dump() | {"rack": "r" * 256},
    record().model_dump() | {"session_timeout_ms": 1 << 60},
    record().model_dump() | {"session_timeout_ms": "15000"},
    record().model_dump() | {"protocol": None},
)


@pytest.mark.parametrize("content", INVALID)
def test_an_invalid_object_is_no_gateway(
    store: Store, start: Start, connect: Any, content: object, world: World
) -> None:
    client = connect(start())
    put(store, NAME, content)
    assert len(brokers(client)) == 1
    world.pass_time(60_000)
    assert len(brokers(client)) == 1
    assert NAME in objects(store)
    world.pass_time(3_600_000)
    assert len(brokers(client)) == 1
    assert NAME not in objects(store)


def test_fields_of_later_versions_are_ignored(store: Store, start: Start, connect: Any) -> None:
    assert decode_gateway(json.dumps(record().model_dump() | {"new": 1}).encode()) == record()


def test_objects_with_other_names_are_left_alone(store: Store, start: Start, connect: Any, world: World) -> None:
    client = connect(start())
    put(store, "readme", record().model_dump())
    world.pass_time(3_600_000)
    assert len(brokers(client)) == 1
    assert "readme" in objects(store)


def test_a_gateway_reads_a_bounded_number_of_objects(
    store: Store, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_gateways, "_MOST_GATEWAYS", 3)
    for number in range(5):
        put(store, f"{number:032x}", record(address=f"127.0.0.1:{1 + number}").model_dump())
    assert len(brokers(connect(start()))) <= 4


def test_a_verification_knows_the_objects_of_gateways(store: Store, start: Start) -> None:
    start()
    assert len(objects(store)) == 1
    assert list(store.admin.verify()) == []
    put(store, "readme", b"")
    assert [each.kind for each in store.admin.verify()] == [Kind.FILES_UNKNOWN]


# Life of a gateway


def test_a_silent_gateway_is_no_broker(
    store: Store, world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(start())
    put(store, NAME, record().model_dump())
    assert len(brokers(client)) == 2
    world.pass_time(14_000)
    assert len(brokers(client)) == 2
    world.pass_time(2_000)
    assert len(brokers(client)) == 1
    # The gateway is not told of its own silence: it answers, so it is alive.
    assert len(objects(store)) == 1
    assert NAME not in objects(store)


def test_a_gateway_that_goes_on_after_its_silence_is_a_broker_again(
    store: Store, world: World, start: Start, connect: Any
) -> None:
    client = connect(start())
    put(store, NAME, record().model_dump())
    world.pass_time(16_000)
    assert len(brokers(client)) == 1
    put(store, NAME, record().model_dump())
    assert len(brokers(client)) == 2


def test_a_gateway_that_was_paused_deletes_no_objects_of_live_ones(store: Store, world: World) -> None:
    directory = GatewayDirectory(store.object_store)
    listed = store.object_store.list

    def paused(prefix: str = "", **options: Any) -> Any:
        yield from listed(prefix, **options)
        world.pass_time(60_000)
        # Other threads learn of the time.
        for _ in range(3):
            store.object_store.put("other", b"")

    store.object_store.list = paused  # type: ignore[method-assign]
    for _ in range(2):
        put(store, NAME, record().model_dump())
        assert directory.live() == [record()]
        assert NAME in objects(store)
    assert directory.live() == []


def test_an_object_that_is_deleted_before_it_is_read_may_come_again(store: Store) -> None:
    directory = GatewayDirectory(store.object_store)
    put(store, NAME, record().model_dump())
    bodies = directory._objects.bodies
    directory._objects.bodies = lambda names: [None] * len(names)  # type: ignore[method-assign]
    assert directory.live() == []
    directory._objects.bodies = bodies  # type: ignore[method-assign]
    assert directory.live() == [record()]


def test_a_gateway_stays_a_broker_by_its_heartbeats(
    store: Store, world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_gateways, "_HEARTBEAT_MS", 20)
    client = connect(start())
    start()
    for _ in range(3):
        world.pass_time(14_000)
        time.sleep(0.2)
        assert len(brokers(client)) == 2


def test_a_gateway_that_ends_is_no_broker_before_it_hands_its_groups_over(
    store: Store, world: World, start: Start, connect: Any
) -> None:
    client = connect(start())
    ending = world.process()
    seen: list[str] = []
    with running(ending, group_initial_rebalance_delay_ms=0) as gateway, Client(gateway.port) as other:
        assert GroupClient(other).join().error_code is NONE
        assert len(brokers(client)) == 2
        asleep_at(ending, "gateway.deregistered", lambda: seen.append(f"{len(brokers(client))} broker"))
        asleep_at(ending, "gateway.group.handed_over", lambda: seen.append("handed over"))
    assert seen == ["1 broker", "handed over"]


def test_a_gateway_that_ends_tells_its_clients_of_the_others(
    store: Store, world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start()
    ending = world.process()
    with running(ending) as gateway, Client(gateway.port) as client:
        assert len(brokers(client)) == 2
        gateway.deregister()
        assert brokers(client) == named(other)
        (found,) = coordinators(client, "tx", kind=1)
        assert found.node_id == other.node_id


def test_a_gateway_that_ends_sends_its_clients_to_the_others_before_it_disconnects_them(
    store: Store, world: World, start: Start
) -> None:
    other, gateway = start(), start(world.process(), redirect_ms=3_600_000)
    with Client(gateway.port) as client, Client(gateway.port) as waiting, Client(other.port) as there:
        assert produce(client, ("t", 0, batch(b"1")))[0].error_code is NONE
        waiting.send(ApiKey.FETCH, 11, **fetch_values("t", 1, max_wait_ms=30_000))
        ending = threading.Thread(target=gateway.stop)
        ending.start()

        (answer,) = waiting.answer(ApiKey.FETCH, 11).responses[0].partitions
        # It wakes up when the gateway begins to end, perhaps before the gateway knows who else is there.
        assert answer.error_code in (NONE, ErrorCode.not_leader_or_follower)
        wait_until(lambda: fetch(waiting, "t", 1).error_code is ErrorCode.not_leader_or_follower)
        assert produce(client, ("t", 0, batch(b"2")))[0].error_code is ErrorCode.not_leader_or_follower
        with Client(gateway.port) as new:
            assert brokers(new) == named(other)
            (found,) = coordinators(new, "g")
            assert found.node_id == other.node_id
        assert produce(there, ("t", 0, batch(b"2")))[0].error_code is NONE
        assert values_of(fetch(there, "t", 0).records) == [(0, b"1"), (1, b"2")]
    ending.join(_PATIENCE_S)
    assert not ending.is_alive()


def test_a_list_from_before_the_end_of_a_gateway_does_not_name_it_later(start: Start, world: World) -> None:
    process = world.process()
    other, gateway = start(), start(process)
    gateways = gateway.gateway.gateways
    live = gateways._directory.live
    listed, may_answer, deleted = threading.Event(), threading.Event(), threading.Event()

    def late() -> list[GatewayRecord]:
        found = live()
        listed.set()
        assert may_answer.wait(_PATIENCE_S)
        return found

    gateways._directory.live = late  # type: ignore[method-assign]
    asleep_at(process, "gateway.deregistered", deleted.set)
    with Client(gateway.port) as client:
        client.send(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert listed.wait(_PATIENCE_S)
        ending = threading.Thread(target=gateway.deregister)
        ending.start()
        assert deleted.wait(_PATIENCE_S)
        may_answer.set()
        ending.join(_PATIENCE_S)
        client.answer(ApiKey.DESCRIBE_CLUSTER, 0)
        assert gateways.sends_away
        assert brokers(client) == named(other)


def test_a_single_gateway_that_ends_answers_consumers_that_wait(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
        gateway.stop()
        (answer,) = client.answer(ApiKey.FETCH, 11).responses[0].partitions
        assert answer.error_code is NONE


def test_a_gateway_that_ends_lets_consumers_wait_until_it_sends_them_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = GatewayDirectory.delete
    is_deleting, may_go_on = threading.Event(), threading.Event()

    def late(directory: GatewayDirectory) -> None:
        is_deleting.set()
        assert may_go_on.wait(_PATIENCE_S)
        delete(directory)

    monkeypatch.setattr(GatewayDirectory, "delete", late)
    with running(store) as gateway, Client(gateway.port) as client:
        ending = threading.Thread(target=gateway.stop)
        ending.start()
        assert is_deleting.wait(_PATIENCE_S)
        begin = time.monotonic()
        assert fetch(client, "t", 0, max_wait_ms=500).error_code is NONE
        # A consumer whose fetches are answered at once would fetch again and again.
        assert time.monotonic() - begin > 0.4
        may_go_on.set()
        ending.join(_PATIENCE_S)


def test_a_single_gateway_that_ends_still_names_itself(start: Start, connect: Any) -> None:
    gateway = start()
    gateway.deregister()
    assert brokers(connect(gateway)) == named(gateway)


def test_a_heartbeat_that_is_on_its_way_does_not_come_after_the_end(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_gateways, "_HEARTBEAT_MS", 20)
    process = world.process()
    object_put = process.object_store.put
    begun, may_land = threading.Event(), threading.Event()

    def slow(path: str, body: bytes) -> None:
        begun.set()
        assert may_land.wait(_PATIENCE_S)
        object_put(path, body)

    with running(process) as gateway:
        monkeypatch.setattr(process.object_store, "put", slow)
        assert begun.wait(_PATIENCE_S)
        threading.Timer(0.2, may_land.set).start()
        gateway.deregister()
        assert not objects(store)
        time.sleep(0.1)
    assert not objects(store)


@pytest.mark.parametrize("point", ["gateway.registered", "gateway.deregistered"])
def test_a_gateway_that_is_killed_at_its_start_or_end_leaves_nothing(
    store: Store, world: World, start: Start, connect: Any, point: str
) -> None:
    client = connect(start())
    killed = world.process()
    asleep_at(killed, point, die)
    with running(killed) as gateway:
        gateway.stop()
        assert isinstance(gateway.failure, Died)
    assert len(brokers(client)) == (2 if point == "gateway.registered" else 1)
    world.pass_time(16_000)
    assert len(brokers(client)) == 1
    assert len(objects(store)) == 1


# Requests to the store


class _Counted:
    """The requests of a process for gateways."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        for verb in ("put", "list", "get", "get_many", "delete", "delete_many"):
            self._count(store, verb, monkeypatch)

    def _count(self, store: Store, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
        request = getattr(store.object_store, verb)

        def counted(path: Any, *arguments: Any, **options: Any) -> Any:
            first = path if isinstance(path, str) else next(iter(path), "")
            self.counts[verb] += first.startswith(DIRECTORY)
            return request(path, *arguments, **options)

        monkeypatch.setattr(store.object_store, verb, counted)


def test_an_idle_gateway_costs_a_put_in_each_interval(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    counted = _Counted(process, monkeypatch)
    monkeypatch.setattr(live_gateways, "_HEARTBEAT_MS", 100)
    with running(process):
        counted.counts.clear()
        time.sleep(1.05)
        found = +counted.counts
    assert found.keys() == {"put"}
    assert 5 <= found["put"] <= 11


def test_many_requests_for_metadata_cost_one_list_in_a_period(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_gateways, "_PERIOD_MS", 60_000)
    process = world.process()
    counted = _Counted(process, monkeypatch)
    with running(process) as gateway, Client(gateway.port) as client:
        for number in range(20):
            brokers(client)
            coordinators(client, f"tx-{number}", kind=1)
        assert counted.counts["list"] == 1
        monkeypatch.setattr(live_gateways, "_PERIOD_MS", 0)
        brokers(client)
        assert counted.counts["list"] == 2


def test_the_content_of_an_object_is_read_once(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.process()
    counted = _Counted(process, monkeypatch)
    start()
    with running(process) as gateway, Client(gateway.port) as client:
        for _ in range(5):
            assert len(brokers(client)) == 2
    # Its own object, and that of the other gateway.
    assert counted.counts["get_many"] <= 2


def test_the_last_list_serves_while_the_store_does_not_answer(
    world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    client = connect(start(process))
    start()
    assert len(brokers(client)) == 2
    faulty(process).go_down()
    assert len(brokers(client)) == 2
    faulty(process).heal()


@contextmanager
def hanging(store: Store, verb: str, below: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let requests below a path wait for the end of the block. Yield their paths."""
    request = getattr(store.object_store, verb)
    may_go_on = threading.Event()
    begun: list[str] = []

    def hang(path: str, *arguments: Any, **options: Any) -> Any:
        if path.startswith(below):
            begun.append(path)
            assert may_go_on.wait(_PATIENCE_S)
        return request(path, *arguments, **options)

    monkeypatch.setattr(store.object_store, verb, hang)
    try:
        yield begun
    finally:
        may_go_on.set()


@pytest.mark.parametrize(("verb", "below", "most"), [("list", DIRECTORY, 1), ("get", SLOTS, 2)])
def test_clients_that_ask_at_the_same_time_share_requests(
    world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch, verb: str, below: str, most: int
) -> None:
    monkeypatch.setattr(known_topics, "_LONGEST_PAUSE_S", _PATIENCE_S)
    process = world.process()
    gateway = start(process)
    clients = [connect(gateway) for _ in range(8)]
    with hanging(process, verb, below, monkeypatch) as begun:
        for each in clients:
            each.send(ApiKey.METADATA, 8, topics=(), **METADATA)
        wait_until(lambda: bool(begun))
        time.sleep(0.1)
    assert [len(each.answer(ApiKey.METADATA, 8).brokers) for each in clients] == [1] * 8
    # The first request may have begun before the last client asked.
    assert 1 <= len(begun) <= most


@pytest.mark.parametrize(("verb", "below"), [("list", DIRECTORY), ("get", SLOTS)])
def test_clients_get_known_brokers_and_topics_while_the_store_hangs(
    world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch, verb: str, below: str
) -> None:
    monkeypatch.setattr(live_gateways, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(discovery, "_LONGEST_WAIT_S", 0.05)
    process = world.process()
    gateway = start(process)
    start()
    client = connect(gateway)
    assert len(brokers(client)) == 2
    with hanging(process, verb, below, monkeypatch):
        for _ in range(3):
            answer = metadata(client)
            assert (len(answer.brokers), len(answer.topics[0].partitions)) == (2, 2)
    assert len(brokers(client)) == 2


# Coordinators


def test_no_gateway_has_ended_by_a_list_that_does_not_come(
    world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_gateways, "_PATIENCE_S", 0.05)
    process = world.process()
    gateway = start(process)
    client = connect(gateway)
    assert len(brokers(client)) == 1
    with hanging(process, "list", DIRECTORY, monkeypatch):
        old = GroupClient(connect(start()))
        assert old.join().error_code is NONE
        # The heartbeat in the group is late, but not as old as the group's session timeout.
        world.pass_time(10_000)
        assert GroupClient(client).join().error_code is ErrorCode.not_coordinator
    assert old.heartbeat() is NONE


def test_all_gateways_name_the_same_coordinators(start: Start, connect: Any) -> None:
    clients = [connect(start()) for _ in range(3)]
    for kind in (0, 1):
        keys = [f"key-{number}" for number in range(PARTITIONS)]
        found = {tuple(each.node_id for each in coordinators(client, *keys, kind=kind)) for client in clients}
        assert len(found) == 1
        assert len(set(found.pop())) == 3


def test_a_group_stays_at_the_gateway_that_the_log_names(store: Store, start: Start, connect: Any) -> None:
    gateways = [start() for _ in range(3)]
    clients = [connect(each) for each in gateways]
    for number, (gateway, client) in enumerate(zip(gateways, clients, strict=True)):
        member = GroupClient(client, f"g{number}")
        assert member.join().error_code is NONE
        found = {(each.node_id, each.port) for one in clients for each in coordinators(one, f"g{number}")}
        assert found == {(gateway.node_id, gateway.port)}
        for other in clients:
            if other is not client:
                assert GroupClient(other, f"g{number}").join().error_code is ErrorCode.not_coordinator
        assert member.heartbeat() is NONE


def test_each_group_is_listed_by_one_gateway(store: Store, start: Start, connect: Any, world: World) -> None:
    gateways = [start() for _ in range(3)]
    clients = [connect(each) for each in gateways]
    for number in range(12):
        member = GroupClient(clients[number % 3], f"g{number}")
        assert member.join().error_code is NONE
        if number % 2:
            assert member.leave() is NONE
    wait_until(lambda: not any(members(store, f"g{number}") for number in range(1, 12, 2)))
    with world.process().consumer(group_id="own") as own:
        own.subscribe(["t"])
        own.poll()
        found = [
            each.group_id for client in clients for each in client.call(ApiKey.LIST_GROUPS, 4, states_filter=()).groups
        ]
    assert sorted(found) == sorted([*(f"g{number}" for number in range(12)), "own"])


def test_a_killed_gateway_is_replaced_when_it_is_silent_as_a_gateway(
    store: Store, world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "_PAUSE_MS", 0)
    killed, other = start(), start()
    old, client = GroupClient(connect(killed)), connect(other)
    assert old.join().error_code is NONE
    assert old.sync({old.member_id: b"all"}).error_code is NONE
    world.pass_time(14_000)
    assert coordinators(client, "g")[0].node_id == killed.node_id
    assert GroupClient(client).join().error_code is ErrorCode.not_coordinator
    world.pass_time(2_000)

    assert coordinators(client, "g")[0].node_id == other.node_id
    new = GroupClient(client)
    assert new.join().generation_id > old.generation
    assert new.sync({new.member_id: b"all"}).error_code is NONE
    # The gateway was only paused.
    assert old.commit((0, 1)) == {0: ErrorCode.not_coordinator}
    assert new.commit((0, 2)) == {0: NONE}


def test_a_gateway_that_is_not_in_the_list_yet_keeps_its_groups(
    store: Store, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(start())
    brokers(client)
    monkeypatch.setattr(live_gateways, "_PERIOD_MS", 60_000)
    new = GroupClient(connect(start()))
    assert new.join().error_code is NONE
    assert GroupClient(client).join().error_code is ErrorCode.not_coordinator
    assert coordinators(client, "g")[0].error_code is ErrorCode.coordinator_not_available
    assert new.heartbeat() is NONE
    monkeypatch.setattr(live_gateways, "_PERIOD_MS", 0)
    assert coordinators(client, "g")[0].error_code is NONE


def test_a_gateway_is_not_replaced_while_the_list_cannot_be_read(
    store: Store, world: World, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    client = connect(start(process))
    old = GroupClient(connect(start()))
    assert old.join().error_code is NONE
    world.pass_time(16_000)
    listed = process.object_store.list

    def refuse(prefix: str = "", **options: Any) -> Any:
        if prefix == DIRECTORY:
            faulty(process).go_down()
            try:
                faulty(process)._check("")
            finally:
                faulty(process).heal()
        return listed(prefix, **options)

    monkeypatch.setattr(process.object_store, "list", refuse)
    assert GroupClient(client).join().error_code is ErrorCode.not_coordinator
    assert old.heartbeat() is NONE


# Fetches


def test_a_consumer_goes_on_at_a_gateway_that_does_not_know_the_newest_rows(
    store: Store, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_topics, "_OLDEST_MS", 60_000)
    first, second = connect(start()), connect(start())
    assert fetch(second, "t", 0).error_code is NONE
    produce(first, ("t", 0, batch(b"v", b"w")))
    answer = fetch(second, "t", 2)
    assert (answer.error_code, answer.high_watermark) == (NONE, 2)
    assert fetch(second, "t", 3).error_code is ErrorCode.offset_out_of_range


@pytest.mark.parametrize("version", [4, 11])
def test_a_consumer_keeps_its_position_while_the_newest_rows_are_unknown(
    world: World, start: Start, connect: Any, version: int
) -> None:
    process = world.process()
    first, second = connect(start()), connect(start(process))
    assert fetch(second, "t", 0).error_code is NONE
    produce(first, ("t", 0, batch(b"v", b"w")))
    faulty(process).go_down()
    # The consumer would begin anew if it learned that its position is out of range, or that the log was cut.
    assert fetch(second, "t", 2, version=version).error_code is ErrorCode.kafka_storage_error
    assert end_of_epoch(second) == (ErrorCode.not_enough_replicas, -1)
    faulty(process).heal()
    assert fetch(second, "t", 2, version=version).error_code is NONE
    assert end_of_epoch(second) == (NONE, 2)


def end_of_epoch(client: Client) -> tuple[ErrorCode, int]:
    """Return the end of the rows of the only leader epoch, by which consumers notice rows that are gone."""
    key, version = ApiKey.OFFSET_FOR_LEADER_EPOCH, 3
    wanted = part(key, version, "OffsetForLeaderPartition", partition=0, current_leader_epoch=0, leader_epoch=0)
    topic = part(key, version, "OffsetForLeaderTopic", topic="t", partitions=(wanted,))
    (found,) = client.call(key, version, replica_id=-1, topics=(topic,)).topics[0].partitions
    return found.error_code, found.end_offset


def test_rows_of_a_topic_that_was_created_again_are_not_the_old_ones(
    store: Store, start: Start, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_topics, "_OLDEST_MS", 200)
    client = connect(start())
    produce(client, ("t", 0, batch(b"old")))
    assert values_of(fetch(client, "t", 0).records) == [(0, b"old")]
    store.admin.delete_topic("t")
    store.admin.create_topic("t", partitions=2)
    with store.producer() as producer:
        producer.send("t", b"new", partition=0)
    time.sleep(0.3)
    assert values_of(fetch(client, "t", 0).records) == [(0, b"new")]


# Racks


def fetched(client: Client, partition: int, rack: str, version: int = 11) -> tuple[int, bytes]:
    """Return the broker that a consumer of a rack should ask, and the rows that it gets."""
    key = ApiKey.FETCH
    values = fetch_values("t", 0, partition=partition, version=version)
    if version >= 11:
        values["rack_id"] = rack
    answer = client.call(key, version, **values).responses[0].partitions[0]
    assert answer.error_code is NONE
    return getattr(answer, "preferred_read_replica", -1), bytes(answer.records or b"")


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_consumer_fetches_from_a_gateway_in_its_rack(store: Store, start: Start, connect: Any, version: int) -> None:
    gateways = {rack: start(rack=rack) for rack in ("a", "b")}
    clients = {rack: connect(gateway) for rack, gateway in gateways.items()}
    produce(clients["a"], ("t", 0, batch(b"v")), ("t", 1, batch(b"v")))
    ids = {gateway.node_id: rack for rack, gateway in gateways.items()}
    for partition, leader in enumerate(leaders(clients["a"], "t")):
        own = ids[leader]
        other = "b" if own == "a" else "a"
        for rack in ("", own, "c"):
            found = fetched(clients[own], partition, rack, version)
            assert (found[0], len(values_of(found[1]))) == (-1, 1)
        redirected = fetched(clients[own], partition, other, version)
        assert redirected == (gateways[other].node_id, b"") if version >= 11 else redirected[0] == -1
        # A gateway that does not lead the partition answers each consumer.
        for rack in (own, other):
            found = fetched(clients[other], partition, rack, version)
            assert (found[0], len(values_of(found[1]))) == (-1, 1)
