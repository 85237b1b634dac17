"""Members of groups, of Kafka's clients for Python, with one interface.

As a program it is one member, which a test stops and continues. It obeys the lines of its standard input, and prints a
line of JSON for each.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from tests.kafka_clients.gateway_process import REPOSITORY
from tests.kafka_clients.python_clients import PATIENCE_S

Row = tuple[int, int, bytes]
"""A row that a member has read: partition, offset, value."""
SESSION_TIMEOUT_MS = 6_000
_HEARTBEAT_MS = 200
_REQUEST_TIMEOUT_MS = 15_000
"""A gateway may be frozen. By default some clients wait for its answer for a minute."""
_POLL_S = 0.1
_ROWS = 50
"""The most rows that a member gets at once."""
COMMIT, PARTITIONS, POLL = "commit", "partitions", "poll"


class Refused(Exception):
    """The coordinator refuses a commit, because the member is not in the group's generation."""


class Member(Protocol):
    """A consumer that has subscribed to a topic. It begins at the committed offsets, or at the first row."""

    def poll(self) -> list[Row]:
        """Return rows that have come. It also takes part in a rebalance."""

    def partitions(self) -> set[int]:
        """Return the partitions of the topic that the member has."""

    def commit(self) -> None:
        """Commit the positions.

        Raises:
            Refused
            TimeoutError: the client gives up.
        """

    def close(self) -> None:
        """Leave the group, unless the member has an instance id. Nothing is committed."""


@dataclass(frozen=True)
class GroupClient:
    """A client library."""

    package: str
    member: Callable[..., Member]
    """Make a member: servers, topic, group, then ``instance_id`` and ``assignor`` as keywords."""


class _Confluent:
    def __init__(
        self, servers: str, topic: str, group: str, *, instance_id: str | None = None, assignor: str = "range"
    ) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "socket.timeout.ms": _REQUEST_TIMEOUT_MS,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                "partition.assignment.strategy": assignor,
                **({} if instance_id is None else {"group.instance.id": instance_id}),
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Row]:
        found = self._consumer.consume(_ROWS, _POLL_S)
        for message in found:
            assert message.error() is None, message.error()
        return [(message.partition(), message.offset(), message.value()) for message in found]

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # After _ASSIGNMENT_LOST the client does not ask the coordinator any more.
            refusals = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError._ASSIGNMENT_LOST}
            if error.args[0].code() in refusals:
                raise Refused from error
            raise

    def close(self) -> None:
        self._consumer.close()


class _KafkaPython:
    def __init__(self, servers: str, topic: str, group: str, *, instance_id: str | None = None) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )

    def poll(self) -> list[Row]:
        # kafka-python 3.0 loses an assignment that comes between two polls, so a poll is longer than a rebalance.
        found = self._consumer.poll(timeout_ms=1_500, max_records=_ROWS)
        return [(each.partition, each.offset, each.value) for rows in found.values() for each in rows]

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        from kafka.errors import CommitFailedError, KafkaTimeoutError

        try:
            self._consumer.commit()
        except CommitFailedError as error:
            raise Refused from error
        except KafkaTimeoutError as error:
            raise TimeoutError from error

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class _AioKafka:
    def __init__(self, servers: str, topic: str, group: str, *, instance_id: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()
        self._consumer = self._run(self._started(servers, topic, group, instance_id))

    @staticmethod
    async def _started(servers: str, topic: str, group: str, instance_id: str | None) -> Any:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        await consumer.start()
        # If it had subscribed before, start() would wait for an assignment, and so for the test's other members.
        consumer.subscribe([topic])
        return consumer

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def poll(self) -> list[Row]:
        found = self._run(self._consumer.getmany(timeout_ms=round(1000 * _POLL_S), max_records=_ROWS))
        return [(each.partition, each.offset, each.value) for rows in found.values() for each in rows]

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        from aiokafka.errors import CommitFailedError, IllegalStateError

        try:
            self._run(self._consumer.commit())
        except (CommitFailedError, IllegalStateError) as error:
            raise Refused from error

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(self._consumer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


CLIENTS = (
    GroupClient("confluent_kafka", _Confluent),
    GroupClient("kafka", _KafkaPython),
    GroupClient("aiokafka", _AioKafka),
)


class MemberProcess:
    """A member in a process of its own."""

    def __init__(self, client: GroupClient, servers: str, topic: str, group: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, client.package, servers, topic, group],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def _tell(self, command: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(command, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def poll(self) -> list[Row]:
        return [(partition, offset, value.encode()) for partition, offset, value in self._tell(POLL)]

    def partitions(self) -> set[int]:
        return set(self._tell(PARTITIONS))

    def commit(self) -> None:
        if not self._tell(COMMIT):
            raise Refused

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main(package: str, servers: str, topic: str, group: str) -> None:
    """Be a member of a group."""
    (client,) = (each for each in CLIENTS if each.package == package)
    member = client.member(servers, topic, group)
    for line in sys.stdin:
        answer: Any
        if line.strip() == POLL:
            answer = [(partition, offset, value.decode()) for partition, offset, value in member.poll()]
        elif line.strip() == PARTITIONS:
            answer = sorted(member.partitions())
        else:
            answer = True
            try:
                member.commit()
            except (Refused, TimeoutError):
                answer = False
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
