"""Requests for settings: descriptions, and changes of topics as a whole or one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from eoslog.gateway.security import security
from eoslog.state.entries import TopicConfig
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.certificates import write_certificate
from tests.unit.gateway.raw_client import Client, part, running, versions_of
from tests.unit.support.world import World

TOPIC, BROKER, OTHER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def config_of(store: Store, topic: str = "t") -> TopicConfig:
    return store.admin.describe_topic(topic).config


# Descriptions


def describe(client: Client, *resources: tuple[int, str, tuple[str, ...] | None], version: int = 4) -> list[Any]:
    key = ApiKey.DESCRIBE_CONFIGS
    wanted = tuple(
        part(key, version, "DescribeConfigsResource", resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in resources
    )
    values: dict[str, Any] = {"resources": wanted, "include_synonyms": False}
    if version >= 3:
        values["include_documentation"] = False
    return list(client.call(key, version, **values).results)


def test_the_address_of_a_gateway_has_the_protocol_of_its_connections(store: Store, tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    tls = security(Environment(), tls_certificate=files.certificate, tls_key=files.key)
    with running(store, security=tls) as gateway, Client(gateway.port, tls=files.client_context()) as client:
        (broker,) = describe(client, (BROKER, "", ("advertised.listeners",)))

        assert [each.value for each in broker.configs] == [f"SSL://127.0.0.1:{gateway.port}"]


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_CONFIGS))
def test_settings_are_described(store: Store, version: int) -> None:
    store.admin.create_topic("kept", config={"retention.ms": "3600000"})
    with running(store, default_partitions=7) as gateway, Client(gateway.port) as client:
        topic, missing, broker, other = describe(
            client,
            (TOPIC, "kept", None),
            (TOPIC, "missing", None),
            (BROKER, str(gateway.node_id), ("num.partitions", "advertised.listeners", "auto.create.topics.enable")),
            (OTHER, "x", None),
            version=version,
        )

        found = {each.name: (each.value, each.config_source) for each in topic.configs}
        assert found["retention.ms"] == ("3600000", 1)
        assert found["cleanup.policy"] == ("delete", 5)
        assert found["max.message.bytes"] == (str(16 << 20), 5)
        assert {each.name: each.value for each in broker.configs} == {
            "num.partitions": "7",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{gateway.port}",
            "auto.create.topics.enable": "false",
        }
    assert ({each.read_only for each in topic.configs}, {each.read_only for each in broker.configs}) == (
        {False},
        {True},
    )
    if version >= 3:
        types = {each.name: each.config_type for each in (*topic.configs, *broker.configs)}
        assert types["retention.ms"] == types["max.message.bytes"] == types["num.partitions"] == 5
        assert types["cleanup.policy"] == types["publish"] == types["advertised.listeners"] == 7
        assert (types["min.cleanable.dirty.ratio"], types["auto.create.topics.enable"]) == (6, 1)
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert other.error_code is ErrorCode.invalid_request


def test_the_listener_has_the_protocol_of_its_connections(store: Store, tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    tls = security(Environment(), tls_certificate=files.certificate, tls_key=files.key)
    with running(store, security=tls) as gateway, Client(gateway.port, tls=files.client_context()) as client:
        (broker,) = describe(client, (BROKER, str(gateway.node_id), ("advertised.listeners",)))

    assert [each.value for each in broker.configs] == [f"SSL://127.0.0.1:{gateway.port}"]


def test_settings_are_those_that_another_process_gave(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        world.process().admin.alter_topic("t", max_message_bytes=1000)
        (topic,) = describe(client, (TOPIC, "t", ("max.message.bytes",)))

    assert [(each.value, each.config_source) for each in topic.configs] == [("1000", 1)]


# Changes one by one


def increment(
    client: Client,
    *changes: tuple[str, int, str | None],
    topic: str = "t",
    kind: int = TOPIC,
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    configs = tuple(
        part(key, version, "AlterableConfig", name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    )
    resource = part(key, version, "AlterConfigsResource", resource_type=kind, resource_name=topic, configs=configs)
    (answer,) = client.call(key, version, resources=(resource,), validate_only=validate_only).responses
    assert (answer.resource_type, answer.resource_name) == (kind, topic)
    assert (answer.error_code is ErrorCode.none) == (answer.error_message is None)
    return answer


@pytest.mark.parametrize("version", versions_of(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_settings_change_one_by_one(store: Store, world: World, version: int) -> None:
    store.admin.alter_topic("t", segment_ms=7, segment_batches=5)
    with running(store) as gateway, Client(gateway.port) as client:
        changes = (
            ("retention.ms", SET, "1000"),
            ("segment.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
            ("publish", APPEND, "delta"),
            ("min.insync.replicas", SET, "2"),
            ("message.timestamp.type", SET, "CreateTime"),
        )
        assert increment(client, *changes, version=version).error_code is ErrorCode.none

    assert config_of(world.process()) == TopicConfig(
        retention_ms=1000, segment_batches=5, cleanup_policy="compact,delete", publish="delta"
    )


@pytest.mark.parametrize(
    ("name", "before", "operation", "value", "after"),
    [
        ("cleanup.policy", "delete", APPEND, "compact", "compact,delete"),
        ("cleanup.policy", "delete", APPEND, "delete,compact", "compact,delete"),
        ("cleanup.policy", "compact,delete", SUBTRACT, "compact", "delete"),
        ("cleanup.policy", "delete", SUBTRACT, "compact", "delete"),
        ("cleanup.policy", "delete", SUBTRACT, "delete", None),
        ("cleanup.policy", "delete", APPEND, "remove", None),
        ("publish", "none", APPEND, "iceberg", "iceberg"),
        ("publish", "iceberg", APPEND, "delta", "delta,iceberg"),
        ("publish", "delta,iceberg", SUBTRACT, "iceberg,delta", "none"),
        ("publish", "delta", APPEND, "hudi", None),
    ],
)
def test_elements_of_lists_are_added_and_removed(
    store: Store, name: str, before: str, operation: int, value: str, after: str | None
) -> None:
    field = name.replace(".", "_")
    store.admin.alter_topic("t", **{field: before})
    with running(store) as gateway, Client(gateway.port) as client:
        code = increment(client, (name, operation, value)).error_code

    assert code is (ErrorCode.invalid_config if after is None else ErrorCode.none)
    assert getattr(config_of(store), field) == (before if after is None else after)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("no.such.setting", SET, "1"), ErrorCode.invalid_config, "is unknown"),
        (("no.such.setting", DELETE, None), ErrorCode.invalid_config, "is unknown"),
        (("message.timestamp.type", SET, "LogAppendTime"), ErrorCode.invalid_config, "in the column _commit_timestamp"),
        (("retention.ms", SET, "7d"), ErrorCode.invalid_config, "setting retention.ms cannot be '7d'"),
        (("max.message.bytes", SET, "-1"), ErrorCode.invalid_config, "setting max.message.bytes cannot be"),
        (("iceberg.format.version", SET, "2"), ErrorCode.invalid_config, "cannot decrease"),
        (("retention.ms", APPEND, "5"), ErrorCode.invalid_config, "is no list"),
        (("retention.ms", SUBTRACT, "5"), ErrorCode.invalid_config, "is no list"),
        (("retention.ms", SET, None), ErrorCode.invalid_request, "has no value"),
        (("cleanup.policy", APPEND, None), ErrorCode.invalid_request, "has no value"),
        (("retention.ms", 4, "5"), ErrorCode.invalid_request, "operation 4 is unknown"),
        (("segment.ms", SET, "5"), ErrorCode.invalid_request, "given twice"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_wrong_settings_change_nothing(
    store: Store, change: tuple[str, int, str | None], code: ErrorCode, message: str, validate_only: bool
) -> None:
    store.admin.alter_topic("t", iceberg_format_version=3)
    before = config_of(store)
    with running(store) as gateway, Client(gateway.port) as client:
        answer = increment(client, ("segment.ms", SET, "7"), change, validate_only=validate_only)

    assert (answer.error_code, config_of(store)) == (code, before)
    assert message in answer.error_message


def test_settings_are_not_changed_if_they_are_only_validated(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        changes = (("retention.ms", SET, "1000"), ("cleanup.policy", APPEND, "compact"))
        assert increment(client, *changes, validate_only=True).error_code is ErrorCode.none
        assert replace(client, {"retention.ms": "1000"}, validate_only=True).error_code is ErrorCode.none

    assert config_of(store) == TopicConfig()


def test_rows_keep_the_time_of_their_producer(store: Store) -> None:
    setting = "message.timestamp.type"
    with running(store) as gateway, Client(gateway.port) as client:
        replaced = replace(client, {setting: "CreateTime", "retention.ms": "5"})
        deleted = increment(client, (setting, DELETE, "LogAppendTime"))
        refused = [increment(client, (setting, SET, "LogAppendTime")), replace(client, {setting: "LogAppendTime"})]

    assert replaced.error_code is deleted.error_code is ErrorCode.none
    assert [each.error_code for each in refused] == [ErrorCode.invalid_config] * 2
    assert config_of(store) == TopicConfig(retention_ms=5)


def test_clients_may_change_the_settings_of_topics_only(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        broker = increment(client, ("num.partitions", SET, "3"), topic="1", kind=BROKER)
        other = increment(client, ("x", SET, "3"), kind=OTHER)
        missing = increment(client, ("min.insync.replicas", SET, "3"), topic="missing")
        replaced = replace(client, {"num.partitions": "3"}, topic="1", kind=BROKER)

    assert broker.error_code is other.error_code is replaced.error_code is ErrorCode.invalid_request
    assert "options of its command" in broker.error_message
    assert missing.error_code is ErrorCode.unknown_topic_or_partition


# Changes as a whole


def replace(
    client: Client,
    settings: dict[str, str | None],
    *,
    topic: str = "t",
    kind: int = TOPIC,
    version: int = 2,
    validate_only: bool = False,
) -> Any:
    key = ApiKey.ALTER_CONFIGS
    configs = tuple(part(key, version, "AlterableConfig", name=name, value=value) for name, value in settings.items())
    resource = part(key, version, "AlterConfigsResource", resource_type=kind, resource_name=topic, configs=configs)
    (answer,) = client.call(key, version, resources=(resource,), validate_only=validate_only).responses
    assert (answer.resource_type, answer.resource_name) == (kind, topic)
    return answer


@pytest.mark.parametrize("version", versions_of(ApiKey.ALTER_CONFIGS))
def test_settings_of_kafka_are_replaced_and_those_of_eoslog_stay(store: Store, world: World, version: int) -> None:
    of_eoslog = {"segment_batches": 5, "statistics_columns": 3, "iceberg_format_version": 3, "publish": "iceberg"}
    store.admin.alter_topic("t", retention_ms=1000, max_message_bytes=7, cleanup_policy="compact", **of_eoslog)
    with running(store) as gateway, Client(gateway.port) as client:
        given: dict[str, str | None] = {"segment.ms": "9", "segment.batches": "6", "compression.type": "gzip"}
        assert replace(client, given, version=version).error_code is ErrorCode.none

    assert config_of(world.process()) == TopicConfig(segment_ms=9, **of_eoslog | {"segment_batches": 6})


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"retention.ms": None}, ErrorCode.invalid_request),
        ({"retention.ms": "soon"}, ErrorCode.invalid_config),
        ({"no.such.setting": "1"}, ErrorCode.invalid_config),
    ],
)
def test_wrong_settings_replace_nothing(store: Store, settings: dict[str, str | None], code: ErrorCode) -> None:
    store.admin.alter_topic("t", segment_ms=7)
    with running(store) as gateway, Client(gateway.port) as client:
        assert replace(client, settings).error_code is code

    assert config_of(store) == TopicConfig(segment_ms=7)
