"""Requests for topics: metadata, creation, deletion and settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import VERSIONS, ApiKey
from eoslog.store import Store
from tests.unit.gateway.raw_client import Client, batch, part, produce, running
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


@pytest.mark.parametrize("version", VERSIONS[ApiKey.METADATA])
def test_the_gateway_is_the_only_broker_and_leads_all_partitions(store: Store, version: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        answer = metadata(client, "t", version=version)

        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", gateway.port)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "t")
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, 1), (1, 1)]
    if version >= 2:
        assert answer.cluster_id == store.describe().store_id


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


@pytest.mark.parametrize("version", VERSIONS[ApiKey.CREATE_TOPICS])
def test_topics_are_created(store: Store, version: int) -> None:
    settings = (config("cleanup.policy", "compact", version), config("min.insync.replicas", "2", version))
    with running(store) as gateway, Client(gateway.port) as client:
        (answer,) = create(client, {"name": "new", "num_partitions": 4, "configs": settings}, version=version)

    topic = store.admin.describe_topic("new")
    assert (answer.error_code, topic.partitions, topic.config.cleanup_policy) == (ErrorCode.none, 4, "compact")
    if version >= 7:
        assert answer.topic_id == UUID(hex=topic.topic_id)


def test_topics_that_cannot_be_created(store: Store) -> None:
    with running(store, default_partitions=2) as gateway, Client(gateway.port) as client:
        answers = create(
            client,
            {"name": "t"},
            {"name": "a b"},
            {"name": "none", "num_partitions": 0},
            {"name": "unknown", "configs": (config("no.such.setting", "1"),)},
            {"name": "wrong", "configs": (config("cleanup.policy", "sometimes"),)},
            {"name": "default", "num_partitions": -1},
        )
        assert create(client, {"name": "not yet"}, {"name": "t"}, {"name": "ok"}, validate_only=True)[2].error_code is (
            ErrorCode.none
        )

    assert [each.error_code for each in answers] == [
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_config,
        ErrorCode.invalid_config,
        ErrorCode.none,
    ]
    assert all(each.error_message for each in answers[:-1])
    assert store.admin.list_topics() == ["default", "t"]
    assert store.admin.describe_topic("default").partitions == 2


@pytest.mark.parametrize("version", VERSIONS[ApiKey.DELETE_TOPICS])
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


@pytest.mark.parametrize("version", VERSIONS[ApiKey.DESCRIBE_CONFIGS])
def test_settings_are_described(store: Store, version: int) -> None:
    store.admin.create_topic("kept", config={"retention.ms": "3600000"})
    key = ApiKey.DESCRIBE_CONFIGS
    wanted = tuple(
        part(key, version, "DescribeConfigsResource", resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in ((2, "kept", None), (2, "missing", None), (4, "1", ("num.partitions",)), (8, "x", None))
    )
    with running(store, default_partitions=7) as gateway, Client(gateway.port) as client:
        topic, missing, broker, other = client.call(key, version, resources=wanted).results

    found = {each.name: (each.value, each.config_source) for each in topic.configs}
    assert found["retention.ms"] == ("3600000", 1)
    assert found["cleanup.policy"] == ("delete", 5)
    assert [(each.name, each.value) for each in broker.configs] == [("num.partitions", "7")]
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert other.error_code is ErrorCode.invalid_request
