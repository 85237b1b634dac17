"""What the pages show of a store."""

from __future__ import annotations

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import eoslog
from eoslog.errors import StoreAccessDenied, StoreUnavailable
from eoslog.log.slots import slot_path
from eoslog.read.history import Operation
from eoslog.state.end_requests import TransactionContent
from eoslog.state.group_entries import GroupOffset, GroupOffsets
from eoslog.state.jobs import CommitJob
from eoslog.state.transaction_entries import AddedToTransaction, ApplicationVersion, CommitSummary
from eoslog.state.transaction_requests import AddToTransaction, InitProducerId
from eoslog.ui.job_pages import recent_work
from eoslog.ui.overview_page import commit_rate
from eoslog.ui.pages import PAGE_SIZE
from tests.unit.support.groups import coordinate
from tests.unit.ui.conftest import ServedConsole
from tests.unit.ui.forms import csrf_token, problem, rows, words


def commit(store: eoslog.Store, transactional_id: str, values: list[bytes], partition: int = 0) -> None:
    with store.producer(transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send("payments", value=value, partition=partition)
        producer.commit_transaction()


def open_transaction(store: eoslog.Store, transactional_id: str, rows: int, partition: int = 0) -> eoslog.Producer:
    producer = store.producer(transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(rows):
        producer.send("payments", value=b"%d" % number, partition=partition)
    producer.flush()
    return producer


def test_an_empty_store_has_pages_that_say_what_to_do(browser: TestClient) -> None:
    assert "Nothing. Consumers at read_committed see every row" in words(browser.get("/"))
    assert "Produce some: echo hello | eoslog" in words(browser.get("/topics/payments/rows"))
    assert "No producer has used a transactional id" in words(browser.get("/transactions"))
    assert "No consumer group has members or offsets" in words(browser.get("/groups"))
    assert "No Spark job has written" in words(browser.get("/jobs"))
    assert "was not verified since the console started" in words(browser.get("/verify"))


def test_the_overview_counts_the_contents_of_the_store(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a", b"b"])
    commit(store, "etl-2", [b"c"], partition=1)
    held = open_transaction(store, "late", 3)

    page = words(browser.get("/"))

    assert "Topics 2 3 partitions" in page
    assert "Offsets 8 " in page
    assert "Open transactions 1 0 prepared" in page
    assert "Partitions held back 1" in page
    held.abort_transaction()


def test_the_overview_shows_the_transaction_that_holds_readers_back_and_its_age(
    store: eoslog.Store, browser: TestClient
) -> None:
    commit(store, "etl-1", [b"a", b"b"])
    held = open_transaction(store, "late", 3)
    open_later = open_transaction(store, "later", 1)

    (line,) = rows(browser.get("/"), "Transactions that hold readers back")

    assert line[:2] == ["payments-0", "late"]
    assert line[3:] == ["3", "4", "within its own timeout"]
    held.abort_transaction()
    open_later.abort_transaction()


def test_the_overview_lists_the_latest_operations_with_aborts(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a", b"b"])
    open_transaction(store, "late", 1).abort_transaction()

    first, second, *_ = rows(browser.get("/"), "Operations")

    assert [first[2], first[7]] == ["abort", "late"]
    assert [second[2], second[4], second[7]] == ["append", "2", "etl-1"]


@pytest.mark.usefixtures("files_are_objects")
def test_the_latest_operations_name_partition_0(store: eoslog.Store, browser: TestClient) -> None:
    for value in (b"a", b"b", b"c"):
        with store.producer() as producer:
            producer.send("payments", value, partition=0)
    store.admin.compact_files("payments", now=True)

    (details,) = [row[8] for row in rows(browser.get("/"), "Operations") if row[2] == "compact_files"]

    assert "partition 0" in details


def operations(*times_ms: int) -> list[Operation]:
    """Commits at these times, the newest first."""
    return [Operation(slot=1, timestamp=each, operation="append", topics=(), outcome="commit") for each in times_ms]


def test_the_rate_of_commits_is_that_of_the_last_minutes() -> None:
    minute = 60_000
    now = 100 * minute

    rate = commit_rate(operations(now, now - minute, now - minute, now - 20 * minute), is_whole=True, now_ms=now)

    assert rate.a_minute == 3 / 5
    assert list(rate.bars[-2:]) == [2, 1]
    assert sum(rate.bars) == 4
    assert (rate.bar_ms, rate.span_ms) == (minute, 30 * minute)


def test_the_rate_of_commits_counts_only_the_time_that_was_looked_at() -> None:
    minute = 60_000
    now = 100 * minute

    rate = commit_rate(operations(now, now - 59_000, now - 2 * minute), is_whole=False, now_ms=now)

    assert rate.a_minute == 2
    assert rate.bar_ms == 2_000
    assert rate.span_ms <= 2 * minute
    assert list(rate.bars) == [1, *[0] * 28, 1]


def test_without_a_commit_in_the_bars_there_is_no_rate() -> None:
    now = 6_000_000

    rate = commit_rate(operations(now - 70_000, now - 86_000), is_whole=False, now_ms=now)

    assert (rate.span_ms, sum(rate.bars), rate.a_minute) == (60_000, 0, 0)


def test_a_store_without_operations_has_no_rate() -> None:
    assert commit_rate([], is_whole=True, now_ms=1).a_minute == 0


def test_the_overview_tells_how_far_a_delta_table_lags(store: eoslog.Store, browser: TestClient) -> None:
    store.admin.alter_topic("flights", publish="delta")
    store.admin.publish("flights")

    (line,) = rows(browser.get("/"), "Published tables")

    assert line == ["flights", "up to date"]


def test_the_overview_is_there_for_a_reader_that_may_not_list_delta_tables(
    store: eoslog.Store, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise StoreAccessDenied("LIST was refused")

    store.admin.alter_topic("flights", publish="delta")
    monkeypatch.setattr(store, "metrics", refuse)

    page = browser.get("/")

    assert page.status_code == 200
    assert "[EOSLOG_STORE_ACCESS_DENIED] LIST was refused" in words(page)


def test_topics_are_filtered_and_sorted(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"])

    assert [row[0] for row in rows(browser.get("/topics"), "List of topics")] == ["flights", "payments"]
    assert [row[0] for row in rows(browser.get("/topics?sort=offsets"), "List of topics")] == ["payments", "flights"]
    assert [row[0] for row in rows(browser.get("/topics?q=LIGH"), "List of topics")] == ["flights"]
    assert "No topic has “nothing” in its name" in words(browser.get("/topics?q=nothing"))


def test_a_long_list_has_pages(store: eoslog.Store, browser: TestClient) -> None:
    for number in range(PAGE_SIZE):
        store.admin.create_topic(f"t{number:03}")

    first, second = browser.get("/topics"), browser.get("/topics?page=2")

    assert len(rows(first, "List of topics")) == PAGE_SIZE
    assert [row[0] for row in rows(second, "List of topics")] == ["t098", "t099"]
    assert "1\u2013100 of 102 topics" in words(first)
    assert "101\u2013102 of 102 topics" in words(second)
    assert 'href="/topics?page=2" rel="next"' in first.text
    assert 'href="/topics" rel="prev"' in second.text
    assert rows(browser.get("/topics?page=99"), "List of topics") == rows(second, "List of topics")


def test_a_topic_shows_its_partitions_and_what_holds_them_back(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a", b"b"])
    held = open_transaction(store, "late", 2)

    first, second = rows(browser.get("/topics/payments"), "Partitions")

    assert first[:4] == ["0", "0", "3", "5"]
    assert first[8].startswith("late since")
    assert second[:4] == ["1", "0", "0", "0"]
    assert second[8] == ""
    held.abort_transaction()


def test_a_topic_shows_its_settings_and_the_history_of_its_schema(store: eoslog.Store, browser: TestClient) -> None:
    store.admin.alter_topic("flights", retention_ms=86_400_000)
    store.admin.add_columns("flights", pa.schema([("delay", pa.int64())]))

    page = browser.get("/topics/flights")

    assert rows(page, "Settings")[0] == ["retention.ms", "1 d 86400000", "-1"]
    assert [row[0] for row in rows(page, "Columns")] == ["carrier key", "miles", "tags", "delay"]
    assert [(row[0], row[3]) for row in rows(page, "Versions of the schema")] == [("2", "delay"), ("1", "")]


def test_a_partition_shows_its_segments(store: eoslog.Store, browser: TestClient) -> None:
    store.admin.alter_topic("payments", segment_batches=1)
    commit(store, "etl-1", [b"a", b"b"])
    eoslog.Coordinator(store).seal()

    segments = rows(browser.get("/topics/payments/segments/0"), "Sealed segments")

    assert [segment[:4] for segment in segments] == [["2", "2", "1", "0"], ["0", "1", "1", "1"]]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/nothing", 404),
        ("/topics/payments/segments/2", 404),
        ("/topics/payments/segments/x", 404),
        ("/topics/payments/rows?partition=7", 404),
        ("/topics/payments/rows?from=first", 400),
        ("/topics/payments/rows?view=some", 400),
        ("/topics/payments/rows?slot=99", 400),
        ("/topics/payments/rows?date=yesterday", 400),
        ("/topics/payments/rows?where=nothing%20%3D%201", 400),
        ("/topics/payments/rows/0/5", 400),
        ("/topics?page=-1", 400),
        ("/transactions?state=some", 400),
        ("/transactions/one?id=nothing", 404),
        ("/transactions/one", 400),
        ("/groups/one?id=nothing", 404),
        ("/jobs/one?id=nothing", 404),
        ("/log/99", 400),
        ("/log?until=-1", 400),
        ("/nowhere", 404),
    ],
)
def test_a_wrong_address_gets_a_page_with_the_problem(browser: TestClient, path: str, status: int) -> None:
    answer = browser.get(path)

    assert answer.status_code == status
    assert problem(answer)


def test_a_store_that_does_not_answer_gets_a_page_that_says_so(
    store: eoslog.Store, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("the object store does not answer")

    monkeypatch.setattr(store, "read", fail)
    monkeypatch.setattr(type(store.log), "read", lambda *arguments, **options: 0)
    answer = browser.get("/topics")

    assert answer.status_code == 503
    assert "[EOSLOG_STORE_UNAVAILABLE]" in problem(answer)


def test_open_transactions_come_first_with_their_rows_and_age(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"])
    held = open_transaction(store, "late", 3)

    first, second = rows(browser.get("/transactions"), "List of transactional ids")

    assert [first[0], first[1], first[6], first[7]] == ["late", "open", "1", "3"]
    assert [second[0], second[1], second[8]] == ["etl-1", "complete commit", "committed"]
    held.abort_transaction()


def test_transactions_are_filtered_by_state_and_name(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"])
    open_transaction(store, "fenced", 1)
    store.producer("fenced").init_transactions()
    held = open_transaction(store, "late", 1)

    def names(query: str) -> list[str]:
        page = browser.get(f"/transactions?{query}")
        return [row[0] for row in rows(page, "List of transactional ids")]

    assert names("state=open") == ["late"]
    assert names("state=fenced") == ["fenced"]
    assert names("state=committed") == ["etl-1"]
    assert names("q=etl") == ["etl-1"]
    held.abort_transaction()


def test_a_transaction_shows_where_its_rows_are(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"], partition=1)
    held = open_transaction(store, "late", 3, partition=1)

    page = browser.get("/transactions/one?id=late")

    assert rows(page, "Partitions of the open transaction") == [["payments-1", "2", "3", "held back here"]]
    assert "from=2" in page.text
    held.abort_transaction()


def test_a_prepared_transaction_shows_the_offsets_that_it_would_commit(
    store: eoslog.Store, browser: TestClient
) -> None:
    commit(store, "etl-1", [b"a"])
    producer = store.producer("bank", prepared_timeout_ms=None)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({eoslog.TopicPartition("payments", 0): 1}, "billing")
    producer.prepare_transaction()

    page = words(browser.get("/transactions/one?id=bank"))

    assert "State prepared ONGOING" in page
    assert "Timeout none while it is prepared" in page
    assert "Would commit 1 offset of group billing" in page
    store.admin.force_terminate_transaction("bank")


def test_an_open_transaction_shows_the_offsets_that_were_added_to_it(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"])
    identity = store.append(InitProducerId("client", timeout_ms=60_000, time_ms=store.now_ms())).identity
    topic_id = store.read(lambda state, slot: state.topic_ids["payments"])
    place = GroupOffset(topic_id=topic_id, partition=0, offset=1)
    added = AddedToTransaction(
        transactional_id="client",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        offsets=(GroupOffsets(group="billing", offsets=(place,)),),
        time_ms=store.now_ms(),
    )
    store.append(AddToTransaction(added))

    page = words(browser.get("/transactions/one?id=client"))

    assert "State open ONGOING" in page
    assert "Would commit 1 offset of group billing" in page


def test_a_task_of_a_job_has_a_page(store: eoslog.Store, browser: TestClient) -> None:
    _job(store)

    page = words(browser.get("/transactions/one?id=nightly/0"))

    assert "Kind task" in page


def _job(store: eoslog.Store, query_id: str | None = "q-1") -> None:
    topic_id = store.admin.describe_topic("payments").topic_id
    for number in range(2):
        store.append(
            CommitJob(
                job_id="nightly",
                owner="run-1",
                take_over=True,
                content=TransactionContent(
                    application_version=ApplicationVersion(
                        application_id="nightly", sink=f"payments:{topic_id}", version=number, query_id=query_id
                    ),
                    task_count=2,
                    summary=CommitSummary(
                        operation="append",
                        duration_ms=100 * (number + 1),
                        query_id=query_id,
                        batch_id=None if query_id is None else number,
                        engine="spark-4",
                    ),
                ),
                time_ms=store.now_ms(),
            )
        )


def test_jobs_show_their_micro_batches_and_which_replays_are_recognized(
    store: eoslog.Store, browser: TestClient
) -> None:
    _job(store)

    (line,) = rows(browser.get("/jobs"), "List of jobs")
    page = browser.get("/jobs/one?id=nightly")

    assert [line[0], line[1], line[2], line[6], line[10]] == ["nightly", "q-1", "1", "2", "spark-4"]
    assert rows(page, "Versions") == [["nightly", "payments", "1", "q-1"]]
    assert [(row[2], row[10]) for row in rows(page, "Commits")] == [("1", "200 ms"), ("0", "100 ms")]
    assert ">Micro-batch</th>" in page.text


def test_a_version_that_a_batch_write_gave_is_not_called_a_micro_batch(
    store: eoslog.Store, browser: TestClient
) -> None:
    _job(store, query_id=None)

    page = browser.get("/jobs/one?id=nightly")

    assert [row[2] for row in rows(page, "Commits")] == ["1", "0"]
    assert ">Version</th>" in page.text
    assert "Micro-batch" not in page.text


def test_the_log_lists_slots_with_their_writers(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"])

    lines = rows(browser.get("/log"), "List of slots")

    assert [(row[2], row[3]) for row in lines] == [
        ("etl-1", "end"),
        ("etl-1", "batch"),
        ("etl-1", "init"),
        ("flights", "topic"),
        ("payments", "topic"),
        ("maintenance", "store"),
    ]


def test_the_log_has_pages(store: eoslog.Store, browser: TestClient) -> None:
    for _ in range(60):
        store.admin.alter_topic("payments", segment_ms=1_000 + _)

    first = browser.get("/log")

    slots = [int(row[0]) for row in rows(first, "List of slots")]
    assert slots == list(range(62, 12, -1))
    assert 'href="/log?until=12">Older' in first.text
    assert [int(row[0]) for row in rows(browser.get("/log?until=12"), "List of slots")] == list(range(12, -1, -1))


def test_a_slot_shows_its_record_as_json(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a"])

    page = browser.get("/log/5")

    assert '"transactional_id": "etl-1"' in words(page)
    assert rows(page, "Operations")[0][2] == "append"


def test_a_slot_that_was_deleted_is_not_there(store: eoslog.Store, browser: TestClient) -> None:
    store.object_store.delete([slot_path(1)])
    answer = browser.get("/log/1")

    assert answer.status_code == 404
    assert "was deleted after its retention" in words(answer)


def test_groups_are_sorted_by_name_or_by_lag(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        for _ in range(3):
            producer.send("payments", b"v", partition=0)
    for name, offset in (("a", 2), ("b", 0), ("c", 1)):
        store.admin.alter_consumer_group_offsets(name, {eoslog.TopicPartition("payments", 0): offset})

    def listed(**parameters: str) -> list[tuple[str, str]]:
        found = rows(browser.get("/groups", params=parameters), "List of consumer groups")
        return [(row[0], row[4]) for row in found]

    assert listed() == [("a", "1"), ("b", "3"), ("c", "2")]
    assert listed(sort="lag") == [("b", "3"), ("c", "2"), ("a", "1")]


def test_a_topic_has_the_columns_that_the_command_names(store: eoslog.Store, browser: TestClient) -> None:
    shown = [row[:2] for row in rows(browser.get("/topics/payments"), "Columns")]

    assert [name for name, _ in shown] == ["key", "value", "headers", "timestamp"]


def test_the_median_of_two_durations_lies_between_them() -> None:
    commits = [
        Operation(slot=1, timestamp=1, operation="append", topics=(), outcome="commit", duration_ms=each)
        for each in (100, 300)
    ]

    assert (recent_work(commits).median_ms, recent_work(commits).longest_ms) == (200, 300)


def test_a_group_shows_its_members_and_lags(store: eoslog.Store, browser: TestClient) -> None:
    commit(store, "etl-1", [b"a", b"b"])
    with store.consumer(group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe(["payments"])
        consumer.poll(timeout=5)
        consumer.commit({eoslog.TopicPartition("payments", 0): 1})

        (line,) = rows(browser.get("/groups"), "List of consumer groups")
        page = browser.get("/groups/one?id=billing")

    assert [line[0], line[1], line[2], line[4]] == ["billing", "stable", "1", "2"]
    assert rows(page, "Members")[0][5] == "payments-0 payments-1"
    assert rows(page, "Partitions")[0][:5] == ["payments-0", "1", "3", "3", "2"]


def test_a_group_of_kafkas_clients_shows_its_coordinator(store: eoslog.Store, browser: TestClient) -> None:
    coordinate(store)

    (line,) = rows(browser.get("/groups"), "List of consumer groups")
    (member,) = rows(browser.get("/groups/one?id=g"), "Members")

    assert line[:3] == ["g", "stable", "1"]
    assert member[0] == "k1"
    assert member[2:] == ["far", "eoslog gateway", "k1.example:9092", "t", "shared by its clients"]


@pytest.mark.usefixtures("files_are_objects")
def test_a_verification_runs_and_shows_its_findings(
    store: eoslog.Store, read_only: ServedConsole, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, "etl-1", [b"a"])
    (data,) = [info.path for info in store.object_store.list("payments/")]
    store.object_store.delete([data])
    monkeypatch.setattr(store.environment, "background", lambda work: work())

    answer = browser.post("/verify", data={"csrf_token": csrf_token(browser, "/verify")})
    page = browser.get("/verify")

    assert (answer.status_code, answer.headers["location"]) == (303, "/verify")
    assert "damaged" in words(page)
    assert rows(page, "Findings")[0][:2] == ["error", "data-missing"]
    assert "1 finding" in words(browser.get("/"))


def test_a_verification_of_a_topic_that_does_not_exist_is_refused(browser: TestClient) -> None:
    answer = browser.post("/verify", data={"csrf_token": csrf_token(browser, "/verify"), "topic": "nothing"})

    assert answer.status_code == 404


def test_looking_at_all_pages_writes_nothing_and_lists_nothing(store: eoslog.Store, browser: TestClient) -> None:
    producer = store.producer("overdue", transaction_timeout_ms=1)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("payments", value=b"a", partition=0)
    producer.flush()
    before = {kind: store.requests[kind] for kind in ("PUT", "DELETE", "LIST")}

    for path in (
        "/",
        "/topics",
        "/topics/payments",
        "/topics/payments/rows?partition=0",
        "/topics/payments/rows?view=stable&partition=0",
        "/topics/payments/rows?view=committed&partition=0",
        "/topics/payments/rows/0/0",
        "/transactions",
        "/transactions/one?id=overdue",
        "/groups",
        "/jobs",
        "/log",
    ):
        assert browser.get(path).status_code == 200, path

    assert {kind: store.requests[kind] for kind in before} == before
    assert "overdue" in words(browser.get("/transactions"))
