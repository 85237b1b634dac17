"""The commands of ``eoslog`` on topics, transactions, offsets and the store: what they print, and what they do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import eoslog
from eoslog.main import cli
from eoslog.maintenance.append_service import AppendService
from tests.unit.cli.command import Command


def columns_of(text: str) -> list[str]:
    return text.splitlines()[0].split()


@pytest.fixture
def open_transaction(store: eoslog.Store) -> eoslog.Producer:
    """The transactional id ``etl-1`` with an open transaction in ``t``."""
    producer = store.producer("etl-1")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open")
    producer.flush()
    return producer


def test_topics_are_created_listed_described_and_deleted(command: Command) -> None:
    created = command.ok("topics", "create", "payments", "--partitions", "3")
    command.ok(
        "topics", "create", "flights", "--column", "carrier:string", "--column", "miles:long", "--key", "carrier"
    )

    listed = command.json("topics", "list")
    described = command.json("topics", "describe", "flights")

    assert created == "created topic payments with 3 partitions\n"
    assert [(each["topic"], each["partitions"], each["kind"]) for each in listed] == [
        ("flights", 1, "columns"),
        ("payments", 3, "records"),
    ]
    assert (described["columns"], described["key"]) == (["carrier string", "miles int64"], ["carrier"])
    assert command.ok("topics", "delete", "payments", "--yes") == "deleted topic payments\n"
    assert [each["topic"] for each in command.json("topics", "list")] == ["flights"]


def test_topics_are_listed_by_a_pattern_for_their_whole_name_and_by_kind(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("t.late")
    store.admin.create_topic("flights", schema={"carrier": "string"})

    def names(*filters: str) -> list[str]:
        return [each["topic"] for each in command.json("topics", "list", *filters)]

    assert names("--pattern", "t") == ["t"]
    assert names("--pattern", "t.*") == ["t", "t.late"]
    assert names("--kind", "columns") == ["flights"]
    assert names("--pattern", "t.*", "--kind", "columns") == []
    assert command.run("topics", "list", "--pattern", "(").exit_code == 2


def test_a_list_of_many_topics_takes_the_requests_of_a_list_of_one(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[eoslog.Store] = []
    connect = eoslog.connect

    def recorded(*arguments: Any, **options: Any) -> eoslog.Store:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(eoslog, "connect", recorded)

    def requests_of_a_list(topics: int) -> int:
        for number in range(len(store.admin.list_topics()), topics - 1):
            store.admin.create_topic(f"topic-{number}")
        command.ok("checkpoint")
        # The record after a checkpoint is the first one that names it.
        store.admin.create_topic(f"topic-{topics - 1}")
        assert len(command.json("topics", "list")) == topics
        return opened[-1].requests.total()

    few = requests_of_a_list(3)

    assert requests_of_a_list(60) == few


def test_topics_create_and_delete_print_the_topic_as_json(command: Command) -> None:
    created = command.json("topics", "create", "t")
    deleted = command.json("topics", "delete", "t", "--yes")

    assert created == {"topic": "t", "topic_id": created["topic_id"], "partitions": 1}
    assert deleted == {"topic": "t", "topic_id": created["topic_id"], "deleted": True}
    assert command.ok("topics", "list") == "the store has no topics\n"


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_topic_is_not_deleted_without_a_yes(command: Command, store: eoslog.Store, answer: str) -> None:
    refused = command.run("topics", "delete", "t", text=answer)

    assert refused.exit_code == 1
    without_answer = "[EOSLOG_INVALID_REQUEST] nobody answered, so nothing was changed. Give --yes to confirm"
    assert (without_answer in refused.stderr.splitlines()) is (not answer)
    assert store.admin.list_topics() == ["t"]


def test_a_topic_is_deleted_after_a_yes(command: Command, store: eoslog.Store) -> None:
    command.ok("topics", "delete", "t", text="y\n")

    assert store.admin.list_topics() == []


def test_a_topic_takes_its_columns_from_a_parquet_file(command: Command, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), tmp_path / "rows.parquet")

    command.ok("topics", "create", "t", "--schema-from", str(tmp_path / "rows.parquet"))

    assert command.json("topics", "describe", "t")["columns"] == ["id int64", "name string"]


def test_settings_are_given_changed_and_shown(command: Command) -> None:
    command.ok("topics", "create", "t", "--add-config", "segment.batches=5", "--add-config", "retention.ms=1000")
    altered = command.json("topics", "alter", "t", "--add-config", "retention.bytes=7", "--delete-config", "segment.ms")
    command.ok("topics", "alter", "t", "--delete-config", "retention.ms")

    described = command.json("topics", "describe", "t")
    assert (altered["retention_ms"], altered["retention_bytes"], altered["segment_batches"]) == (1000, 7, 5)
    assert (described["retention_ms"], described["retention_bytes"], described["segment_batches"]) == (-1, 7, 5)


def test_a_new_topic_gets_settings_in_kafkas_spelling_or_with_underscores(command: Command) -> None:
    command.ok("topics", "create", "t", "--config", "segment.batches=5", "--config", "retention_ms=1000")

    described = command.json("topics", "describe", "t")
    assert (described["retention_ms"], described["segment_batches"]) == (1000, 5)


@pytest.mark.parametrize("wrong", ["retention.sm", "retentionMs", "retention-ms"])
def test_an_unknown_setting_of_a_new_topic_is_refused_with_the_nearest(command: Command, wrong: str) -> None:
    result = command.run("topics", "create", "t", "--config", f"{wrong}=1")

    assert result.exit_code == 1
    assert f"setting '{wrong}' is unknown. Did you mean 'retention.ms'?" in result.stderr


def test_the_settings_file_is_named_before_the_command_that_has_settings(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'store = "{command.url}"\n')

    result = CliRunner().invoke(cli, ["--config", str(file), "topics", "create", "t", "--config", "retention.ms=1000"])

    assert result.exit_code == 0, result.output
    assert command.json("topics", "describe", "t")["retention_ms"] == 1000


def test_an_existing_topic_is_left_as_it_is_on_request(command: Command) -> None:
    command.ok("topics", "create", "t", "--partitions", "2", "--if-not-exists")

    again = command.ok("topics", "create", "t", "--if-not-exists")

    assert again == "there is already topic t with 2 partitions\n"
    assert command.run("topics", "create", "t").exit_code == 1


def test_a_topic_that_is_not_there_is_deleted_if_told_so(command: Command, store: eoslog.Store) -> None:
    assert command.json("topics", "delete", "t", "--if-exists", "--yes")["deleted"] is True
    assert command.json("topics", "delete", "t", "--if-exists", "--yes")["deleted"] is False
    assert command.run("topics", "delete", "t", "--yes").exit_code == 1


def test_a_topic_gets_more_partitions(command: Command) -> None:
    command.ok("topics", "create", "t")

    assert command.ok("topics", "alter", "t", "--partitions", "3") == "altered topic t\n"

    assert len(command.json("topics", "describe", "t")["partitions"]) == 3


def test_columns_are_added_and_their_history_is_shown(command: Command) -> None:
    command.ok("topics", "create", "t", "--column", "id:long")

    altered = command.json("topics", "alter", "t", "--add-column", "note:string", "--add-column", "miles:decimal(5,2)")

    assert altered["schema_version"] == 2
    assert command.json("topics", "describe", "t")["columns"] == ["id int64", "note string", "miles decimal128(5, 2)"]
    assert [
        (each["schema_version"], each["columns"], each["added"]) for each in command.json("topics", "schemas", "t")
    ] == [
        (1, 1, ""),
        (2, 3, "note, miles"),
    ]
    assert command.run("topics", "alter", "t", "--add-column", "id:string").exit_code == 1
    assert "--add-column" in command.run("topics", "alter", "t", "--add-column", "id").stderr
    assert command.run("topics", "alter", "t", "--add-column", "x:int", "--partitions", "2").exit_code == 2


def test_the_oldest_records_are_deleted(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        for number in range(3):
            producer.send("t", b"%d" % number)

    refused = command.run("topics", "delete-records", "t", "--offset", "0:2", text="n\n")
    deleted = command.json("topics", "delete-records", "t", "--offset", "0:2", "--yes")
    rest = command.ok("topics", "delete-records", "t", text="y\n")

    assert refused.exit_code == 1
    assert deleted == [{"topic": "t", "partition": 0, "earliest": 2}]
    assert rest.split()[-3:] == ["t", "0", "3"]
    assert store.scan("t").record_count == 0


def test_a_topic_is_described_with_its_partitions(command: Command) -> None:
    command.ok("topics", "create", "t", "--partitions", "2", "--add-config", "segment.batches=7")
    command.ok("console", "produce", "t", "--partition", "1", text="a\nb\n")

    described = command.json("topics", "describe", "t")
    text = command.ok("topics", "describe", "t")

    assert (described["segment_batches"], described["partition_count"]) == (7, 2)
    assert [(each["high_watermark"], each["active_batches"]) for each in described["partitions"]] == [(0, 0), (2, 1)]
    assert "Partition  Earliest  LastStableOffset  HighWatermark" in text


def test_tables_have_the_columns_of_kafka_s_tools(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    assert columns_of(command.ok("transactions", "list", "--wide")) == [
        "TransactionalId",
        "Coordinator",
        "ProducerId",
        "TransactionState",
        "Kind",
        "PreparedTransaction",
    ]
    assert columns_of(command.ok("transactions", "describe-producers", "t", "0", "--wide")) == [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "UTC",
        "CurrentTransactionStartOffset",
    ]
    described = command.ok("transactions", "describe", "etl-1")
    assert [line.split()[0] for line in described.splitlines()] == [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeout",
        "CurrentTransactionStartTime",
        "TransactionDuration",
        "TopicPartitions",
        "Kind",
        "LastUpdateTime",
        "PreparedTransaction",
        "PreparedTime",
        "PreparedTimeout",
    ]


def test_transactions_are_listed_by_state_and_producer_id(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    producer_id = str(open_transaction.producer_id)

    listed = command.json("transactions", "list", "--state", "Ongoing", "--producer-id", producer_id)

    assert listed == [
        {
            "transactional_id": "etl-1",
            "coordinator": -1,
            "producer_id": int(producer_id),
            "transaction_state": "ONGOING",
            "kind": "producer",
            "prepared_transaction": None,
        }
    ]
    assert command.json("transactions", "list", "--state", "Empty", "--state", "CompleteCommit") == []
    assert command.json("transactions", "list", "--producer-id", "1") == []
    assert command.ok("transactions", "list", "--producer-id", "1") == "no transactional ids\n"


def test_transactions_are_listed_by_pattern_and_duration(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    store.producer("other").init_transactions()

    def listed(*options: str) -> list[str]:
        return [each["transactional_id"] for each in command.json("transactions", "list", *options)]

    assert listed("--transactional-id-pattern", "etl-.*") == ["etl-1"]
    assert listed("--transactional-id-pattern", "etl") == []
    while not (running := listed("--duration-filter", "0")):
        time.sleep(0.01)
    assert running == ["etl-1"]
    assert listed("--duration-filter", "86400000") == []


def test_a_state_that_does_not_exist_is_passed_over_with_a_warning(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    result = command.run("transactions", "list", "--state", "Hanging", "--state", "Ongoing", "--json")

    assert result.exit_code == 0
    assert [each["transactional_id"] for each in json.loads(result.stdout)] == ["etl-1"]
    assert result.stderr.startswith("no transaction state is named 'Hanging'; the states are: EMPTY, ONGOING")


def test_a_transaction_is_aborted_by_the_offset_at_which_it_begins(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    (producer,) = command.json("transactions", "describe-producers", "t", "0")
    offset = str(producer["current_transaction_start_offset"])

    aborted = command.json(
        "transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", offset, "--yes"
    )

    assert aborted == {"transactional_id": "etl-1", "aborted": True}
    assert command.json("transactions", "describe", "etl-1")["transaction_state"] == "COMPLETE_ABORT"


def test_an_abort_at_an_offset_where_no_transaction_begins_names_the_command_that_shows_them(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    refused = command.run("transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", "77", "--yes")

    assert refused.exit_code == 1
    assert "offset 77 of partition t-0. Run eoslog transactions describe-producers" in refused.stderr


def test_numbers_are_printed_as_they_are_to_be_typed(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    assert open_transaction.producer_id > 1_000_000
    assert str(open_transaction.producer_id) in command.ok("transactions", "list").split()


def test_an_open_transaction_is_described_found_hanging_and_aborted(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    described = command.json("transactions", "describe", "etl-1")
    (producer,) = command.json("transactions", "describe-producers", "t", "0")
    assert (described["transaction_state"], described["topic_partitions"]) == ("ONGOING", ["t-0"])
    assert producer["current_transaction_start_offset"] == 0

    assert command.ok("transactions", "find-hanging") == "no hanging transactions\n"
    while not (hanging := command.json("transactions", "find-hanging", "--max-transaction-timeout", "0")):
        time.sleep(0.01)
    assert list(hanging[0])[:8] == [
        "topic",
        "partition",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "start_offset",
        "last_timestamp",
        "duration_ms",
    ]
    assert [(each["topic"], each["partition"], each["start_offset"]) for each in hanging] == [("t", 0, 0)]

    assert command.json("transactions", "abort", "etl-1", "--yes") == {"transactional_id": "etl-1", "aborted": True}
    assert command.ok("transactions", "abort", "etl-1") == "nothing was open under etl-1\n"
    with pytest.raises(eoslog.EosLogError):
        open_transaction.commit_transaction()


def test_a_prepared_transaction_is_shown_and_terminated_by_force_only(
    command: Command, open_transaction: eoslog.Producer
) -> None:
    prepared = open_transaction.prepare_transaction()

    (listed,) = command.json("transactions", "list")
    described = command.json("transactions", "describe", "etl-1")
    refused = command.run("transactions", "abort", "etl-1", "--yes")

    assert listed["prepared_transaction"] == described["prepared_transaction"] == prepared
    assert described["prepared_timeout_ms"] == 7 * 24 * 3600 * 1000
    assert refused.exit_code == 1
    assert "eoslog transactions force-terminate" in refused.stderr
    terminate = ("transactions", "force-terminate", "etl-1")
    assert command.json(*terminate, "--yes") == {"transactional_id": "etl-1", "terminated": True}
    assert command.ok(*terminate) == "nothing was open under etl-1\n"


def test_fence_ends_a_producer_with_or_without_an_open_transaction(
    command: Command, open_transaction: eoslog.Producer
) -> None:
    fenced = command.json("transactions", "fence", "etl-1", "--yes")
    again = command.ok("transactions", "fence", "etl-1", "--yes")

    assert fenced == {"transactional_id": "etl-1", "fenced": True, "aborted": True}
    assert again == "fenced the producer of etl-1\n"
    with pytest.raises(eoslog.errors.ProducerFenced):
        open_transaction.commit_transaction()


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (("transactions", "abort", "etl-1"), "Abort the transaction of etl-1, open for"),
        (("transactions", "fence", "etl-1"), "Fence the producer of etl-1, and abort its open transaction?"),
        (("transactions", "force-terminate", "etl-1"), "Force the abort of the transaction of etl-1, open for"),
        (("groups", "delete", "g"), "Delete consumer group g with its offsets in 1 partition?"),
        (("groups", "delete-offsets", "g", "t"), "Delete the offsets of consumer group g in 1 partition?"),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_a_command_that_ends_or_deletes_something_asks_and_does_nothing_after_a_no(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer, arguments: tuple[str, ...], question: str
) -> None:
    store.admin.alter_consumer_group_offsets("g", {eoslog.TopicPartition("t", 0): 0})
    before = store.read(lambda state, slot: slot)

    refused = command.run(*arguments, text="n\n")
    unanswered = command.run(*arguments)

    assert (refused.exit_code, question in refused.stderr) == (1, True)
    assert "nothing was changed. Give --yes to confirm" in unanswered.stderr
    assert store.read(lambda state, slot: slot) == before


def test_offsets_show_what_open_transactions_hold_back(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    assert command.json("offsets", "t") == [
        {"topic": "t", "partition": 0, "earliest": 0, "last_stable_offset": 0, "high_watermark": 1, "lso_lag": 1}
    ]


def test_offsets_of_all_topics_name_the_topic(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("a", partitions=2)

    assert [line.split()[:2] for line in command.ok("offsets").splitlines()] == [
        ["Topic", "Partition"],
        ["a", "0"],
        ["a", "1"],
        ["t", "0"],
    ]
    assert columns_of(command.ok("offsets", "t"))[0] == "Partition"


def test_offsets_by_time_are_those_of_the_first_committed_record_since_then(
    command: Command, store: eoslog.Store
) -> None:
    with store.producer() as producer:
        for time_ms in (1_000, 61_000):
            producer.send("t", b"v", timestamp=time_ms)

    def at(time: str) -> int | None:
        (row,) = command.json("offsets", "t", "--time", time)
        offset: int | None = row["offset_for_time"]
        return offset

    assert [at("1970-01-01T00:00:00"), at("1970-01-01T00:00:02"), at("1970-01-01T00:00:02-01:00")] == [0, 1, None]
    assert command.run("offsets", "t", "--time", "noon").exit_code == 2


def test_offsets_show_how_far_a_group_is_behind(command: Command) -> None:
    command.ok("topics", "create", "t", "--partitions", "2")
    store = eoslog.connect(command.url)
    command.ok("console", "produce", "t", "--partition", "0", text="a\nb\nc\n")
    with store.consumer(group_id="g") as consumer:
        consumer.assign([eoslog.TopicPartition("t", 0)])
        consumer.commit({eoslog.TopicPartition("t", 0): 1})

    behind = command.json("offsets", "t", "--group", "g")

    assert [(each["committed_offset"], each["lag"]) for each in behind] == [(1, 2), (None, None)]
    assert command.ok("offsets", "t", "--group", "g").splitlines()[2].split()[-2:] == ["-", "-"]


def test_the_lag_of_a_group_is_the_same_in_both_commands_while_a_transaction_is_open(
    command: Command, store: eoslog.Store, open_transaction: eoslog.Producer
) -> None:
    (topic,) = store.admin.list_topics()
    store.admin.alter_consumer_group_offsets("g", {eoslog.TopicPartition(topic, 0): 0})

    described = command.json("groups", "describe", "g")
    (row,) = command.json("offsets", topic, "--group", "g")

    assert row["last_stable_offset"] < row["high_watermark"]
    assert (row["committed_offset"], row["lag"]) == (0, described[0]["lag"]) == (0, row["high_watermark"])


def test_a_store_is_described(command: Command, store: eoslog.Store, open_transaction: eoslog.Producer) -> None:
    described = command.json("describe")

    assert described["store_id"] == store.describe().store_id
    assert (described["format_version"], described["probed_put_if_absent"]) == (1, True)
    assert (described["topics"], described["transactional_ids"], described["open_transactions"]) == (1, 1, 1)
    assert [each["kind"] for each in command.json("transactions", "list")] == ["producer"]
    assert described["checkpoint_slot"] is None
    assert command.url in command.ok("describe")


def test_the_announced_append_service_is_described(command: Command, store: eoslog.Store) -> None:
    assert "append_service" not in command.json("describe")

    with AppendService(store, "127.0.0.1:0"):
        while "append_service" not in (described := command.json("describe")):
            time.sleep(0.01)

    assert described["append_service"].startswith("127.0.0.1:")
    assert described["append_service_expires_ms"] > store.now_ms()
    assert "append_service" not in command.json("describe")


def test_a_checkpoint_is_written_at_the_tail(command: Command, store: eoslog.Store) -> None:
    tail = command.json("describe")["newest_slot"]

    written = command.json("checkpoint")

    assert written["slot"] == tail
    assert (Path(command.url) / written["path"]).stat().st_size == written["bytes"]
    assert command.json("describe")["checkpoint_slot"] == tail


def test_index_files_that_are_gone_are_listed_and_put_back(command: Command, store: eoslog.Store) -> None:
    store.admin.alter_topic("t", segment_batches=1)
    command.ok("console", "produce", "t", text="a\n")
    command.ok("seal")
    assert command.ok("restore-indexes", "t") == "no file is missing or damaged\n"
    (snapshot,) = Path(command.url).rglob("*.snapshot")
    body = snapshot.read_bytes()
    snapshot.unlink()

    (listed,) = command.json("restore-indexes", "t", "--dry-run")
    assert (listed["kind"], listed["problem"], listed["restored"], snapshot.exists()) == (
        "snapshot",
        "missing",
        False,
        False,
    )
    assert command.json("restore-indexes", "t")[0]["restored"] is True
    assert snapshot.read_bytes() == body


def test_segments_that_are_large_enough_are_sealed(command: Command) -> None:
    command.ok("topics", "create", "t", "--add-config", "segment.batches=1")
    command.ok("console", "produce", "t", text="a\n")
    command.ok("console", "produce", "t", text="b\n")

    assert command.json("seal") == [{"topic": "t", "partition": 0}] * 2
    assert command.ok("seal") == "no segment is large or old enough\n"
    assert command.ok("console", "consume", "t", "--from-beginning", "--timeout", "0") == "a\nb\n"


@pytest.mark.usefixtures("files_are_objects")
def test_vacuum_deletes_what_its_settings_no_longer_spare(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.ok("console", "produce", "t", text="kept\n")
    lost = next(path for path in Path(command.url, "t").rglob("*.parquet")).with_name("lost.parquet")
    lost.write_bytes(b"unreferenced")
    relative = str(lost.relative_to(command.url))
    assert command.json("vacuum")["paths"] == []

    monkeypatch.setenv("EOSLOG_VACUUM__STAGED_MAX_AGE_MS", "1")
    while not (planned := command.json("vacuum", "--dry-run"))["paths"]:
        time.sleep(0.01)
    assert (planned["paths"], planned["bytes"], planned["dry_run"]) == ([relative], 12, True)
    assert lost.exists()
    assert command.json("vacuum")["paths"] == [relative]

    assert not lost.exists()
    assert command.ok("console", "consume", "t", "--from-beginning", "--timeout", "0") == "kept\n"


def test_last_committed_shows_the_last_commit_of_a_transactional_id(command: Command, store: eoslog.Store) -> None:
    with store.producer("loader") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.send_offsets_to_transaction({eoslog.TopicPartition("t", 0): 5}, "g")
        producer.commit_transaction(application_id="nightly", version=3)

    told = command.json("transactions", "last-committed", "loader")

    assert told["slot"] == store.read(lambda state, slot: slot)
    assert (told["application_id"], told["version"], told["rows"]) == ("nightly", 3, ["t: 1"])
    assert (told["offsets"], told["versions"]) == (["g: t-0: 5"], ["nightly *: 3"])


def test_a_new_store_is_told_on_standard_error(command: Command) -> None:
    first = command.run("topics", "create", "t", "--json")
    second = command.run("topics", "create", "u")

    assert json.loads(first.stdout)["topic"] == "t"
    assert first.stderr == f"created a new store at {command.url}\n"
    assert second.stderr == ""


def test_a_mistyped_place_becomes_no_store_if_none_may_be_created(command: Command) -> None:
    refused = command.run("topics", "create", "t", "--no-create")

    assert refused.exit_code == 1
    assert f"there is no eoslog store at {command.url}" in refused.stderr
    assert not Path(command.url).exists()
    command.ok("topics", "create", "t")
    command.ok("topics", "create", "u", "--no-create")
