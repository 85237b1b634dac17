"""``docs/evidence/kafka-clients.md``, made of the lists of tests. ``python -m tests.kafka_clients.page`` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kafka_clients import franz_go_tests, kafka_python_tests
from tests.kafka_clients.librdkafka_tests import PASSES, REASONS, WHOLE, WITHOUT_CREATION

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "kafka-clients.md"
_HEAD = """# Clients of Kafka

`make test-kafka-clients` runs clients of Kafka and their own tests against [the gateway](../gateway.md), on a local
store and on a real S3 server. It needs Java, Maven, npm, Go and a C++ compiler. `make test` runs the tests of the
clients that its environment has.

## Clients

- confluent-kafka 2.16, kafka-python 3.0 and aiokafka 0.14 write with and without idempotence, and with each kind of
  compression. Each reads rows that eoslog has written, without the rows of aborted transactions.
- Kafka 4.3's tools in Java are `VerifiableProducer`, `ProducerPerformance` with each kind of compression, the console
  consumer, `kafka-topics` and `kafka-get-offsets`.
- Spark 4.1's Kafka connector writes and reads batches and streams. `format("eoslog")` reads the same rows at the same
  offsets.
- The gateway is killed five times or more, every two seconds, while librdkafka and Java write with idempotence. No row
  is lost, doubled or out of order.
- confluent-kafka, kafka-python and aiokafka write transactions. Committed rows are visible, aborted ones are not, a
  second producer fences the first, and offsets take effect with the rows of their transaction.
- Three of Kafka's `TransactionalMessageCopier` copy 21,000 rows, with random aborts, while they are killed, or while
  the gateway is. Each row arrives once.
- confluent-kafka, kafka-python, aiokafka and Java share the partitions of a topic in groups. A static member that
  starts again causes no rebalance, and an evicted member cannot commit. confluent-kafka also uses the cooperative
  assignor.
- confluent-kafka, kafka-python, aiokafka and Kafka's tools in Java use TLS, and authenticate by SCRAM-SHA-256,
  SCRAM-SHA-512 and OAUTHBEARER. None of the three for Python writes to a gateway whose certificate it does not trust,
  or with a wrong password, an unknown name, an expired token or a token for another audience.
- `kafka-consumer-groups` lists, describes and deletes groups, and resets and deletes offsets.
- Members of groups and the gateway are killed and stopped while members read a topic. Members that commit after their
  work miss no row. confluent-kafka and Kafka's `TransactionalMessageCopier` copy each row once.
- Three gateways serve one store, while each of them in turn ends or is killed, and starts again. Members in
  confluent-kafka, kafka-python and aiokafka that start at different gateways share a group. Idempotent producers of the
  same three that know one gateway write each row once and in order. The rows of confluent-kafka's committed
  transactions are there once, and those of its aborted ones are not.
- With several gateways, confluent-kafka, kafka-python and `kafka-consumer-groups` list each group once. A consumer of
  confluent-kafka with a `client.rack` fetches from the gateway in its rack.
- confluent-kafka goes on through a second gateway when the first one ends or is killed. Nothing of a commit that waited
  in a stopped gateway gets in after the second one has taken its group.
- The gateway is killed four times or more while librdkafka commits and aborts transactions. A gateway that was stopped
  and continues, and a client that was, get nothing of their fenced transaction in.
- Kafka Connect 4.3 in distributed mode, with `exactly.once.source.support=enabled`, copies the lines of a file that
  grows to a topic, and the rows of the topic to another file. The topic gets each line once and in order while workers
  are killed, while a worker pauses and another one takes its connectors over, and while the gateway is killed. The
  sink connector loses no line. It is at-least-once, and may repeat lines after a kill.
- Each test that kills the gateway also runs on three gateways, of which one is restarted every four seconds, in turn.
  The tests below run on one gateway without restarts: many of them take a lost connection for a failure.

"""


_TESTED = "in one run on a local store, and in one run on a real S3 server."


def _table(passes: Sequence[str], reasons: Mapping[str, str]) -> list[str]:
    return [
        "| Test | Outcome |",
        "|---|---|",
        *(f"| {name} | {reasons.get(name, 'passes')} |" for name in sorted([*passes, *reasons])),
    ]


def _franz_go() -> list[str]:
    passes, reasons = franz_go_tests.PASSES, franz_go_tests.REASONS
    return [
        "## franz-go's own tests",
        "",
        f"franz-go 1.22.3 has {len(passes) + len(reasons)} tests, or parts of tests, in its package `kgo` that need a",
        f"server. {len(passes)} of them pass {_TESTED}",
        "`TestGroupETL` and `TestTxnEtl` move records through three groups in a chain while consumers join and leave.",
        "`TestTxnEtl` does so in transactions. Both run with 1,000 records. `TestTxnEtl` also runs with 500,000.",
        "`TestGroupETL` also runs with 100,000, and while its clients' connections end after a second or so.",
        "",
        *_table(passes, reasons),
    ]


def _kafka_python() -> list[str]:
    passes, reasons = kafka_python_tests.PASSES, kafka_python_tests.REASONS
    return [
        "## kafka-python's own tests",
        "",
        f"kafka-python 3.0.12 has {len(passes) + len(reasons)} integration tests in its source distribution.",
        f"{len(passes)} of them pass {_TESTED} A test that passes counts once for each of its parameters.",
        "The gateway runs with `--auto-create-topics --default-partitions 4`. A test that subscribes while its",
        "consumer connects gets a second run: the client sometimes loses the subscription, with a Kafka broker, too.",
        "",
        *_table(passes, reasons),
    ]


def render() -> str:
    """Return the page."""
    lines = [
        "## librdkafka's own tests",
        "",
        f"librdkafka 2.15.1 has {len(PASSES) + len(REASONS)} tests that need a server. {len(PASSES)} of them pass in",
        "one run on a real S3 server, and each by itself on a local store. The gateway runs with",
        f"`--auto-create-topics --default-partitions 4`, for {len(WITHOUT_CREATION)} of the tests without the first",
        f"option. The program runs in its quick mode, except for {len(WHOLE) + len(WITHOUT_CREATION)} tests that",
        "this mode leaves out.",
        "",
        *_table(PASSES, REASONS),
        "",
        *_franz_go(),
        "",
        *_kafka_python(),
    ]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
