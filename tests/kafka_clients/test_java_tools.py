"""Kafka's own tools write to topics through the gateway and read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from eoslog import TopicConfig
from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served

needs_java = pytest.mark.skipif(
    shutil.which("java") is None or not any(java_tools.JARS.glob("kafka-tools-*.jar")),
    reason="there is no Java, or no Kafka in .cache/kafka-clients: run make test-kafka-clients",
)
pytestmark = [pytest.mark.slow, needs_java]


def test_a_java_producer_writes_each_record_once_and_knows_its_offset(served: Served, tmp_path: Path) -> None:
    topic = served.new_topic(partitions=3)
    command = java_tools.verifiable_producer(
        served.servers, topic, tmp_path, records=2_000, settings={"enable.idempotence": "true", "retries": "100"}
    )

    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    sent = [event for event in java_tools.events(done.stdout) if event["name"] == "producer_send_success"]
    assert done.returncode == 0, done.stdout[-2000:]
    assert {(event["partition"], event["offset"], event["value"].encode()) for event in sent} == {
        (row["partition"], row["offset"], row["value"]) for row in served.rows(topic)
    }
    assert len(sent) == 2_000


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_performance_tool_writes_all_its_records(served: Served, compression: str) -> None:
    topic = served.new_topic()

    printed = java_tools.run(
        "ProducerPerformance",
        *("--bootstrap-server", served.servers, "--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"compression.type={compression}"),
    )

    assert re.search(r"^5000 records sent", printed, re.MULTILINE)
    assert [len(row["value"]) for row in served.rows(topic)] == [100] * 5_000


def test_the_console_consumer_prints_committed_rows(served: Served) -> None:
    topic = served.new_topic()
    with served.store.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"value %d" % number, key=b"key %d" % number)
            producer.flush()
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    printed = java_tools.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", served.servers, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", "3", "--timeout-ms", "60000", "--isolation-level", "read_committed"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
    )

    assert printed.splitlines() == [
        f"Offset:{row['offset']}\t{row['key'].decode()}\t{row['value'].decode()}" for row in served.rows(topic)
    ]


def test_the_topics_tool_creates_describes_and_deletes_topics(served: Served) -> None:
    topic = served.new_topic().replace("t-", "made-")
    server = ("--bootstrap-server", served.servers)

    java_tools.run("TopicCommand", *server, "--create", "--topic", topic, "--partitions", "3")
    described = java_tools.run("TopicCommand", *server, "--describe", "--topic", topic)
    java_tools.run("TopicCommand", *server, "--delete", "--topic", topic)

    assert "PartitionCount: 3" in described
    assert topic not in java_tools.run("TopicCommand", *server, "--list").split()


def test_the_tools_of_admins_add_partitions_change_settings_and_delete_records(served: Served, tmp_path: Path) -> None:
    topic = served.new_topic()
    server = ("--bootstrap-server", served.servers)
    of_topic = (*server, "--entity-type", "topics", "--entity-name", topic)
    with served.store.producer() as producer:
        for _ in range(7):
            producer.send(topic, b"v", partition=0)
    offsets = {"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}
    (tmp_path / "offsets.json").write_text(json.dumps(offsets), encoding="ascii")

    java_tools.run("TopicCommand", *server, "--alter", "--topic", topic, "--partitions", "3")
    changes = "max.message.bytes=1000,cleanup.policy=[compact,delete],min.insync.replicas=2"
    java_tools.run("kafka.admin.ConfigCommand", *of_topic, "--alter", "--add-config", changes)
    described = java_tools.run("kafka.admin.ConfigCommand", *of_topic, "--describe")
    changed = served.store.admin.describe_topic(topic)
    java_tools.run("kafka.admin.ConfigCommand", *of_topic, "--alter", "--delete-config", "max.message.bytes")
    deleted = java_tools.run("DeleteRecordsCommand", *server, "--offset-json-file", str(tmp_path / "offsets.json"))

    assert changed.partitions == 3
    assert changed.config == TopicConfig(max_message_bytes=1000, cleanup_policy="compact,delete")
    assert "max.message.bytes=1000 sensitive=false" in described
    assert "retention.ms" not in described
    assert served.store.admin.describe_topic(topic).config == TopicConfig(cleanup_policy="compact,delete")
    assert re.search(rf"{topic}-0\s+low_watermark: 4", deleted)
    assert [row["offset"] for row in served.rows(topic)] == [4, 5, 6]


def test_the_offsets_tool_prints_the_end_of_each_partition(served: Served) -> None:
    topic = served.new_topic(partitions=2)
    with served.store.producer() as producer:
        for _ in range(7):
            producer.send(topic, b"v", partition=1)

    printed = java_tools.run("GetOffsetShell", "--bootstrap-server", served.servers, "--topic", topic, "--time", "-1")

    assert printed.split() == [f"{topic}:0:0", f"{topic}:1:7"]
