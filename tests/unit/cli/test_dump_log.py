"""``dump-log``: what is stored, as it stands there, and the rest of it where something is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eoslog
from eoslog.format.kafka_files import ProducerSnapshotEntry, encode_producer_snapshot, encode_transaction_index
from eoslog.main import cli
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.partition_state import AbortedTransaction
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction


@pytest.fixture
def store(command: Command) -> eoslog.Store:
    """A store whose topic ``t`` has a sealed segment (an aborted and a committed transaction) and an open one."""
    store = eoslog.connect(command.url)
    store.admin.create_topic("t", config=eoslog.TopicConfig(segment_batches=4))
    with store.producer("etl-1") as producer:
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send("t", b"1")
            producer.send("t", b"2")
            producer.flush()
            end()
    Coordinator(store).seal()
    producer = open_transaction(store, "etl-2")
    producer.send("t", b"open")
    producer.flush()
    return store


def dump(*arguments: str | Path) -> Result:
    """The command without any store."""
    return CliRunner().invoke(cli, ["dump-log", *map(str, arguments)])


def fields(line: str) -> dict[str, str]:
    """The ``name: value`` pairs of a line whose values hold no space."""
    words = line.split()
    return {name.removesuffix(":"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def found(command: Command, pattern: str) -> Path:
    (path,) = Path(command.url).rglob(pattern)
    return path


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# Slots


def test_slots_are_printed_an_entry_a_line(command: Command, store: eoslog.Store) -> None:
    lines = command.ok("dump-log").splitlines()

    assert [line.split()[1] for line in lines] == [str(slot) for slot in range(len(lines))]
    assert [line.split()[7] for line in lines[:7]] == ["store", "topic", "init", "batch", "end", "batch", "end"]
    batch = fields(lines[3])
    assert list(batch)[:5] == ["slot", "appendId", "timeMs", "type", "topicPartition"]
    assert (batch["topicPartition"], batch["baseOffset"], batch["recordCount"]) == ("t-0", "0", "2")
    assert batch["file"].endswith(".parquet")
    assert "transactionalId: etl-1" in lines[4]
    assert "outcome: abort reason: client" in lines[4]
    assert "markers: [{topicPartition: t-0, offset: 2}]" in lines[4]


def test_slots_as_json_hold_the_whole_entries(command: Command, store: eoslog.Store) -> None:
    dumped = json_lines(command.ok("dump-log", "--json"))

    stored = [
        json.loads(path.read_text().splitlines()[0])
        for path in sorted(Path(command.url, "__transaction_state/slot").rglob("*"))
        if path.is_file()
    ]
    assert [each["entry"] for each in dumped] == [entry for record in stored for entry in record["entries"]]
    assert [(each["slot"], each["append_id"], each["prev"]) for each in dumped] == [
        (record["slot"], record["append_id"], record["prev"]) for record in stored for _ in record["entries"]
    ]


def test_a_terminal_gets_lines_that_are_broken_between_words(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.cli.dump.terminal_width", lambda: 80)

    (whole,) = command.ok("dump-log", "--slots", "3", "--wide").splitlines()
    lines = command.ok("dump-log", "--slots", "3").splitlines()

    assert len(lines) > 1
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
    assert " ".join(map(str.strip, lines)) == whole


@pytest.mark.parametrize(
    ("slots", "printed"),
    [("2..4", [2, 3, 4]), ("3", [3]), ("..1", [0, 1]), ("7..99", [7, 8, 9]), ("..", list(range(10)))],
)
def test_a_range_of_slots_is_printed(command: Command, store: eoslog.Store, slots: str, printed: list[int]) -> None:
    assert [each["slot"] for each in json_lines(command.ok("dump-log", "--slots", slots, "--json"))] == printed


def test_more_slots_than_are_read_at_once_are_printed(command: Command, store: eoslog.Store) -> None:
    newest = store.read(lambda state, slot: slot)
    for _ in range(40):
        store.admin.create_topic(f"n{_}")

    assert len(command.ok("dump-log").splitlines()) == newest + 1 + 40


def test_a_damaged_slot_is_told_and_hides_no_other(command: Command, store: eoslog.Store) -> None:
    found(command, "00000000000000000003.json").write_text("{damaged")
    found(command, "00000000000000000005.json").unlink()

    result = command.run("dump-log", "--json")

    assert result.exit_code == 1
    assert [each["slot"] for each in json_lines(result.stdout)] == [0, 1, 2, 4, 6, 7, 8, 9]
    told = result.stderr.splitlines()
    assert len(told) == 2
    assert told[0].startswith("[EOSLOG_CORRUPT_RECORD] the record of slot 3")
    assert told[1].startswith("[EOSLOG_CORRUPT_RECORD] slot 5 is not there")


def test_a_slot_beyond_the_log_is_an_error(command: Command, store: eoslog.Store) -> None:
    result = command.run("dump-log", "--slots", "77")

    assert result.exit_code == 1
    assert "there is no slot 77: the newest one is 9" in result.stderr


def test_slots_that_were_deleted_are_left_out_of_a_whole_dump(command: Command, store: eoslog.Store) -> None:
    for slot in range(3):
        found(command, f"{slot:020d}.json").unlink()

    assert json_lines(command.run("dump-log", "--json").stdout)[0]["slot"] == 3


# Checkpoints


def test_checkpoints_are_printed_with_their_roots_parts_and_rows(command: Command, store: eoslog.Store) -> None:
    none = command.run("dump-log", "--checkpoints")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "`eoslog checkpoint` writes one" in none.stderr
    store.log.checkpoint()

    text = command.ok("dump-log", "--checkpoints")

    headings = [line for line in text.splitlines() if line.startswith("Dumping ")]
    assert [line.split("(")[-1].split("/")[0].rstrip(")") for line in headings[1:]] == [
        "store",
        "topics",
        "transactions",
        "producers",
        "application_versions",
        "partitions",
    ]
    assert "format: 1 slot: 9 appendId: " in text
    assert "part: transactions transactionalId: etl-1 kind: producer" in text
    place = f"{store.admin.describe_topic('t').topic_id}-0"
    assert f"of: sealed topicPartition: {place} baseOffset: 0 endOffset: 6 batchCount: 4" in text
    assert f"of: open_transactions topicPartition: {place} producerId: " in text


def test_both_checkpoints_are_printed_and_a_damaged_one_hides_no_other(command: Command, store: eoslog.Store) -> None:
    older = store.log.checkpoint()
    newer = store.log.checkpoint()
    Path(command.url, newer.path).write_text("damaged")

    result = command.run("dump-log", "--checkpoints", "--json")

    assert result.exit_code == 1
    assert newer.path in result.stderr
    roots = [each for each in json_lines(result.stdout) if "parts" in each]
    assert [(each["file"], each["slot"]) for each in roots] == [(older.path, older.slot)]


def test_a_part_that_is_an_object_is_printed_from_it(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.log.checkpoint.INLINE_PART_BYTES", 0)
    store.log.checkpoint()
    transactions = found(command, "*.part2")

    from_store = json_lines(command.ok("dump-log", "--checkpoints", "--json"))
    from_file = json_lines(dump(transactions, "--json").stdout)

    for dumped in (from_store, from_file):
        assert [each["transactional_id"] for each in dumped if "timeout_ms" in each] == ["etl-1", "etl-2"]


# A partition


@pytest.mark.scenario(164)
def test_a_partition_is_printed_by_segments_and_from_the_state(command: Command, store: eoslog.Store) -> None:
    text = command.ok("dump-log", "--topic", "t", "--partition", "0")

    headings = [line.rpartition(".")[2] for line in text.splitlines() if line.startswith("Dumping ")]
    assert headings == ["parquet", "txnindex", "snapshot", "Dumping batches of t-0, in the state from offset 6"]
    batches = [fields(line) for line in text.splitlines() if line.startswith("baseOffset: ")]
    assert [(each["baseOffset"], each["lastOffset"], each["isControl"], each["outcome"]) for each in batches] == [
        ("0", "1", "false", "aborted"),
        ("2", "2", "true", "aborted"),
        ("3", "4", "false", "committed"),
        ("5", "5", "true", "committed"),
        ("6", "6", "false", "open"),
    ]
    assert [
        line.partition("endTxnMarker: ")[2].split()[:3] for line in text.splitlines() if "isControl: true" in line
    ] == [
        ["ABORT", "coordinatorEpoch:", "0"],
        ["COMMIT", "coordinatorEpoch:", "0"],
    ]


def test_only_batches_with_the_wanted_offsets_are_printed(command: Command, store: eoslog.Store) -> None:
    def batches(offsets: str) -> list[int]:
        lines = json_lines(command.ok("dump-log", "--topic", "t", "--partition", "0", "--offsets", offsets, "--json"))
        return [each["base_offset"] for each in lines if "base_offset" in each]

    assert batches("1..3") == [0, 2, 3]
    assert batches("4") == [3]
    assert batches("5..") == [5, 6]
    assert batches("..0") == [0]
    assert command.run("dump-log", "--topic", "t", "--partition", "0", "--offsets", "7").exit_code == 1


@pytest.mark.usefixtures("files_are_objects")
def test_footers_of_data_files_are_printed_with_their_row_groups(command: Command, store: eoslog.Store) -> None:
    lines = json_lines(command.ok("dump-log", "--topic", "t", "--partition", "0", "--footers", "--json"))

    footers = [each for each in lines if "row_groups" in each]
    assert [(each["rows"], each["row_groups"]) for each in footers] == [(2, 1), (2, 1), (1, 1)]
    assert footers[0]["columns"][:2] == ["key binary", "value binary"]
    assert [each["rows"] for each in lines if "row_group" in each] == [2, 2, 1]


@pytest.mark.usefixtures("files_are_objects")
def test_a_damaged_file_of_a_partition_is_told_and_hides_no_other(command: Command, store: eoslog.Store) -> None:
    found(command, "*.txnindex").write_bytes(b"")
    for path in Path(command.url, "t").rglob("*.parquet"):
        if not path.name.endswith(".index.parquet"):
            path.unlink()
            break

    result = command.run("dump-log", "--topic", "t", "--partition", "0", "--footers", "--json")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    lines = json_lines(result.stdout)
    assert len([each for each in lines if "base_offset" in each]) == 5
    assert len([each for each in lines if "row_groups" in each]) == 2


# Files


@pytest.mark.scenario(164)
def test_a_transaction_index_is_printed_as_kafka_prints_it(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(encode_transaction_index([AbortedTransaction(1, 0, 10, 11), AbortedTransaction(2, 12, 15, 16)]))

    assert dump(path).stdout.splitlines() == [
        f"Dumping {path}",
        "version: 0 producerId: 1 firstOffset: 0 lastOffset: 10 lastStableOffset: 11",
        "version: 0 producerId: 2 firstOffset: 12 lastOffset: 15 lastStableOffset: 16",
    ]


@pytest.mark.scenario(164)
def test_a_producer_snapshot_is_printed_as_kafka_prints_it(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000004.snapshot"
    path.write_bytes(
        encode_producer_snapshot(
            [
                ProducerSnapshotEntry(2097152, 1, 1, 3, 3, 1795245879412, 0, 3),
                ProducerSnapshotEntry(5, 1, -1, -1, 0, 1795245879412, 0, -1),
            ]
        )
    )

    assert dump(path).stdout.splitlines() == [
        f"Dumping {path}",
        "producerId: 2097152 producerEpoch: 1 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong[3] "
        "lastTimestamp: 1795245879412 firstSequence: 2147483646 lastSequence: 1 lastOffset: 3 offsetDelta: 3 "
        "timestamp: 1795245879412",
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1795245879412",
    ]
    first_offsets = [each["current_txn_first_offset"] for each in json_lines(dump(path, "--json").stdout)]
    assert first_offsets == [3, None]


def test_every_file_of_a_store_is_printed_by_its_name(command: Command, store: eoslog.Store) -> None:
    store.log.checkpoint()
    root = Path(command.url)
    paths = [path for path in sorted(root.rglob("*.*")) if path.is_file() and ".tmp" not in str(path)]
    kinds = {"".join(path.suffixes) for path in paths}
    assert {".json", ".parquet", ".index.parquet", ".txnindex", ".snapshot"} <= kinds

    for path in paths:
        result = dump(path)

        assert (result.exit_code == 0) == (path.name != "eoslog.json"), result.output
        assert result.stdout.startswith(f"Dumping {path}\n")


@pytest.mark.scenario(164)
def test_a_corrupt_file_is_an_error_and_the_next_one_is_printed(tmp_path: Path) -> None:
    snapshot, index, data = (tmp_path / name for name in ("a.snapshot", "b.txnindex", "c.parquet"))
    snapshot.write_bytes(encode_producer_snapshot([])[:-1] + b"\x01")
    index.write_bytes(encode_transaction_index([AbortedTransaction(1, 0, 10, 11)]) + b"torn")
    data.write_bytes(b"PAR1 nothing PAR1")

    result = dump(snapshot, index, data, tmp_path / "absent.snapshot", tmp_path, tmp_path / "notes.txt")

    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in told[:3]] == [
        f"[EOSLOG_CORRUPT_RECORD] {path}" for path in (snapshot, index, data)
    ]
    assert told[3] == f"{tmp_path / 'absent.snapshot'}: No such file or directory"
    assert [line.startswith("[EOSLOG_INVALID_REQUEST] ") for line in told[4:]] == [True, True]
    assert "version: 0 producerId: 1 firstOffset: 0 lastOffset: 10 lastStableOffset: 11" in result.stdout
    assert result.stdout.count("Dumping ") == 6


def test_long_lists_and_texts_are_cut_for_people_only(command: Command) -> None:
    store = eoslog.connect(command.url)
    store.admin.create_topic("t", partitions=20)
    with open_transaction(store, "x" * 500, staged=True) as producer:
        for partition in range(20):
            producer.send("t", b"v", partition=partition)
        producer.commit_transaction()

    (line,) = [each for each in command.ok("dump-log").splitlines() if " type: end " in each]
    (entry,) = [
        each["entry"] for each in json_lines(command.ok("dump-log", "--json")) if each["entry"]["type"] == "end"
    ]

    assert "12 more]" in line
    assert f"{'x' * 200}… (500 characters)" in line
    assert len(entry["batches"]) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--slots 1..2 --checkpoints", "Choose one"),
        ("some.snapshot --slots 1", "Choose one"),
        ("--topic t", "--topic and --partition go together"),
        ("--partition 0", "--topic and --partition go together"),
        ("--offsets 1..2", "--offsets and --footers need --topic"),
        ("--footers", "--offsets and --footers need --topic"),
        ("--slots 5..2", "ends before it begins"),
        ("--slots one", "is not FIRST..LAST"),
        ("--slots -3", "is not FIRST..LAST"),
    ],
)
def test_wrong_usage_is_explained(command: Command, arguments: str, message: str) -> None:
    result = command.run("dump-log", *arguments.split())

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
