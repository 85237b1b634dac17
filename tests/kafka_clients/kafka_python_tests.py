"""kafka-python's own integration tests, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping

BROKERS = "The test is about a broker's disks, replicas or access rules. A store has none."
PARTITION_DESCRIPTIONS = (
    "The gateway does not answer `DescribeTopicPartitions`. Clients with a fallback send `Metadata` instead."
)
SECURITY = "The gateway of this run has neither TLS nor SASL."

PASSES: tuple[str, ...] = (
    "test_admin_integration.py::test_create_delete_topics",
    "test_admin_integration.py::test_create_partitions",
    "test_admin_integration.py::test_delete_groups",
    "test_admin_integration.py::test_delete_groups_with_errors",
    "test_admin_integration.py::test_delete_records",
    "test_admin_integration.py::test_delete_records_with_errors",
    "test_admin_integration.py::test_describe_configs_broker_resource_returns_configs",
    "test_admin_integration.py::test_describe_configs_invalid_broker_id_raises",
    "test_admin_integration.py::test_describe_configs_mixed_resources_returns_configs",
    "test_admin_integration.py::test_describe_configs_topic_resource_returns_configs",
    "test_admin_integration.py::test_describe_group_exists",
    "test_admin_integration.py::test_list_partition_offsets",
    "test_consumer_integration.py::test_consumer",
    "test_consumer_integration.py::test_consumer_topics",
    "test_consumer_integration.py::test_heartbeat_thread",
    "test_consumer_integration.py::test_kafka_consumer",
    "test_consumer_integration.py::test_kafka_consumer__blocking",
    "test_consumer_integration.py::test_kafka_consumer__offset_commit_resume",
    "test_consumer_integration.py::test_kafka_consumer_max_bytes_one_msg",
    "test_consumer_integration.py::test_kafka_consumer_max_bytes_simple",
    "test_consumer_integration.py::test_kafka_consumer_offsets_for_time",
    "test_consumer_integration.py::test_kafka_consumer_offsets_for_times_errors",
    "test_consumer_integration.py::test_kafka_consumer_offsets_search_many_partitions",
    "test_consumer_integration.py::test_kafka_consumer_position_after_seek_to_end",
    "test_consumer_integration.py::test_paused",
    "test_producer_integration.py::test_end_to_end[None]",
    "test_producer_integration.py::test_end_to_end[gzip]",
    "test_producer_integration.py::test_end_to_end[lz4]",
    "test_producer_integration.py::test_end_to_end[snappy]",
    "test_producer_integration.py::test_end_to_end[zstd]",
    "test_producer_integration.py::test_idempotent_producer",
    "test_producer_integration.py::test_idempotent_producer_high_throughput",
    "test_producer_integration.py::test_idempotent_producer_max_in_flight[1]",
    "test_producer_integration.py::test_idempotent_producer_max_in_flight[2]",
    "test_producer_integration.py::test_idempotent_producer_max_in_flight[5]",
    "test_producer_integration.py::test_kafka_producer_proper_record_metadata[None]",
    "test_producer_integration.py::test_kafka_producer_proper_record_metadata[gzip]",
    "test_producer_integration.py::test_kafka_producer_proper_record_metadata[lz4]",
    "test_producer_integration.py::test_kafka_producer_proper_record_metadata[snappy]",
    "test_producer_integration.py::test_kafka_producer_proper_record_metadata[zstd]",
    "test_producer_integration.py::test_transactional_producer_messages",
    "test_producer_integration.py::test_transactional_producer_offsets",
)
"""They pass on each store with a gateway that creates missing topics with four partitions."""

SUBSCRIBES_WHILE_CONNECTING: tuple[str, ...] = tuple(
    name for name in PASSES if "::test_end_to_end[" in name or "::test_idempotent_producer_max_in_flight[" in name
)
"""Tests that get a second run: they subscribe while the consumer connects.

kafka-python sometimes loses the subscription, with a Kafka broker, too: it sends no request for the topic for five
minutes.
"""

_TESTS_OF_BROKERS = """
    test_alter_partition_reassignments test_alter_replica_log_dirs test_create_describe_delete_acls
    test_describe_log_dirs test_describe_metadata_quorum test_elect_leaders test_list_partition_reassignments
"""
_TESTS_OF_SECURITY = """
    test_sasl_integration.py::test_admin test_sasl_integration.py::test_client
    test_sasl_integration.py::test_produce_and_consume test_ssl_integration.py::test_legacy_kafka_client_ssl
    test_ssl_integration.py::test_ssl_handshake
"""
_ADMIN, _CONSUMER = "test_admin_integration.py::", "test_consumer_integration.py::"

REASONS: Mapping[str, str] = (
    dict.fromkeys([_ADMIN + name for name in _TESTS_OF_BROKERS.split()], BROKERS)
    | dict.fromkeys(_TESTS_OF_SECURITY.split(), SECURITY)
    | {
        _ADMIN + "test_describe_topic_partitions": PARTITION_DESCRIPTIONS,
        _ADMIN + "test_describe_topic_partitions_pagination": PARTITION_DESCRIPTIONS,
        _ADMIN + "test_list_config_resources": "The gateway does not answer `ListConfigResources`.",
        _CONSUMER + "test_group": "The test fails with a Kafka broker, too: its sessions are shorter than "
        "`group.min.session.timeout.ms`, which is 6 s for both.",
        _CONSUMER + "test_kafka_consumer_offsets_for_time_old": "The test is for brokers before Kafka 0.10.1.",
        _CONSUMER + "test_kafka_consumer_unsupported_encoding": "The gateway answers without compression. "
        "The test needs batches as the producer compressed them.",
        _CONSUMER + "test_kafka_version_infer": "The versions of the gateway's requests are not those of one release.",
    }
)
"""Why each other test does not pass or does not apply. A reason names the first thing that the test needs."""
