"""What the dump tool prints of index files, snapshots and control rows (``DumpLogSegmentsTest``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import eoslog
from eoslog.format.kafka_files import ProducerSnapshotEntry, encode_producer_snapshot, encode_transaction_index
from eoslog.main import cli
from eoslog.state.partition_state import AbortedTransaction


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


@pytest.mark.scenario(164)
def test_an_index_of_aborted_transactions_is_printed_a_line_each(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.txnindex"
    index.write_bytes(encode_transaction_index([AbortedTransaction(1, 0, 10, 11), AbortedTransaction(2, 5, 20, 21)]))

    assert dump("dump-log", index).stdout.splitlines()[1:] == [
        "version: 0 producerId: 1 firstOffset: 0 lastOffset: 10 lastStableOffset: 11",
        "version: 0 producerId: 2 firstOffset: 5 lastOffset: 20 lastStableOffset: 21",
    ]


@pytest.mark.scenario(164)
def test_a_snapshot_is_printed_a_line_per_producer(tmp_path: Path) -> None:
    snapshot = tmp_path / "00000000000000000010.snapshot"
    producers = [ProducerSnapshotEntry(number, 0, 4, 9, 2, 100, 0, -1) for number in (1, 2)]
    snapshot.write_bytes(encode_producer_snapshot(producers))

    lines = dump("dump-log", snapshot).stdout.splitlines()[1:]

    assert [line.split()[:2] for line in lines] == [["producerId:", "1"], ["producerId:", "2"]]
    assert all("firstSequence: 2 lastSequence: 4 lastOffset: 9 offsetDelta: 2" in line for line in lines)


@pytest.mark.scenario(164)
@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x00\x01garbage", b"\x00\x07" + b"\x00" * 8])
def test_a_snapshot_that_is_damaged_is_told_in_words(tmp_path: Path, damage: bytes) -> None:
    snapshot, intact = tmp_path / "00000000000000000000.snapshot", tmp_path / "00000000000000000001.snapshot"
    snapshot.write_bytes(damage)
    intact.write_bytes(encode_producer_snapshot([ProducerSnapshotEntry(1, 0, 4, 9, 2, 100, 0, -1)]))

    result = dump("dump-log", snapshot, intact)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"[EOSLOG_CORRUPT_RECORD] {snapshot}: ")
    assert len(result.stderr.splitlines()) == 1
    assert "producerId: 1 producerEpoch: 0" in result.stdout


@pytest.mark.scenario(164)
def test_a_control_row_is_printed_with_its_type_and_coordinator_epoch(tmp_path: Path) -> None:
    store = eoslog.connect(tmp_path / "store", fsync=False)
    store.admin.create_topic("t")
    with store.producer("tx") as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.flush()
            end()

    text = dump("--store", store.url, "dump-log", "--topic", "t", "--partition", 0).stdout

    control = [line for line in text.splitlines() if "isControl: true" in line]
    assert ["endTxnMarker: COMMIT coordinatorEpoch: 0" in line for line in control] == [True, False]
    assert ["endTxnMarker: ABORT coordinatorEpoch: 0" in line for line in control] == [False, True]
