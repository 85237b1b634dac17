"""Kafka's own dump tool reads the index and snapshot files of a store, and prints what ``dump-log`` prints.

It needs Java and Kafka's jars, which ``make kafka-tools`` fetches.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import eoslog
from eoslog.format.kafka_files import ProducerSnapshotEntry, encode_producer_snapshot, encode_transaction_index
from eoslog.main import cli
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.partition_state import AbortedTransaction

JARS = Path(__file__).resolve().parents[2] / ".cache/kafka"

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java"),
    pytest.mark.skipif(not any(JARS.glob("kafka_2.13-*.jar")), reason="no Kafka in .cache/kafka: run make kafka-tools"),
]


def kafka_dumps(*files: Path) -> list[str]:
    """What Kafka's tool prints of these files, on both its streams."""
    command = ["java", "-cp", f"{JARS}/*", "kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [line.rstrip() for line in (result.stdout + result.stderr).splitlines()]


def eoslog_dumps(*files: Path) -> Result:
    return CliRunner().invoke(cli, ["dump-log", *map(str, files)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All index and snapshot files of a store, under the names that Kafka gives such files."""
    root = tmp_path_factory.mktemp("store")
    store = eoslog.connect(str(root), fsync=False)
    store.admin.create_topic("t", config=eoslog.TopicConfig(segment_batches=4))
    idempotent = store.producer()
    producers = [store.producer(f"tx-{number}") for number in range(3)]
    for producer in producers:
        producer.init_transactions()
    for number in range(12):
        producer = producers[number % 3]
        producer.begin_transaction()
        for _ in range(number % 4 + 1):
            producer.send("t", b"v")
        producer.flush()
        idempotent.send("t", b"v")
        idempotent.flush()
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producers[0].begin_transaction()
    producers[0].send("t", b"open")
    producers[0].flush()
    Coordinator(store).seal()
    found = []
    for path in sorted(root.rglob("*")):
        if path.suffix in (".txnindex", ".snapshot"):
            # A segment's directory is named by its base offset, and Kafka's files are.
            copy = tmp_path_factory.mktemp("t-0-") / f"{path.parent.name}{path.suffix}"
            found.append(Path(shutil.copy(path, copy)))
    return found


def test_kafka_prints_the_files_of_a_store_as_dump_log_does(files: list[Path]) -> None:
    kinds = {path.suffix for path in files}

    printed = kafka_dumps(*files)

    assert kinds == {".txnindex", ".snapshot"}
    assert any(line.startswith("version: 0 producerId: ") for line in printed)
    assert any(line.startswith("producerId: ") and "OptionalLong[" in line for line in printed)
    assert eoslog_dumps(*files).stdout.splitlines() == printed


def test_kafka_prints_extreme_numbers_as_dump_log_does(tmp_path: Path) -> None:
    index, snapshot = tmp_path / f"{0:020d}.txnindex", tmp_path / f"{0:020d}.snapshot"
    largest = 2**63 - 1
    index.write_bytes(
        encode_transaction_index(
            [AbortedTransaction(0, 0, 0, 1), AbortedTransaction(largest, largest - 2, largest - 1, largest)]
        )
    )
    snapshot.write_bytes(
        encode_producer_snapshot(
            [
                ProducerSnapshotEntry(0, 0, 0, 0, 0, 0, 0, 0),
                ProducerSnapshotEntry(largest, 32767, 1, largest, 3, largest, 0, largest),
                ProducerSnapshotEntry(7, 3, -1, -1, 0, -1, 0, -1),
                ProducerSnapshotEntry(8, 3, 2**31 - 1, 5, 5, 1, 0, -1),
            ]
        )
    )

    assert eoslog_dumps(index, snapshot).stdout.splitlines() == kafka_dumps(index, snapshot)


def test_dump_log_reports_the_damage_that_kafkas_tool_reports(files: list[Path], tmp_path: Path) -> None:
    intact = next(path for path in files if path.suffix == ".snapshot" and path.stat().st_size > 100)
    damaged = tmp_path / intact.name
    body = bytearray(intact.read_bytes())
    body[40] ^= 1
    damaged.write_bytes(body)

    printed, ours = kafka_dumps(damaged, intact), eoslog_dumps(damaged, intact)

    assert any("corrupt" in line.lower() for line in printed)
    assert ours.exit_code == 1
    assert "[EOSLOG_CORRUPT_RECORD]" in ours.stderr
    assert ours.stdout.splitlines() == [line for line in printed if line.startswith(("Dumping", "producerId"))]
