"""Kafka's own tools in Java use groups of the gateway: ``VerifiableConsumer`` and ``kafka-consumer-groups``."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eoslog import TopicPartition
from eoslog.errors import GroupIdNotFound
from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.test_java_tools import needs_java

pytestmark = [pytest.mark.slow, needs_java]
PARTITIONS = 4
_PATIENCE_S = 120
_SETTINGS = "heartbeat.interval.ms=500\nmetadata.max.age.ms=1000\n"


class Consumer:
    """A ``VerifiableConsumer``, which reads a topic as a member of a group, and commits what it has read."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a kind that the consumer has printed."""
        printed, _, _ = self._output.read_text(encoding="utf-8").rpartition("\n")
        return [event for event in java_tools.events(printed) if event["name"] == name]

    def partitions(self) -> set[int]:
        """Return the partitions of the last assignment."""
        assigned = self.events("partitions_assigned")
        return {each["partition"] for each in assigned[-1]["partitions"]} if assigned else set()

    def rows(self) -> list[tuple[int, int]]:
        """Return the partition and the offset of each row that it has read."""
        return [
            (each["partition"], offset)
            for event in self.events("records_consumed")
            for each in event["partitions"]
            for offset in range(each["minOffset"], each["maxOffset"] + 1)
        ]

    def stop(self) -> None:
        """End the consumer with SIGTERM: it leaves the group."""
        self._process.terminate()
        self._process.wait(_PATIENCE_S)
        assert self.events("shutdown_complete"), self._output.read_text(encoding="utf-8")[-2000:]


@contextmanager
def consumer(served: Served, topic: str, directory: Path) -> Iterator[Consumer]:
    """Run a consumer in the group that has the topic's name."""
    number = len(list(directory.glob("consumer-*")))
    output = directory / f"consumer-{number}"
    settings = directory / "settings"
    settings.write_text(_SETTINGS, encoding="ascii")
    command = java_tools.command(
        "VerifiableConsumer",
        *("--bootstrap-server", served.servers, "--topic", topic, "--group-id", topic),
        *("--session-timeout", "10000", "--command-config", str(settings)),
    )
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield Consumer(process, output)
    finally:
        process.kill()
        process.wait()


def wait_until(is_reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.1)


def write(served: Served, topic: str, rows: int = 40) -> None:
    with served.store.producer() as producer:
        for number in range(rows):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def committed(served: Served, group: str) -> dict[int, int]:
    """Return the committed offsets as eoslog reads them."""
    found = served.store.admin.list_consumer_group_offsets(group)
    return {partition.partition: committed.offset for partition, committed in found.items()}


def test_two_consumers_share_the_partitions_and_one_goes_on_alone(served: Served, tmp_path: Path) -> None:
    topic = served.new_topic(PARTITIONS)
    with ExitStack() as consumers:
        first = consumers.enter_context(consumer(served, topic, tmp_path))
        wait_until(lambda: first.partitions() == {0, 1, 2, 3})
        second = consumers.enter_context(consumer(served, topic, tmp_path))
        wait_until(lambda: len(first.partitions()) == len(second.partitions()) == 2)
        assert first.partitions() | second.partitions() == {0, 1, 2, 3}

        write(served, topic)
        wait_until(lambda: len(first.rows()) == len(second.rows()) == 20)
        second.stop()
        wait_until(lambda: first.partitions() == {0, 1, 2, 3})
        write(served, topic)
        wait_until(lambda: len(first.rows()) == 60)
        first.stop()

        stored = [(row["partition"], row["offset"]) for row in served.rows(topic)]
        assert sorted(first.rows() + second.rows()) == stored
    assert committed(served, topic) == dict.fromkeys(range(PARTITIONS), 20)


def groups_tool(served: Served, *arguments: str) -> str:
    """Run ``kafka-consumer-groups``, and return what it prints."""
    return java_tools.run("consumer.group.ConsumerGroupCommand", "--bootstrap-server", served.servers, *arguments)


def cells(printed: str, *columns: str) -> list[tuple[str, ...]]:
    """Return the cells of some columns of a table that the tool has printed, in the order of its lines."""
    head, *lines = (line.split() for line in printed.replace("COORDINATOR (ID)", "COORDINATOR ID").splitlines() if line)
    return sorted(tuple(line[head.index(column)] for column in columns) for line in lines)


def test_the_groups_tool_shows_a_group_with_a_member(served: Served, tmp_path: Path) -> None:
    topic = served.new_topic(PARTITIONS)
    of_group = ("--group", topic)
    write(served, topic)
    with consumer(served, topic, tmp_path) as member:
        wait_until(lambda: len(member.rows()) == 40)

        assert (topic, "Stable") in cells(groups_tool(served, "--list", "--state"), "GROUP", "STATE")
        described = groups_tool(served, "--describe", *of_group)
        assert cells(described, "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "HOST") == [
            (str(partition), "10", "10", "0", "/127.0.0.1") for partition in range(PARTITIONS)
        ]
        members = groups_tool(served, "--describe", *of_group, "--members", "--verbose")
        assert cells(members, "HOST", "#PARTITIONS", "CURRENT-ASSIGNMENT") == [("/127.0.0.1", "4", f"{topic}:0,1,2,3")]
        state = groups_tool(served, "--describe", *of_group, "--state")
        assert cells(state, "COORDINATOR", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS") == [
            (served.servers, "range", "Stable", "1")
        ]

        assert "GroupNotEmptyException" in groups_tool(served, "--delete", *of_group)
        reset = ("--reset-offsets", *of_group, "--topic", topic, "--to-earliest", "--execute")
        assert "the current state is Stable" in groups_tool(served, *reset)
        offsets = groups_tool(served, "--delete-offsets", *of_group, "--topic", topic)
        assert offsets.count("GroupSubscribedToTopicException") == PARTITIONS
        assert committed(served, topic) == dict.fromkeys(range(PARTITIONS), 10)


def test_the_groups_tool_changes_and_deletes_a_group_without_members(served: Served) -> None:
    topic = served.new_topic(PARTITIONS)
    of_group = ("--group", topic)
    write(served, topic)
    offsets = {TopicPartition(topic, partition): 7 for partition in range(PARTITIONS)}
    served.store.admin.alter_consumer_group_offsets(topic, offsets)

    assert (topic, "Empty") in cells(groups_tool(served, "--list", "--state"), "GROUP", "STATE")
    described = groups_tool(served, "--describe", *of_group)
    assert cells(described, "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID") == [
        (str(partition), "7", "10", "3", "-") for partition in range(PARTITIONS)
    ]
    groups_tool(served, "--reset-offsets", *of_group, "--topic", f"{topic}:0,1", "--shift-by", "-2", "--execute")
    assert committed(served, topic) == {0: 5, 1: 5, 2: 7, 3: 7}
    groups_tool(served, "--delete-offsets", *of_group, "--topic", f"{topic}:1")
    assert committed(served, topic) == {0: 5, 2: 7, 3: 7}
    groups_tool(served, "--delete", *of_group)
    with pytest.raises(GroupIdNotFound):
        committed(served, topic)


def test_the_groups_tool_shows_a_group_of_consumers_of_eoslog(served: Served) -> None:
    topic = served.new_topic(PARTITIONS)
    of_group = ("--group", topic)
    write(served, topic)
    with served.store.consumer(topic, client_id="own", auto_offset_reset="earliest") as own:
        own.subscribe(topic)
        read = 0
        while read < 40:
            read += len(own.poll())
        own.commit()
        write(served, topic, PARTITIONS)
        (member,) = served.store.admin.describe_consumer_group(topic).members

        described = groups_tool(served, "--describe", *of_group)
        columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
        assert cells(described, *columns) == [
            (str(partition), "10", "11", "1", member.member_id, member.host, "own") for partition in range(PARTITIONS)
        ]
        members = groups_tool(served, "--describe", *of_group, "--members", "--verbose")
        assert cells(members, "CONSUMER-ID", "#PARTITIONS", "CURRENT-ASSIGNMENT") == [
            (member.member_id, "4", f"{topic}:0,1,2,3")
        ]
        state = groups_tool(served, "--describe", *of_group, "--state")
        assert cells(state, "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS") == [("eoslog", "Stable", "1")]
        reset = ("--reset-offsets", *of_group, "--topic", topic, "--to-earliest", "--execute")
        assert "the current state is Stable" in groups_tool(served, *reset)
    assert committed(served, topic) == dict.fromkeys(range(PARTITIONS), 10)
