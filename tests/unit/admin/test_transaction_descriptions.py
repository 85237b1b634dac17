"""The description of a transactional id."""

from __future__ import annotations

import pytest

from eoslog.errors import EosLogError, InvalidRequest, NotAStore, TransactionalIdNotFound
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.partitions import write
from tests.unit.support.world import World


@pytest.mark.scenario(116)
def test_an_open_transaction_is_described_with_its_partitions_and_its_duration(store: Store, world: World) -> None:
    producer = write(store, "t", "open", transaction_timeout_ms=5_000)
    began_ms = store.now_ms()
    producer.send("t", b"v", partition=1)
    producer.flush()
    world.pass_time(1_500)

    described = store.admin.describe_transaction("tx")

    assert (described.producer_id, described.producer_epoch) == (producer.producer_id, 0)
    assert (described.transaction_state, described.transaction_timeout_ms) == ("ONGOING", 5_000)
    assert described.transaction_start_time_ms == began_ms
    assert described.transaction_duration_ms == 1_500
    assert described.topic_partitions == (TopicPartition("t", 0), TopicPartition("t", 1))


@pytest.mark.scenario(116)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_ended_transaction_is_described_with_its_start_and_without_partitions(
    store: Store, world: World, outcome: str
) -> None:
    producer = write(store, "t", "open")
    began_ms = store.now_ms()
    world.pass_time(1_500)
    end = producer.commit_transaction if outcome == "commit" else producer.abort_transaction
    end()

    described = store.admin.describe_transaction("tx")

    assert described.transaction_state == f"COMPLETE_{outcome.upper()}"
    assert described.topic_partitions == ()
    assert (described.transaction_start_time_ms, described.transaction_duration_ms) == (began_ms, -1)

    store.producer("tx").init_transactions()
    assert store.admin.describe_transaction("tx").transaction_start_time_ms == -1


@pytest.mark.scenario(116)
def test_an_empty_id_is_an_invalid_request_and_an_unknown_one_is_not_found(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        store.admin.describe_transaction("")
    with pytest.raises(TransactionalIdNotFound, match=r"no transactional id is named .* An unused id expires"):
        store.admin.describe_transaction("unknown")


@pytest.mark.scenario(116)
def test_an_expired_id_is_not_found(store: Store, world: World) -> None:
    """Kafka's DEAD is never stored: the id is there, or it is not."""
    write(store, "t", "commit")
    world.pass_time(8 * 24 * 3600 * 1000)
    Coordinator(store).expire()

    with pytest.raises(TransactionalIdNotFound, match=r"no transactional id is named .* An unused id expires"):
        store.admin.describe_transaction("tx")


@pytest.mark.scenario(116)
def test_where_there_is_no_log_nothing_is_described(world: World) -> None:
    with pytest.raises(NotAStore):
        world.process().admin.describe_transaction("tx")


@pytest.mark.scenario(93)
def test_transactions_are_listed_by_state_producer_duration_and_pattern(store: Store, world: World) -> None:
    ids = {}
    for number in range(4):
        name = f"{'special' if number % 2 else 'plain'}-{number}"
        end = "commit" if number == 3 else "open"
        ids[name] = write(world.process(), "t", end, transactional_id=name).producer_id
        world.pass_time(1_000)
    admin = store.admin

    def listed(**filters: object) -> list[str]:
        return [each.transactional_id for each in admin.list_transactions(**filters)]  # type: ignore[arg-type]

    assert listed() == ["plain-0", "special-1", "plain-2", "special-3"]
    assert listed(states=["Ongoing"]) == ["plain-0", "special-1", "plain-2"]
    assert listed(states=["CompleteCommit"]) == ["special-3"]
    assert listed(states=["Dead"]) == []
    assert admin.list_transactions(states=["Ongoing", "Unknown"]).unknown_states == ("Unknown",)
    assert listed(producer_ids=[ids["special-1"], 42]) == ["special-1"]
    assert [listed(running_longer_than_ms=each) for each in (0, 2_000, 3_000, 4_000)] == [
        ["plain-0", "special-1", "plain-2"],
        ["plain-0", "special-1"],
        ["plain-0"],
        [],
    ]
    assert listed(transactional_id_pattern="special-.*") == ["special-1", "special-3"]
    assert listed(transactional_id_pattern="pecial-.*") == []
    with pytest.raises(EosLogError, match="INVALID_REGULAR_EXPRESSION"):
        listed(transactional_id_pattern="(ab(cd")
