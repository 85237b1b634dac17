"""The tests of librdkafka's own program that need a server of Kafka's protocol, and what each of them needs.

Tests without a server, and those with the program's own mock of a cluster, say nothing about the gateway. They are not
listed.
"""

from __future__ import annotations

from collections.abc import Mapping

GROUPS = "The gateway has no consumer groups yet: a consumer cannot subscribe."
SHARE_GROUPS = "eoslog has no share groups."
SECURITY = "The gateway has neither TLS nor SASL."
PARTITIONS = "The gateway cannot add partitions to a topic. `eoslog` can."
CONFIGURATION = "The gateway changes no configuration of a topic."
BROKERS = "The test needs several brokers in several racks."
FAILS_ON_KAFKA = "The test fails with one Kafka broker, too."

PASSES: tuple[str, ...] = (
    "0001_multiobj",
    "0002_unkpart",
    "0003_msgmaxsize",
    "0005_order",
    "0007_autotopic",
    "0008_reqacks",
    "0012_produce_consume",
    "0013_null_msgs",
    "0015_offsets_seek",
    "0016_client_swname",
    "0017_compression",
    "0021_rkt_destroy",
    "0031_get_offsets",
    "0034_offset_reset",
    "0035_api_version",
    "0036_partial_fetch",
    "0038_performance",
    "0039_event_dr",
    "0041_fetch_max_bytes",
    "0048_partitioner",
    "0051_assign_adds",
    "0054_offset_time",
    "0055_producer_latency",
    "0057_invalid_topic",
    "0059_bsearch",
    "0063_clusterid",
    "0065_yield",
    "0068_produce_timeout",
    "0070_null_empty",
    "0073_headers",
    "0075_retry",
    "0085_headers",
    "0086_purge_remote",
    "0088_produce_metadata_timeout",
    "0099_commit_metadata",
    "0114_sticky_partitioning",
    "0123_connections_max_idle",
    "0127_fetch_queue_backoff",
    "0130_store_offsets",
    "0140_commit_metadata",
)
"""They pass on each store with a gateway that creates missing topics with four partitions."""

_GROUP_TESTS = """
    0014_reconsume_191 0018_cgrp_term 0019_list_groups 0020_destroy_hang 0026_consume_pause 0029_assign_offset
    0030_offset_commit 0033_regex_subscribe 0040_io_event 0045_subscribe_update 0045_subscribe_update_topic_remove
    0045_subscribe_update_non_exist_and_partchange 0045_resubscribe_with_regex 0045_subscribe_many_updates
    0049_consume_conn_close 0050_subscribe_adds 0056_balanced_group_mt 0060_op_prio 0061_consumer_lag
    0064_interceptors 0069_consumer_add_parts 0083_cb_event 0084_destroy_flags 0089_max_poll_interval
    0091_max_poll_interval_timeout 0093_holb_consumer 0102_static_group_rebalance
    0107_topic_recreate 0113_cooperative_rebalance 0118_commit_rebalance 0122_buffer_cleaning_after_rebalance
    0132_strategy_ordering 0137_barrier_batch_consume
"""
_SHARE_GROUP_TESTS = """
    0170_share_consumer_subscription 0171_share_consumer_consume 0172_share_consumer_acknowledge
    0173_share_consumer_commit_async 0174_share_consumer_concurrency 0175_share_consumer_groups
    0176_share_consumer_commit_sync 0177_share_consumer_transactions 0178_share_consumer_close
    0179_share_consumer_destroy 0180_share_consumer_config 0181_share_consumer_topic_delete
    0184_share_consumer_topic_recreate 0185_share_consumer_max_poll_interval
"""
_SECURITY_TESTS = """
    0097_ssl_verify 0115_producer_auth 0119_consumer_auth 0126_oauthbearer_oidc 0135_sasl_credentials
    0142_reauthentication
"""

_NO_RAPIDJSON = "librdkafka leaves the test out without RapidJSON."
_READS_AS_GROUP = f"{GROUPS} All rows are written; the test reads them as a member of a group."

REASONS: Mapping[str, str] = (
    dict.fromkeys(_GROUP_TESTS.split(), GROUPS)
    | dict.fromkeys(_SHARE_GROUP_TESTS.split(), SHARE_GROUPS)
    | dict.fromkeys(_SECURITY_TESTS.split(), SECURITY)
    | {
        "0011_produce_batch": f"{CONFIGURATION} The last part of the test makes a topic compacted. The others pass.",
        "0022_consume_batch": f"{GROUPS} The first part of the test passes: it assigns partitions.",
        "0028_long_topicnames": "librdkafka leaves the test out itself, as a known fault of the client.",
        "0042_many_topics": f"{GROUPS} The first part of the test passes: it assigns partitions.",
        "0044_partition_cnt": PARTITIONS,
        "0047_partial_buf_tmout": "librdkafka leaves the test out itself, as a known fault of the client.",
        "0052_msg_timestamps": f"{CONFIGURATION} The test makes topics whose rows have the broker's time.",
        "0053_stats": _NO_RAPIDJSON,
        "0067_empty_topic": f"{GROUPS} The first part of the test passes: it assigns partitions.",
        "0077_compaction": f"{CONFIGURATION} The test makes a topic compacted.",
        "0081_admin": f"{FAILS_ON_KAFKA} It also needs groups and configurations.",
        "0082_fetch_max_bytes": "The test is left out in the program's quick mode.",
        "0076_produce_retry": _READS_AS_GROUP,
        "0090_idempotence": _READS_AS_GROUP,
        "0092_mixed_msgver": "librdkafka leaves the test out: Kafka 4 has no old message formats, either.",
        "0094_idempotence_msg_timeout": _READS_AS_GROUP,
        "0098_consumer_txn": _NO_RAPIDJSON,
        "0101_fetch_from_follower": BROKERS,
        "0103_transactions": f"{GROUPS} The test subscribes to read what it has written.",
        "0109_auto_create_topics": f"{FAILS_ON_KAFKA} It also needs groups.",
        "0110_batch_size": _NO_RAPIDJSON,
        "0111_delay_create_topics": "The test needs a gateway that creates no topics by itself.",
        "0112_assign_unknown_part": PARTITIONS,
        "0125_immediate_flush": _READS_AS_GROUP,
        "0129_fetch_aborted_msgs": f"{CONFIGURATION} The test makes a topic with a largest size of messages.",
        "0139_offset_validation_mock": "The test has a mock of its own.",
        "0150_telemetry_mock": "The test has a mock of its own.",
    }
)
"""Why each other test does not pass, or does not apply. A reason names the first thing that the test needs."""
