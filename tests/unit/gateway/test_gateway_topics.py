"""Requests for topics: metadata, creation and deletion, more partitions, and deletion of records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from eoslog.store import Store
from tests.unit.gateway.raw_client import Client, Transactional, batch, part, produce, running, versions_of
from tests.unit.support.world import World, faulty

SOON = timedelta(seconds=10)


def metadata(client: Client, *names: str | UUID, version: int = 12, everything: bool = False, **more: Any) -> Any:
    wanted = tuple(part(ApiKey.METADATA, version, "MetadataRequestTopic", **_topic(name, version)) for name in names)
    values: dict[str, Any] = {"topics": None if everything and version > 0 else wanted}
    if version >= 4:
        values["allow_auto_topic_creation"] = more.get("create", True)
    if version >= 8:
        values["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        values["include_cluster_authorized_operations"] = False
    return client.call(ApiKey.METADATA, version, **values)


def _topic(name: str | UUID, version: int) -> dict[str, Any]:
    if version < 10:
        return {"name": name}
    return {"name": None, "topic_id": name} if isinstance(name, UUID) else {"name": name, "topic_id": None}


@pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
def test_a_single_gateway_is_the_only_broker_and_leads_all_partitions(store: Store, version: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        answer = metadata(client, "t", version=version)

        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (gateway.node_id, "127.0.0.1", gateway.port)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "t")
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [
        (0, broker.node_id),
        (1, broker.node_id),
    ]
    if version >= 2:
        assert answer.cluster_id == store.describe().store_id


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_CLUSTER))
def test_a_single_gateway_is_the_cluster(store: Store, version: int) -> None:
    values: dict[str, Any] = {"include_cluster_authorized_operations": False}
    if version >= 1:
        values["endpoint_type"] = 1
    if version >= 2:
        values["include_fenced_brokers"] = True
    with running(store) as gateway, Client(gateway.port) as client:
        answer = client.call(ApiKey.DESCRIBE_CLUSTER, version, **values)

        (broker,) = answer.brokers
        assert (broker.broker_id, broker.host, broker.port) == (gateway.node_id, "127.0.0.1", gateway.port)
        assert (answer.error_code, answer.controller_id) == (ErrorCode.none, gateway.node_id)
        assert answer.cluster_id == store.describe().store_id
        if version >= 1:
            refused = [client.call(ApiKey.DESCRIBE_CLUSTER, version, **values | {"endpoint_type": n}) for n in (2, 3)]
            assert [each.error_code for each in refused] == [
                ErrorCode.mismatched_endpoint_type,
                ErrorCode.unsupported_endpoint_type,
            ]


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_topics_of_columns_are_not_offered(store: Store, version: int) -> None:
    store.admin.create_topic("columns", schema={"n": "long"})
    with running(store) as gateway, Client(gateway.port) as client:
        everything = metadata(client, version=version, everything=True)
        named = metadata(client, "columns", version=version)

    assert [each.name for each in everything.topics] == ["t"]
    assert [(each.name, each.error_code) for each in named.topics] == [("columns", ErrorCode.invalid_topic_exception)]


def test_topics_are_found_by_their_ids(store: Store) -> None:
    known = UUID(hex=store.admin.describe_topic("t").topic_id)
    with running(store) as gateway, Client(gateway.port) as client:
        found, missing = metadata(client, known, UUID(int=1)).topics

    assert (found.name, found.topic_id, found.error_code) == ("t", known, ErrorCode.none)
    assert missing.error_code is ErrorCode.unknown_topic_id


def test_a_topic_that_is_asked_for_many_times_is_described_once(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        answer = metadata(client, *(["t"] * 1_000), "none", create=False)
        assert [each.name for each in answer.topics] == ["t", "none"]


def test_topics_of_other_processes_are_found(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        world.process().admin.create_topic("new")
        world.process().admin.create_partitions("t", 5)
        new, grown = metadata(client, "new", "t").topics
        (answer,) = produce(client, ("new", 0, batch(b"v")))

    assert (len(new.partitions), len(grown.partitions), answer.base_offset) == (1, 5, 0)


def test_metadata_is_answered_while_the_store_is_down(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        faulty(store).go_down()
        (topic,) = metadata(client, "t").topics

        assert topic.error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("name", "code"),
    [("missing", ErrorCode.unknown_topic_or_partition), ("a b", ErrorCode.invalid_topic_exception)],
)
def test_missing_topics_are_not_created_by_default(store: Store, name: str, code: ErrorCode) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        assert [each.error_code for each in metadata(client, name).topics] == [code]

    assert store.admin.list_topics() == ["t"]


def test_missing_topics_are_created_if_the_gateway_and_the_client_want_it(store: Store, world: World) -> None:
    with running(store, auto_create_topics=True, default_partitions=3) as gateway, Client(gateway.port) as client:
        (refused,) = metadata(client, "not-wanted", create=False).topics
        (wrong,) = metadata(client, "a b").topics
        (created,) = metadata(client, "wanted").topics

    assert (refused.error_code, wrong.error_code) == (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_topic_exception,
    )
    assert (created.error_code, len(created.partitions)) == (ErrorCode.none, 3)
    assert world.process().admin.list_topics() == ["t", "wanted"]


# Creation and deletion


def create(client: Client, *topics: dict[str, Any], version: int = 5, validate_only: bool = False) -> list[Any]:
    key = ApiKey.CREATE_TOPICS
    wanted = tuple(
        part(
            key,
            version,
            "CreatableTopic",
            **{"num_partitions": 1, "replication_factor": 3, "assignments": (), "configs": ()} | topic,
        )
        for topic in topics
    )
    return list(client.call(key, version, topics=wanted, timeout=SOON, validate_only=validate_only).topics)


def config(name: str, value: str | None, version: int = 5) -> Any:
    return part(ApiKey.CREATE_TOPICS, version, "CreatableTopicConfig", name=name, value=value)


@pytest.mark.parametrize("version", versions_of(ApiKey.CREATE_TOPICS))
def test_topics_are_created(store: Store, version: int) -> None:
    given = {"cleanup.policy": "compact", "min.insync.replicas": "2", "message.timestamp.type": "CreateTime"}
    settings = tuple(config(name, value, version) for name, value in given.items())
    with running(store) as gateway, Client(gateway.port) as client:
        (answer,) = create(client, {"name": "new", "num_partitions": 4, "configs": settings}, version=version)

    topic = store.admin.describe_topic("new")
    assert (answer.error_code, topic.partitions, topic.config.cleanup_policy) == (ErrorCode.none, 4, "compact")
    if version >= 7:
        assert answer.topic_id == UUID(hex=topic.topic_id)


def test_each_topic_that_cannot_be_created_gets_its_own_error(store: Store) -> None:
    with running(store, default_partitions=2) as gateway, Client(gateway.port) as client:
        answers = create(
            client,
            {"name": "t"},
            {"name": "a b"},
            {"name": "T"},
            {"name": "none", "num_partitions": 0},
            {"name": "many", "num_partitions": 10_001},
            {"name": "unknown", "configs": (config("no.such.setting", "1"),)},
            {"name": "wrong", "configs": (config("cleanup.policy", "sometimes"),)},
            {"name": "late", "configs": (config("message.timestamp.type", "LogAppendTime"),)},
            {"name": "default", "num_partitions": -1},
        )
        checked = create(
            client,
            {"name": "a b"},
            {"name": "t"},
            {"name": "T"},
            {"name": "none", "num_partitions": 10_001},
            {"name": "wrong", "configs": (config("cleanup.policy", "sometimes"),)},
            {"name": "not-yet", "configs": (config("cleanup.policy", "compact"),)},
            validate_only=True,
        )

    assert [each.error_code for each in answers] == [
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_config,
        ErrorCode.invalid_config,
        ErrorCode.invalid_config,
        ErrorCode.none,
    ]
    assert [each.error_code for each in checked] == [
        ErrorCode.invalid_topic_exception,
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_config,
        ErrorCode.none,
    ]
    assert all(each.error_message for each in [*answers[:-1], *checked[:-1]])
    assert "in the column _commit_timestamp" in answers[-2].error_message
    assert store.admin.list_topics() == ["default", "t"]
    assert store.admin.describe_topic("default").partitions == 2


@pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_TOPICS))
def test_topics_are_deleted(store: Store, version: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:

        def delete(*names: str) -> list[ErrorCode]:
            key = ApiKey.DELETE_TOPICS
            values: dict[str, Any] = {"topic_names": names}
            if version >= 6:
                topics = (part(key, version, "DeleteTopicState", name=name, topic_id=None) for name in names)
                values = {"topics": tuple(topics)}
            return [each.error_code for each in client.call(key, version, timeout=SOON, **values).responses]

        assert delete("t", "missing") == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert store.admin.list_topics() == []
        (answer,) = produce(client, ("t", 0, batch(b"v")))
        assert answer.error_code is ErrorCode.unknown_topic_or_partition


def test_topics_are_deleted_by_their_ids(store: Store) -> None:
    key = ApiKey.DELETE_TOPICS
    known = UUID(hex=store.admin.describe_topic("t").topic_id)
    with running(store) as gateway, Client(gateway.port) as client:
        wanted = tuple(part(key, 6, "DeleteTopicState", name=None, topic_id=each) for each in (UUID(int=1), known))
        answers = client.call(key, 6, timeout=SOON, topics=wanted).responses

    assert [each.error_code for each in answers] == [ErrorCode.unknown_topic_id, ErrorCode.none]
    assert store.admin.list_topics() == []


# More partitions


def grow(
    client: Client,
    name: str,
    count: int,
    *,
    assignments: tuple[tuple[int, ...], ...] | None = None,
    version: int = 3,
    validate_only: bool = False,
) -> ErrorCode:
    key = ApiKey.CREATE_PARTITIONS
    if assignments is not None:
        given = (part(key, version, "CreatePartitionsAssignment", broker_ids=each) for each in assignments)
        wanted = part(key, version, "CreatePartitionsTopic", name=name, count=count, assignments=tuple(given))
    else:
        wanted = part(key, version, "CreatePartitionsTopic", name=name, count=count, assignments=None)
    (answer,) = client.call(key, version, topics=(wanted,), timeout=SOON, validate_only=validate_only).results
    code: ErrorCode = answer.error_code
    assert (answer.name, answer.error_message is None) == (name, code is ErrorCode.none)
    return code


@pytest.mark.parametrize("version", versions_of(ApiKey.CREATE_PARTITIONS))
def test_a_topic_gets_more_partitions(store: Store, world: World, version: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        assert grow(client, "t", 4, version=version) is ErrorCode.none
        (answer,) = produce(client, ("t", 3, batch(b"v")))

    assert answer.error_code is ErrorCode.none
    assert world.process().admin.describe_topic("t").partitions == 4


@pytest.mark.parametrize("validate_only", [False, True])
def test_partitions_are_added_only_to_existing_topics_and_within_limits(store: Store, validate_only: bool) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        counts = {n: grow(client, "t", n, validate_only=validate_only) for n in (2, 1, 0, -1, 10_001)}
        missing = [grow(client, "missing", n, validate_only=validate_only) for n in (5, 0)]
        assigned = grow(client, "t", 4, assignments=((0,),), validate_only=validate_only)

    assert set(counts.values()) == {ErrorCode.invalid_partitions}
    assert set(missing) == {ErrorCode.unknown_topic_or_partition}
    assert assigned is ErrorCode.invalid_replica_assignment
    assert store.admin.describe_topic("t").partitions == 2


def test_the_brokers_of_new_partitions_do_not_matter(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        assert grow(client, "t", 4, assignments=((0,), (7, 8))) is ErrorCode.none

    assert store.admin.describe_topic("t").partitions == 4


def test_partitions_are_not_added_if_they_are_only_validated(store: Store) -> None:
    slot = store.read(lambda state, slot: slot)
    with running(store) as gateway, Client(gateway.port) as client:
        assert grow(client, "t", 4, validate_only=True) is ErrorCode.none

    assert store.read(lambda state, slot: slot) == slot
    assert store.admin.describe_topic("t").partitions == 2


# Deletion of records


def delete_records(
    client: Client, *offsets: tuple[str, int, int], version: int = 2
) -> list[tuple[str, int, int, ErrorCode]]:
    """Delete records, and return the topic, partition, low watermark and code of each answer."""
    key = ApiKey.DELETE_RECORDS
    topics = tuple(
        part(
            key,
            version,
            "DeleteRecordsTopic",
            name=topic,
            partitions=(part(key, version, "DeleteRecordsPartition", partition_index=partition, offset=offset),),
        )
        for topic, partition, offset in offsets
    )
    return [
        (topic.name, each.partition_index, each.low_watermark, each.error_code)
        for topic in client.call(key, version, topics=topics, timeout=SOON).topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_RECORDS))
def test_records_are_deleted(store: Store, world: World, version: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"a", b"b", b"c")), ("t", 1, batch(b"d", b"e")))

        found = delete_records(client, ("t", 0, 2), ("t", 1, -1), version=version)

        assert found == [("t", 0, 2, ErrorCode.none), ("t", 1, 2, ErrorCode.none)]
        assert delete_records(client, ("t", 0, 1), version=version) == [("t", 0, 2, ErrorCode.none)]
    assert [each.earliest for each in world.process().admin.offsets("t")] == [2, 2]


def test_deletions_of_one_request_are_answered_one_by_one(store: Store) -> None:
    store.admin.create_topic("compacted", config={"cleanup.policy": "compact"})
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"a", b"b")), ("t", 1, batch(b"c")))
        wanted = [("t", 0, 1), ("t", 1, 2), ("t", 1, -2), ("t", -1, 0), ("t", 9, 0), ("no", 0, 0), ("compacted", 0, 0)]

        together = delete_records(client, *(each for each in wanted if each != ("t", 1, -2)))
        alone = [delete_records(client, each)[0] for each in wanted]

    codes = {
        ("t", 0): (1, ErrorCode.none),
        ("t", 1): (-1, ErrorCode.offset_out_of_range),
        ("t", -1): (-1, ErrorCode.unknown_topic_or_partition),
        ("t", 9): (-1, ErrorCode.unknown_topic_or_partition),
        ("no", 0): (-1, ErrorCode.unknown_topic_or_partition),
        ("compacted", 0): (-1, ErrorCode.policy_violation),
    }
    for found in (together, alone):
        assert {(topic, partition): answer for topic, partition, *answer in found} == {
            each: list(answer) for each, answer in codes.items()
        }


def test_records_of_an_open_transaction_are_not_deleted(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"decided")))
        producer = Transactional(client)
        producer.init()
        producer.add(0)
        producer.send(b"open")

        assert delete_records(client, ("t", 0, -1)) == [("t", 0, 1, ErrorCode.none)]
        assert delete_records(client, ("t", 0, 2)) == [("t", 0, -1, ErrorCode.offset_out_of_range)]


def test_deletions_are_repeated_when_the_store_is_down(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"a")), ("t", 1, batch(b"b")))
        faulty(store).go_down()

        codes = {code for *_, code in delete_records(client, ("t", 0, -1), ("t", 1, -1))}

    assert all(code.retriable for code in codes)
