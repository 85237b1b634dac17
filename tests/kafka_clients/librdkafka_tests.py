"""The tests of librdkafka's own program that need a server of Kafka's protocol, and what each of them needs.

Tests without a server, and those with the program's own mock of a cluster, say nothing about the gateway. They are not
listed.
"""

from __future__ import annotations

from collections.abc import Mapping

SHARE_GROUPS = "eoslog has no share groups."
SECURITY = "The gateway of this run has neither TLS nor SASL."
BROKERS = "The test needs several brokers in several racks."
ACLS = "The gateway has no access control lists."

_QUICK = """
    0001_multiobj 0002_unkpart 0003_msgmaxsize 0005_order 0007_autotopic 0008_reqacks 0011_produce_batch
    0012_produce_consume 0013_null_msgs 0014_reconsume_191 0015_offsets_seek 0016_client_swname 0017_compression
    0020_destroy_hang 0021_rkt_destroy 0022_consume_batch 0029_assign_offset 0030_offset_commit 0031_get_offsets
    0033_regex_subscribe 0034_offset_reset 0035_api_version 0036_partial_fetch 0038_performance 0039_event_dr
    0040_io_event 0041_fetch_max_bytes 0042_many_topics 0044_partition_cnt 0048_partitioner 0049_consume_conn_close
    0051_assign_adds 0053_stats 0054_offset_time 0055_producer_latency 0056_balanced_group_mt 0057_invalid_topic
    0059_bsearch 0060_op_prio 0063_clusterid 0064_interceptors 0065_yield 0067_empty_topic 0068_produce_timeout
    0069_consumer_add_parts 0070_null_empty 0073_headers 0075_retry 0076_produce_retry 0083_cb_event
    0084_destroy_flags 0085_headers 0086_purge_remote 0088_produce_metadata_timeout 0090_idempotence
    0091_max_poll_interval_timeout 0093_holb_consumer 0094_idempotence_msg_timeout 0098_consumer_txn
    0099_commit_metadata 0103_transactions 0110_batch_size 0112_assign_unknown_part 0113_cooperative_rebalance
    0114_sticky_partitioning 0118_commit_rebalance 0123_connections_max_idle 0125_immediate_flush
    0127_fetch_queue_backoff 0129_fetch_aborted_msgs 0130_store_offsets 0137_barrier_batch_consume
    0140_commit_metadata
"""
QUICK = tuple(_QUICK.split())
"""They pass in the program's quick mode, with a gateway that creates missing topics with four partitions."""

_WHOLE = """
    0018_cgrp_term 0019_list_groups 0026_consume_pause 0045_resubscribe_with_regex 0045_subscribe_many_updates
    0045_subscribe_update 0050_subscribe_adds 0061_consumer_lag 0082_fetch_max_bytes 0089_max_poll_interval
    0102_static_group_rebalance 0122_buffer_cleaning_after_rebalance 0132_strategy_ordering
"""
WHOLE = tuple(_WHOLE.split())
"""They pass with the same gateway. The quick mode leaves them out, or all parts of them."""

_WITHOUT_CREATION = """
    0045_subscribe_update_non_exist_and_partchange 0045_subscribe_update_topic_remove 0107_topic_recreate
    0111_delay_create_topics
"""
WITHOUT_CREATION = tuple(_WITHOUT_CREATION.split())
"""They pass with a gateway that creates no topics by itself."""

PASSES = (*QUICK, *WHOLE, *WITHOUT_CREATION)
"""They have to pass on each store."""

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


REASONS: Mapping[str, str] = (
    dict.fromkeys(_SHARE_GROUP_TESTS.split(), SHARE_GROUPS)
    | dict.fromkeys(_SECURITY_TESTS.split(), SECURITY)
    | {
        "0028_long_topicnames": "librdkafka leaves the test out itself, as a known fault of the client.",
        "0047_partial_buf_tmout": "librdkafka leaves the test out itself, as a known fault of the client.",
        "0052_msg_timestamps": "Rows have the producer's time. The test makes topics whose rows have the broker's.",
        "0077_compaction": "The test waits for a compaction, which `eoslog coordinator` does, and no gateway.",
        "0081_admin": ACLS,
        "0092_mixed_msgver": "librdkafka leaves the test out: Kafka 4 has no old message formats, either.",
        "0101_fetch_from_follower": BROKERS,
        "0109_auto_create_topics": ACLS,
        "0139_offset_validation_mock": "The test has a mock of its own.",
        "0150_telemetry_mock": "The test has a mock of its own.",
    }
)
"""Why each other test does not pass, or does not apply. A reason names the first thing that the test needs."""
