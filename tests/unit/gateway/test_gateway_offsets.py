"""Requests for offsets."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from eoslog.store import Store
from tests.unit.gateway.raw_client import Client, batch, part, produce, running, versions_of
from tests.unit.support.partitions import write
from tests.unit.support.world import World, faulty

EARLIEST, LATEST, LARGEST, EARLIEST_LOCAL = -2, -1, -3, -4
FIRST_MS = 1_700_000_000_000


def offset(
    client: Client, timestamp: int, *, topic: str = "t", partition: int = 0, isolation: int = 0, version: int = 8
) -> tuple[ErrorCode, int, int]:
    key = ApiKey.LIST_OFFSETS
    wanted = part(key, version, "ListOffsetsPartition", partition_index=partition, timestamp=timestamp)
    values = {
        "replica_id": -1,
        "topics": (part(key, version, "ListOffsetsTopic", name=topic, partitions=(wanted,)),),
    }
    if version >= 2:
        values["isolation_level"] = isolation
    (found,) = client.call(key, version, **values).topics[0].partitions
    return found.error_code, found.offset, found.timestamp


@pytest.mark.parametrize("version", versions_of(ApiKey.LIST_OFFSETS))
def test_a_partition_starts_at_its_first_row_and_ends_behind_its_last_one(store: Store, version: int) -> None:
    write(store, "t", "commit", "commit", "commit")
    store.admin.delete_records({("t", 0): 2})
    with running(store) as gateway, Client(gateway.port) as client:
        assert offset(client, EARLIEST, version=version) == (ErrorCode.none, 2, -1)
        assert offset(client, LATEST, version=version) == (ErrorCode.none, 6, -1)


def test_the_latest_offset_depends_on_the_isolation_level(store: Store) -> None:
    write(store, "t", "commit", "open")
    with running(store) as gateway, Client(gateway.port) as client:
        assert offset(client, LATEST, isolation=0) == (ErrorCode.none, 3, -1)
        assert offset(client, LATEST, isolation=1) == (ErrorCode.none, 2, -1)


def test_a_time_finds_the_first_row_that_is_not_older(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        assert offset(client, LARGEST) == (ErrorCode.none, -1, -1)
        assert offset(client, 0) == (ErrorCode.none, -1, -1)
        produce(client, ("t", 0, batch(b"a", b"b", b"c")))

        assert offset(client, 0) == (ErrorCode.none, 0, FIRST_MS)
        assert offset(client, FIRST_MS + 1) == (ErrorCode.none, 1, FIRST_MS + 1)
        assert offset(client, FIRST_MS + 3) == (ErrorCode.none, -1, -1)
        assert offset(client, LARGEST) == (ErrorCode.none, 2, FIRST_MS + 2)
        assert offset(client, EARLIEST_LOCAL) == (ErrorCode.none, 0, -1)
        assert offset(client, -9)[0] is ErrorCode.unsupported_version


def test_offsets_of_other_processes_are_the_newest_ones(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        write(world.process(), "t", "commit")

        assert offset(client, LATEST) == (ErrorCode.none, 2, -1)


def test_an_end_that_may_be_old_is_not_answered(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        faulty(store).go_down()
        code, found, _ = offset(client, LATEST)
        faulty(store).heal()

        assert code.retriable
        assert found == -1


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("t", 7), ("t", -1)])
def test_a_partition_that_does_not_exist_has_no_offsets(store: Store, topic: str, partition: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        found = offset(client, LATEST, topic=topic, partition=partition)

    assert found == (ErrorCode.unknown_topic_or_partition, -1, -1)


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_all_rows_belong_to_one_leader_epoch(store: Store, version: int) -> None:
    write(store, "t", "commit")
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    with running(store) as gateway, Client(gateway.port) as client:

        def end(epoch: int, partition: int = 0) -> tuple[ErrorCode, int, int]:
            wanted = part(key, version, "OffsetForLeaderPartition", partition=partition, leader_epoch=epoch)
            topic = part(key, version, "OffsetForLeaderTopic", topic="t", partitions=(wanted,))
            (found,) = client.call(key, version, topics=(topic,)).topics[0].partitions
            return found.error_code, found.leader_epoch, found.end_offset

        assert end(0) == (ErrorCode.none, 0, 2)
        assert end(5) == (ErrorCode.none, -1, -1)
        assert end(0, partition=9) == (ErrorCode.unknown_topic_or_partition, -1, -1)
