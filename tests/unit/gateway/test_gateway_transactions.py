"""Requests for transactions and for offsets of groups: the answers of each version, and what the log has after them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from eoslog.errors import ProducerFenced, StoreUnavailable
from eoslog.gateway import transactions
from eoslog.gateway.protocol import VERSIONS, ApiKey
from eoslog.state.groups import committed_offset
from eoslog.state.names import PartitionId
from eoslog.store import Store
from tests.unit.gateway.group_clients import commit_plainly, fetch_offsets
from tests.unit.gateway.raw_client import (
    Client,
    Producer,
    Transactional,
    batch,
    fetch,
    produce,
    running,
    values_of,
    versions_of,
)
from tests.unit.support.partitions import read
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty

NONE = ErrorCode.none
_CLIENTS = 50


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    with running(store) as gateway, Client(gateway.port) as client:
        yield client


def epoch_in_log(store: Store, transactional_id: str = "tx") -> tuple[str, int]:
    found = store.admin.describe_transaction(transactional_id)
    return found.transaction_state, found.producer_epoch


def group_offset(store: Store, partition: int = 0, group: str = "g") -> int | None:
    def snapshot(state: Any, slot: int) -> int | None:
        found = committed_offset(state, group, PartitionId(state.topic_ids["t"], partition))
        return None if found is None else int(found.offset)

    return store.read(snapshot)


# Producer ids


@pytest.mark.parametrize("version", versions_of(ApiKey.INIT_PRODUCER_ID))
def test_each_init_raises_the_epoch_of_a_transactional_id(client: Client, version: int) -> None:
    producer = Transactional(client)

    first, second = producer.init(version), producer.init(version)

    assert (first.error_code, first.producer_epoch) == (NONE, 0)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (NONE, first.producer_id, 1)


def test_a_producer_that_states_its_identity_continues_and_a_fenced_one_does_not(client: Client) -> None:
    producer = Transactional(client)
    first = producer.init()
    identity = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}

    assert producer.init(**identity).producer_epoch == 1
    producer.init()
    assert producer.init(4, **identity).error_code is ErrorCode.producer_fenced
    assert producer.init(3, **identity).error_code is ErrorCode.invalid_producer_epoch
    assert producer.init(4, producer_id=first.producer_id).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"timeout_ms": 0}, ErrorCode.invalid_transaction_timeout),
        ({"timeout_ms": -1}, ErrorCode.invalid_transaction_timeout),
        ({"timeout_ms": 900_001}, ErrorCode.invalid_transaction_timeout),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"transactional_id": "x" * 1025}, ErrorCode.invalid_request),
    ],
)
def test_an_init_with_wrong_values_is_refused(client: Client, values: dict[str, Any], code: ErrorCode) -> None:
    answer = Transactional(client).init(**values)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("version", versions_of(ApiKey.FIND_COORDINATOR))
def test_a_single_gateway_coordinates_groups_and_transactional_ids(store: Store, version: int) -> None:
    values: dict[str, Any] = {"coordinator_keys": ("a", "b")} if version >= 4 else {"key": "a"}
    with running(store) as gateway, Client(gateway.port) as client:
        for key_type in (0, 1, 2) if version else (0,):
            kind = {"key_type": key_type} if version else {}
            answer = client.call(ApiKey.FIND_COORDINATOR, version, **values | kind)
            for found in getattr(answer, "coordinators", [answer]):
                assert found.error_code is (ErrorCode.invalid_request if key_type == 2 else NONE)
                assert (found.node_id, found.host, found.port) == (gateway.node_id, "127.0.0.1", gateway.port)


def test_clients_learn_that_there_is_transaction_version_2(client: Client) -> None:
    for version in VERSIONS[ApiKey.API_VERSIONS]:
        values = {"client_software_name": "tests", "client_software_version": "1"} if version >= 3 else {}
        answer = client.call(ApiKey.API_VERSIONS, version, **values)
        if version >= 3:
            (feature,) = answer.finalized_features
            assert (feature.name, feature.max_version_level) == ("transaction.version", 2)


# Transaction version 1: librdkafka, aiokafka and kafka-python


@pytest.mark.parametrize("version", [each for each in VERSIONS[ApiKey.END_TXN] if each < 5])
def test_transactions_of_version_1_keep_the_epoch_and_their_sequences_go_on(
    client: Client, store: Store, world: World, version: int
) -> None:
    producer = Transactional(client, api_version=version)
    producer.init()
    for number, commit in enumerate([True, False, True]):
        assert producer.add(0, 1) == {0: NONE, 1: NONE}
        assert producer.send(b"%d" % number).error_code is NONE
        assert producer.send(b"%d" % number, partition=1).error_code is NONE
        assert producer.end(commit=commit) is NONE

    assert epoch_in_log(store) == ("COMPLETE_COMMIT", 0)
    for partition in (0, 1):
        rows = world.process().scan("t", partitions=[partition]).to_table().to_pylist()
        assert [(row["offset"], row["value"]) for row in rows] == [(0, b"0"), (4, b"2")]
        assert values_of(fetch(client, "t", 0, partition=partition, isolation=1).records) == [(0, b"0"), (4, b"2")]
        everything = values_of(fetch(client, "t", 0, partition=partition).records)
        assert everything == [(0, b"0"), (2, b"1"), (4, b"2")]


@pytest.mark.parametrize("version", versions_of(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_added_partitions_begin_a_transaction_that_may_be_empty(client: Client, store: Store, version: int) -> None:
    producer = Transactional(client)
    producer.init()

    assert producer.add(0, version=version) == {0: NONE}
    assert epoch_in_log(store) == ("ONGOING", 0)
    assert producer.add(0, version=version) == {0: NONE}
    assert producer.end() is NONE
    assert epoch_in_log(store) == ("COMPLETE_COMMIT", 0)
    assert store.admin.offsets("t")[0].high_watermark == 0


@pytest.mark.parametrize("version", [3, 10, 11])
def test_a_batch_whose_partition_was_not_added_is_refused(client: Client, store: Store, version: int) -> None:
    """A late batch would begin the next transaction of its producer otherwise (KIP-890)."""
    producer = Transactional(client)
    producer.init()
    code = ErrorCode.invalid_txn_state if version < 11 else ErrorCode.transaction_abortable

    assert producer.send(b"early", version=version).error_code is code
    producer.add(1)
    assert producer.send(b"elsewhere", version=version).error_code is code
    producer.end()
    assert producer.send(b"late", partition=1, version=version).error_code is code
    assert store.admin.offsets("t")[0].high_watermark == 0


def test_a_partition_that_does_not_exist_keeps_the_others_out(client: Client, store: Store) -> None:
    producer = Transactional(client)
    producer.init()

    assert producer.add(0, 9) == {0: ErrorCode.operation_not_attempted, 9: ErrorCode.unknown_topic_or_partition}
    assert producer.add(0, topic="missing") == {0: ErrorCode.unknown_topic_or_partition}
    assert epoch_in_log(store) == ("EMPTY", 0)


def test_partitions_that_others_have_created_since_are_found(client: Client, world: World) -> None:
    producer = Transactional(client)
    producer.init()
    world.process().admin.create_partitions("t", 5)

    assert producer.add(4) == {4: NONE}
    world.process().admin.create_partitions("t", 6)
    assert producer.commit_offsets((5, 1)) == {5: NONE}


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_of_version_1_is_answered_and_the_opposite_end_is_refused(client: Client, commit: bool) -> None:
    producer = Transactional(client)
    producer.init()
    assert producer.end(commit=commit) is ErrorCode.invalid_txn_state
    producer.add(0)
    assert producer.end(commit=commit) is NONE

    assert producer.end(commit=commit) is NONE
    assert producer.end(commit=not commit) is ErrorCode.invalid_txn_state


def test_a_late_end_does_not_hit_the_next_transaction(store: Store, world: World) -> None:
    """The client repeats an end at another gateway and goes on, while the first gateway sleeps before its put."""
    slow = world.process()
    with running(store) as gateway, running(slow) as slow_gateway, Client(gateway.port) as client:
        producer = Transactional(client)
        producer.init()
        producer.add(0)
        producer.send(b"first")

        def meanwhile() -> None:
            assert producer.end(commit=False) is NONE
            producer.add(0)
            producer.send(b"second")

        slow.read(lambda state, slot: None)
        slept = asleep_at(slow, "log.slot.before_put", meanwhile)
        with Client(slow_gateway.port) as late:
            answer = late.call(ApiKey.END_TXN, 3, **producer.of | {"committed": False})

        assert slept
        assert answer.error_code is ErrorCode.coordinator_not_available
        assert epoch_in_log(store) == ("ONGOING", 0)
        assert producer.end() is NONE
    assert read(world.process(), "t") == [(2, b"second")]


def test_an_end_is_answered_by_a_gateway_that_has_not_seen_the_transaction(store: Store, world: World) -> None:
    with running(store) as gateway, running(world.process()) as other, Client(gateway.port) as client:
        producer = Transactional(client)
        producer.init()
        producer.add(0)
        producer.send(b"x")

        with Client(other.port) as elsewhere:
            producer.client = elsewhere
            assert producer.end() is ErrorCode.coordinator_not_available
            assert producer.end() is NONE
    assert read(world.process(), "t") == [(0, b"x")]


def test_a_client_comes_back_to_a_gateway_that_knows_only_an_earlier_transaction(store: Store, world: World) -> None:
    other = world.process()
    with running(store) as a, running(other) as b, Client(a.port) as here, Client(b.port) as elsewhere:
        producer = Transactional(here)
        producer.init()
        producer.add(0)
        producer.send(b"1")
        producer.client = elsewhere
        assert producer.end() is ErrorCode.coordinator_not_available
        assert producer.end() is NONE
        producer.add(0)
        producer.send(b"2")
        producer.client = here
        assert producer.end() is ErrorCode.coordinator_not_available
        assert producer.end() is NONE
    assert read(world.process(), "t") == [(0, b"1"), (2, b"2")]


# Transaction version 2: Java 4 and franz-go


def test_transactions_of_version_2_need_no_added_partition_and_raise_the_epoch(
    client: Client, store: Store, world: World
) -> None:
    producer = Transactional(client, api_version=5)
    producer.init()
    for number, commit in enumerate([True, False, True]):
        assert producer.send(b"%d" % number, version=12).error_code is NONE
        assert producer.end(commit=commit) is NONE
        assert producer.producer_epoch == number + 1

    assert epoch_in_log(store) == ("COMPLETE_COMMIT", 3)
    assert read(world.process(), "t") == [(0, b"0"), (4, b"2")]


def test_an_end_of_version_2_is_answered_again_with_the_same_identity(client: Client) -> None:
    producer = Transactional(client, api_version=5)
    producer.init()
    producer.send(b"x", version=12)
    before = producer.of
    producer.end()

    assert producer.end(**before) is NONE
    assert producer.producer_epoch == 1


def test_after_an_abort_by_others_a_client_may_abort_and_continue(client: Client, store: Store, world: World) -> None:
    producer = Transactional(client, api_version=5)
    producer.init()
    producer.send(b"lost", version=12)
    store.admin.abort_transaction("tx")

    assert producer.send(b"late", version=12).error_code is ErrorCode.invalid_producer_epoch
    assert producer.end() is ErrorCode.transaction_abortable
    assert producer.end(commit=False) is NONE
    assert producer.send(b"next", version=12).error_code is NONE
    assert producer.end() is NONE
    assert [value for _, value in read(world.process(), "t")] == [b"next"]


# Fences and errors


@pytest.mark.parametrize("api_version", [3, 5])
def test_all_requests_of_a_fenced_producer_are_refused(
    client: Client, store: Store, world: World, api_version: int
) -> None:
    zombie = Transactional(client, api_version=api_version)
    zombie.init()
    zombie.add(0)
    zombie.send(b"zombie")
    Transactional(client).init()
    fenced = ErrorCode.producer_fenced

    assert epoch_in_log(store)[0] == "EMPTY"
    assert zombie.send(b"more", version=12 if api_version == 5 else 9).error_code is ErrorCode.invalid_producer_epoch
    assert zombie.add(0) == {0: fenced}
    assert zombie.add(0, version=1) == {0: ErrorCode.invalid_producer_epoch}
    assert (zombie.add_offsets(), zombie.add_offsets(version=1)) == (fenced, ErrorCode.invalid_producer_epoch)
    assert zombie.commit_offsets((0, 5)) == {0: ErrorCode.invalid_producer_epoch}
    assert zombie.end() is fenced
    assert read(world.process(), "t") == []


@pytest.mark.parametrize("api_version", [3, 5])
def test_a_producer_of_eoslog_and_a_client_fence_each_other(
    client: Client, store: Store, world: World, api_version: int
) -> None:
    first = Transactional(client, api_version=api_version)
    first.init()
    first.add(0)
    first.send(b"first")

    second = open_transaction(world.process(), "tx")
    second.send("t", b"second", partition=0)
    second.flush()
    assert first.end() is ErrorCode.producer_fenced

    third = Transactional(client, api_version=api_version)
    third.init()
    with pytest.raises(ProducerFenced):
        second.commit_transaction()
    third.add(0)
    third.send(b"third")
    assert third.end() is NONE
    assert [value for _, value in read(world.process(), "t")] == [b"third"]


def test_an_unknown_transactional_id_is_refused(client: Client) -> None:
    producer = Transactional(client, "unknown")
    producer.producer_id, producer.producer_epoch = 7, 0
    wrong = ErrorCode.invalid_producer_id_mapping

    assert producer.add(0) == {0: wrong}
    assert producer.add_offsets() is wrong
    assert producer.commit_offsets((0, 1)) == {0: wrong}
    assert producer.end() is wrong
    assert producer.send(b"x", version=12).error_code is wrong


@pytest.mark.parametrize("producer_id", [-1, -(2**63), None])
def test_negative_identities_are_refused(client: Client, producer_id: int | None) -> None:
    producer = Transactional(client)
    producer.init()
    producer.add(0)
    code = ErrorCode.invalid_producer_epoch if producer_id is None else ErrorCode.invalid_producer_id_mapping
    values = {"producer_epoch": -1} | ({} if producer_id is None else {"producer_id": producer_id})

    assert producer.add(0, **values) == {0: code}
    assert producer.add_offsets(**values) is code
    assert producer.commit_offsets((0, 1), **values) == {0: code}
    assert producer.end(**values) is code


def test_a_transactional_batch_needs_a_transactional_id(client: Client) -> None:
    producer = Transactional(client)
    producer.init()
    sent = batch(b"x", producer=Producer(producer.producer_id, 0, 0), transactional=1)

    (answer,) = produce(client, ("t", 0, sent))

    assert answer.error_code is ErrorCode.invalid_record


def test_a_store_that_does_not_answer_is_a_coordinator_that_is_not_available(client: Client, store: Store) -> None:
    producer = Transactional(client)
    producer.init()
    producer.add(0)
    absent = ErrorCode.coordinator_not_available
    faulty(store).go_down()

    answers = [
        producer.init().error_code,
        producer.add_offsets(),
        producer.end(),
        *producer.commit_offsets((0, 1)).values(),
    ]
    answers += [*commit_plainly(client, (0, 1)).values(), fetch_offsets(client)[0]]
    faulty(store).heal()

    assert answers == [absent] * len(answers)
    assert producer.end() is NONE


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("api_version", [3, 5])
def test_an_end_whose_answer_was_lost_is_repeated_at_another_gateway(
    store: Store, world: World, api_version: int, lands: bool
) -> None:
    class Killed(BaseException):
        pass

    killed = world.process()
    with running(killed) as gateway, Client(gateway.port) as client:
        producer = Transactional(client, api_version=api_version)
        producer.init()
        producer.add(0)
        producer.send(b"x")

        def die() -> None:
            raise Killed

        asleep_at(killed, "gateway.transaction.ended" if lands else "log.slot.before_put", die)
        client.send(ApiKey.END_TXN, api_version, **producer.of | {"committed": True})
        assert client.is_closed
    with running(store) as gateway, Client(gateway.port) as client:
        producer.client = client
        assert producer.end() is NONE
        assert producer.producer_epoch == (1 if api_version == 5 else 0)
    assert read(world.process(), "t") == [(0, b"x")]
    assert store.admin.offsets("t")[0].high_watermark == 2


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("api_version", [3, 5])
def test_an_end_whose_put_got_no_answer_is_done_once_when_the_client_repeats_it(
    store: Store, world: World, api_version: int, commit: bool, lands: bool
) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = Transactional(client, api_version=api_version)
        producer.init()
        producer.add(0)
        producer.send(b"first")
        faulty(store).lose_answers(SLOTS, lands=lands)

        assert producer.end(commit=commit) is ErrorCode.coordinator_not_available
        faulty(store).heal()
        assert producer.end(commit=commit) is NONE
        producer.add(0)
        producer.send(b"second")
        assert producer.end() is NONE
    assert read(world.process(), "t") == ([(0, b"first")] if commit else []) + [(2, b"second")]
    assert store.admin.offsets("t")[0].high_watermark == 4


def test_requests_of_many_clients_share_records(store: Store) -> None:
    clients_started = threading.Event()
    with running(store) as gateway, ExitStack() as connections:
        producers = []
        for number in range(_CLIENTS):
            producer = Transactional(connections.enter_context(Client(gateway.port)), f"tx-{number}")
            producer.init()
            producers.append(producer)
        slot = store.read(lambda state, slot: slot)
        asleep_at(store, "log.slot.before_put", lambda: clients_started.wait(20))
        for producer in producers:
            producer.client.send(ApiKey.ADD_OFFSETS_TO_TXN, 3, **producer.of | {"group_id": "g"})
        time.sleep(0.5)
        clients_started.set()

        answers = [producer.client.answer(ApiKey.ADD_OFFSETS_TO_TXN, 3).error_code for producer in producers]

        assert answers == [NONE] * _CLIENTS
        # The first request alone, and those that have come meanwhile.
        assert store.read(lambda state, slot: slot) <= slot + 3


@pytest.mark.parametrize("lands", [True, False])
def test_additions_whose_answer_was_lost_are_repeated_at_another_gateway(
    store: Store, world: World, lands: bool
) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    point = "gateway.transaction.added" if lands else "log.slot.before_put"
    with running(store) as last, Client(last.port) as client:
        producer = Transactional(client)
        producer.init()
        for add in (lambda: producer.add(0), lambda: producer.commit_offsets((0, 7))):
            killed = world.process()
            with running(killed) as gateway, Client(gateway.port) as dying:
                killed.read(lambda state, slot: None)
                asleep_at(killed, point, die)
                producer.client = dying
                with pytest.raises(ConnectionError):
                    add()
            producer.client = client
            assert add() == {0: NONE}
        producer.send(b"x")
        assert producer.end() is NONE
    assert read(world.process(), "t") == [(0, b"x")]
    assert group_offset(store) == 7


def test_an_overdue_transaction_is_aborted_without_a_fetch(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_SWEEP_S", 0.01)
    with running(store) as gateway, Client(gateway.port) as client:
        producer = Transactional(client)
        producer.init(timeout_ms=1_000)
        producer.add(0)
        producer.send(b"x")
        world.pass_time(2_000)
        end = time.monotonic() + 20
        while epoch_in_log(store)[0] != "COMPLETE_ABORT":
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_gateway_goes_on_if_it_cannot_abort_an_overdue_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def fail() -> bool:
        tried.set()
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(transactions, "_SWEEP_S", 0.01)
    monkeypatch.setattr(store.overdue_transactions, "abort_for_reader", fail)
    with running(store) as gateway, Client(gateway.port) as client:
        assert tried.wait(20)
        assert Transactional(client).init().error_code is NONE
    assert gateway.failure is None


# Offsets of groups


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_COMMIT))
def test_offsets_of_a_group_without_members_are_committed(client: Client, store: Store, version: int) -> None:
    assert commit_plainly(client, (0, 5), (9, 1), version=version) == {
        0: NONE,
        9: ErrorCode.unknown_topic_or_partition,
    }
    assert group_offset(store) == 5


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_FETCH))
def test_committed_offsets_are_fetched(client: Client, version: int) -> None:
    commit_plainly(client, (0, 5))

    found = fetch_offsets(client, 0, 1, 9, version=version)
    assert found == (NONE, {0: (5, "m", NONE), 1: (-1, "", NONE), 9: (-1, "", NONE)})
    if version >= 2:
        assert fetch_offsets(client, version=version) == (NONE, {0: (5, "m", NONE)})
        assert fetch_offsets(client, version=version, group_id="unknown") == (NONE, {})


@pytest.mark.parametrize("version", versions_of(ApiKey.TXN_OFFSET_COMMIT))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_take_effect_if_it_commits(
    client: Client, store: Store, version: int, commit: bool
) -> None:
    producer = Transactional(client, api_version=5 if version >= 5 else 3)
    producer.init()
    commit_plainly(client, (0, 1))
    if version < 5:
        assert producer.add_offsets() is NONE

    assert producer.commit_offsets((0, 7), (9, 1), version=version) == {
        0: NONE,
        9: ErrorCode.unknown_topic_or_partition,
    }
    assert fetch_offsets(client, 0, stable=True) == (NONE, {0: (-1, "", ErrorCode.unstable_offset_commit)})
    assert fetch_offsets(client, 0) == (NONE, {0: (1, "m", NONE)})
    assert producer.end(commit=commit) is NONE
    assert fetch_offsets(client, 0, stable=True) == (NONE, {0: (7 if commit else 1, "m", NONE)})


@pytest.mark.parametrize("version", versions_of(ApiKey.ADD_OFFSETS_TO_TXN))
def test_added_offsets_begin_a_transaction(client: Client, store: Store, version: int) -> None:
    producer = Transactional(client)
    producer.init()

    assert (producer.add_offsets(version=version), producer.add_offsets(version=version)) == (NONE, NONE)
    assert epoch_in_log(store) == ("ONGOING", 0)
    assert producer.end(commit=False) is NONE


def test_late_offsets_of_version_1_do_not_begin_a_transaction(client: Client, store: Store) -> None:
    producer = Transactional(client)
    producer.init()
    producer.add_offsets()
    producer.end()

    assert producer.commit_offsets((0, 7)) == {0: ErrorCode.invalid_txn_state}
    assert epoch_in_log(store) == ("COMPLETE_COMMIT", 0)
    assert group_offset(store) is None


def test_late_offsets_of_version_1_do_not_replace_those_of_the_next_transaction(store: Store, world: World) -> None:
    """The client repeats its offsets at another gateway and goes on, while the first gateway sleeps before its put."""
    slow = world.process()
    with running(store) as gateway, running(slow) as slow_gateway, Client(gateway.port) as client:
        producer = Transactional(client)
        producer.init()
        producer.add_offsets()

        def meanwhile() -> None:
            producer.client = client
            assert producer.commit_offsets((0, 5)) == {0: NONE}
            assert producer.end() is NONE
            assert producer.add_offsets() is NONE
            assert producer.commit_offsets((0, 10)) == {0: NONE}

        slow.read(lambda state, slot: None)
        slept = asleep_at(slow, "log.slot.before_put", meanwhile)
        with Client(slow_gateway.port) as late:
            producer.client = late
            assert producer.commit_offsets((0, 5)) == {0: ErrorCode.coordinator_not_available}

        assert slept
        assert producer.end() is NONE
    assert group_offset(store) == 10


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"member_id": "gone"}, ErrorCode.unknown_member_id),
        ({"member_id": "gone", "generation_id": 3}, ErrorCode.illegal_generation),
        ({"generation_id": 3}, ErrorCode.illegal_generation),
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"metadata": "x" * 4097}, ErrorCode.offset_metadata_too_large),
    ],
)
def test_offsets_with_wrong_values_are_refused(client: Client, values: dict[str, Any], code: ErrorCode) -> None:
    producer = Transactional(client)
    producer.init()
    producer.add_offsets()

    assert producer.commit_offsets((0, 7), **values) == {0: code}


def test_negative_offsets_are_refused(client: Client) -> None:
    assert commit_plainly(client, (0, -1), (1, 4)) == {0: ErrorCode.offset_out_of_range, 1: NONE}
