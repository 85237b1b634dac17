"""Spans of OpenTelemetry: a commit is one trace from its begin to its slot. Without a provider there is none."""

from __future__ import annotations

import re
import socket
import threading
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

import eoslog
from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.storage import tracing
from eoslog.store import Store
from tests.pages import REPOSITORY, fenced_blocks
from tests.programs import ran
from tests.s3.servers import S3Server
from tests.unit.log.queueing import await_queued, held
from tests.unit.support.held import LONGEST_WAIT_S
from tests.unit.support.recorded import Recorded, attributes
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty, values

PAGE = REPOSITORY / "docs/operations.md"
SLOT = "PUT slot"
TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def local(tmp_path: Path) -> Store:
    store = eoslog.connect(tmp_path / "store", fsync=False)
    store.admin.create_topic("t", partitions=2)
    return store


def began(store: Store, transactional_id: str = "tx", **options: int | bool) -> eoslog.Producer:
    return open_transaction(store, transactional_id, **options)


def context(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context


def links(span: ReadableSpan) -> list[SpanContext]:
    return [link.context for link in span.links]


def error_of(span: ReadableSpan) -> tuple[object, object]:
    """The error's class and code of a span with the status ERROR."""
    assert span.status.status_code is StatusCode.ERROR
    return attributes(span)["error.type"], span.status.description


@pytest.mark.usefixtures("files_are_objects")
def test_a_commit_is_one_trace_from_its_begin_to_its_slot(store: Store, recorded: Recorded) -> None:
    with began(store) as producer:
        producer_id, epoch = producer.producer_id, producer.producer_epoch
        recorded.clear()
        producer.send("t", b"1", partition=0)
        producer.send("t", b"2", partition=1)
        producer.commit_transaction()

    transaction = recorded.the("transaction")
    assert transaction.parent is None
    assert {context(span).trace_id for span in recorded.spans} == {context(transaction).trace_id}
    assert recorded.paths("upload") == [["upload", "flush", "transaction"]]
    assert recorded.paths("PUT data") == [["PUT data", "upload", "flush", "transaction"]] * 2
    assert recorded.paths(SLOT) == [
        [SLOT, "append batches", "flush", "transaction"],
        [SLOT, "append commit", "transaction"],
    ]
    assert transaction.status.status_code is StatusCode.UNSET
    assert attributes(transaction) == {
        "messaging.system": "eoslog",
        "messaging.batch.message_count": 2,
        "messaging.destination.name": "t",
        "eoslog.topics": ("t",),
        "eoslog.store": store.url,
        "eoslog.transactional_id": "tx",
        "eoslog.producer_id": producer_id,
        "eoslog.producer_epoch": epoch,
        "eoslog.outcome": "committed",
    }
    append = attributes(recorded.the("append commit"))
    assert append["eoslog.slot"] == next(iter(store.history("t"))).slot
    assert append["eoslog.append.records"] == 1
    assert append["eoslog.append.conflicts"] == 0


def test_a_staged_commit_is_one_trace_with_all_its_rows(store: Store, recorded: Recorded) -> None:
    store.admin.create_topic("u")
    with began(store, staged=True) as producer:
        producer.send("t", b"1", partition=0)
        producer.flush()
        producer.send("u", b"2")
        producer.commit_transaction()

    transaction = recorded.the("transaction")
    assert attributes(transaction)["messaging.batch.message_count"] == 2
    assert attributes(transaction)["eoslog.topics"] == ("t", "u")
    assert "messaging.destination.name" not in attributes(transaction)
    assert [context(span).trace_id for span in recorded.named("upload")] == [context(transaction).trace_id] * 2


def test_a_transaction_is_within_the_span_in_which_it_began(store: Store, recorded: Recorded) -> None:
    tracer = recorded.provider.get_tracer("program")
    producer = store.producer("tx")
    producer.init_transactions()
    with tracer.start_as_current_span("job") as job:
        producer.begin_transaction()
        producer.send("t", b"1")
        assert trace.get_current_span() is job
    with tracer.start_as_current_span("elsewhere"):
        producer.commit_transaction()

    assert recorded.path(recorded.the("transaction")) == ["transaction", "job"]
    assert recorded.path(recorded.the("append commit")) == ["append commit", "transaction", "job"]
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_each_transaction_of_a_producer_is_a_trace_of_its_own(store: Store, recorded: Recorded) -> None:
    with began(store) as producer:
        producer.send("t", b"1")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"2")
        producer.commit_transaction()

    first, second = recorded.named("transaction")
    assert context(first).trace_id != context(second).trace_id
    assert attributes(first)["messaging.batch.message_count"] == 1
    assert attributes(second)["messaging.batch.message_count"] == 1


def test_an_abort_ends_the_trace_with_an_error(store: Store, recorded: Recorded) -> None:
    producer = began(store)
    producer.send("t", b"1")
    producer.flush()
    producer.send("t", b"2")
    producer.abort_transaction()

    transaction = recorded.the("transaction")
    assert error_of(transaction) == ("aborted", "aborted")
    assert attributes(transaction)["eoslog.outcome"] == "aborted"
    assert attributes(transaction)["messaging.batch.message_count"] == 2
    assert recorded.paths("append abort") == [["append abort", "transaction"]]


def test_an_aborted_transaction_says_why_it_failed(store: Store, recorded: Recorded) -> None:
    producer = began(store)
    producer.send("t", b"1")
    store.admin.delete_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.commit_transaction()
    assert recorded.named("transaction") == []

    producer.abort_transaction()

    transaction = recorded.the("transaction")
    assert error_of(transaction) == ("UnknownTopicOrPartition", errors.UnknownTopicOrPartition.code)
    assert attributes(transaction)["eoslog.outcome"] == "aborted"

    producer.begin_transaction()
    producer.abort_transaction()
    assert error_of(recorded.named("transaction")[1]) == ("aborted", "aborted")


def test_a_fenced_producer_s_trace_ends_at_the_refusal(store: Store, recorded: Recorded) -> None:
    zombie = began(store)
    zombie.send("t", b"1")
    zombie.flush()
    began(store)

    with pytest.raises(errors.EosLogError) as refused:
        zombie.commit_transaction()

    transaction = recorded.the("transaction")
    named = type(refused.value).__name__, refused.value.code
    assert named[0] in ("ProducerFenced", "InvalidProducerEpoch")
    assert error_of(transaction) == named
    assert attributes(transaction)["eoslog.outcome"] == "failed"
    assert attributes(transaction)["messaging.batch.message_count"] == 1
    assert error_of(recorded.the("append commit")) == named


def test_a_repeated_commit_stays_in_its_trace(store: Store, recorded: Recorded) -> None:
    producer = began(store, max_block_ms=1_000)
    producer.send("t", b"1")
    producer.flush()
    faulty(store).go_down()
    with pytest.raises(errors.RequestTimedOut):
        producer.commit_transaction()
    faulty(store).heal()
    producer.commit_transaction()

    assert attributes(recorded.the("transaction"))["eoslog.outcome"] == "committed"
    first, *_, last = recorded.named("append commit")
    assert first.status.status_code is StatusCode.ERROR
    assert last.status.status_code is StatusCode.UNSET
    assert context(first).trace_id == context(last).trace_id


@pytest.mark.parametrize("prepares", [True, False], ids=["prepared", "open"])
def test_a_producer_that_is_closed_first_ends_the_trace(store: Store, recorded: Recorded, prepares: bool) -> None:
    producer = began(store)
    producer.send("t", b"1")
    if prepares:
        producer.prepare_transaction()
    assert recorded.named("transaction") == []

    producer.close(timeout=0)

    transaction = recorded.the("transaction")
    assert attributes(transaction)["eoslog.outcome"] == ("prepared" if prepares else "open")
    assert attributes(transaction)["messaging.batch.message_count"] == 1
    assert transaction.status.status_code is (StatusCode.UNSET if prepares else StatusCode.ERROR)


def test_a_prepared_transaction_is_one_trace(store: Store, recorded: Recorded) -> None:
    producer = began(store)
    producer.send("t", b"1")
    producer.complete_transaction(producer.prepare_transaction())

    transaction = recorded.the("transaction")
    assert attributes(transaction)["eoslog.outcome"] == "committed"
    assert attributes(transaction)["messaging.batch.message_count"] == 1
    assert recorded.paths("append prepare") == [["append prepare", "transaction"]]


def test_a_version_that_was_committed_before_is_no_error(store: Store, recorded: Recorded) -> None:
    with began(store) as producer:
        producer.send("t", b"1")
        assert producer.commit_transaction(version=1)
        recorded.clear()
        producer.begin_transaction()
        producer.send("t", b"1")
        assert not producer.commit_transaction(version=1)

    transaction = recorded.the("transaction")
    assert attributes(transaction)["eoslog.outcome"] == "replayed"
    assert transaction.status.status_code is StatusCode.UNSET


def test_lost_races_and_lost_answers_are_counted(store: Store, world: World, recorded: Recorded) -> None:
    other = world.process()
    other.admin.list_topics()
    producer = began(store)
    producer.send("t", b"1")
    producer.flush()
    other.admin.create_topic("u")
    faulty(store).lose_one_answer("__transaction_state/slot/", lands=True)
    recorded.clear()
    producer.commit_transaction()

    append = recorded.the("append commit")
    assert attributes(append)["eoslog.append.conflicts"] == 1
    assert attributes(append)["eoslog.append.records"] == 2
    assert attributes(append)["eoslog.append.by_another_process"] is False
    assert [attributes(span)["eoslog.outcome"] for span in recorded.named(SLOT)].count("exists") >= 1


def test_threads_that_share_a_record_link_to_the_one_that_put_it(local: Store, recorded: Recorded) -> None:
    producers = [began(local, f"tx-{number}") for number in range(4)]
    for producer in producers:
        producer.send("t", b"1")
        producer.flush()
    recorded.clear()

    with ThreadPoolExecutor(4) as threads, held(local.log):
        commits = [threads.submit(producer.commit_transaction) for producer in producers]
        await_queued(local.log, len(producers))
    assert [commit.result(LONGEST_WAIT_S) for commit in commits] == [True] * 4

    transactions = recorded.named("transaction")
    appends = recorded.named("append commit")
    assert len({context(span).trace_id for span in transactions}) == 4
    assert {context(span).trace_id for span in appends} == {context(span).trace_id for span in transactions}
    assert len({attributes(span)["eoslog.slot"] for span in appends}) == 1
    put = recorded.the(SLOT)
    (leader,) = [span for span in appends if put.parent and context(span).span_id == put.parent.span_id]
    assert [links(span) for span in appends if span is not leader] == [[context(leader)]] * 3
    assert links(leader) == []


def test_threads_never_mix_their_traces(local: Store, recorded: Recorded, hurried_threads: None) -> None:
    def work(number: int) -> None:
        with began(local, f"tx-{number}") as producer:
            for _ in range(5):
                producer.send("t", b"1")
                producer.commit_transaction()
                producer.begin_transaction()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))

    committed = [each for each in recorded.named("transaction") if attributes(each)["eoslog.outcome"] == "committed"]
    assert len(committed) == 30
    for name in ("flush", "append commit", "append batches"):
        assert sorted(context(span).trace_id for span in recorded.named(name)) == sorted(
            context(span).trace_id for span in committed
        )
    ids = {context(span).span_id for span in recorded.spans}
    assert all(span.parent is None or span.parent.span_id in ids for span in recorded.spans)


def test_a_flush_in_the_background_belongs_to_the_transaction(local: Store, recorded: Recorded) -> None:
    producer = began(local, linger_ms=1)
    producer.send("t", b"1").result(LONGEST_WAIT_S)
    producer.commit_transaction()
    producer.close()

    assert recorded.paths("flush") == [["flush", "transaction"]]


def test_a_flush_without_a_transaction_is_a_trace(store: Store, recorded: Recorded) -> None:
    with store.producer() as producer:
        producer.send("t", b"1")
        producer.flush()
        recorded.clear()
        producer.send("t", b"2")
        producer.send("t", b"3")
        producer.flush()
        producer.flush()

    flush = recorded.the("flush")
    assert flush.parent is None
    assert flush.kind is SpanKind.CLIENT
    assert attributes(flush)["messaging.batch.message_count"] == 2
    assert recorded.paths("append batches") == [["append batches", "flush"]]


@pytest.mark.usefixtures("files_are_objects")
def test_a_poll_is_a_span_with_its_requests_and_links_to_the_senders(store: Store, recorded: Recorded) -> None:
    with store.producer() as producer:
        for headers in (
            [("traceparent", TRACEPARENT)],
            [("traceparent", TRACEPARENT)],
            [("traceparent", b"\xff")],
            None,
        ):
            producer.send("t", b"1", partition=0, headers=headers)
    with store.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        recorded.clear()
        assert len(consumer.poll()) == 4
        poll = recorded.the("poll")
        consumer.wakeup()
        with pytest.raises(errors.Wakeup):
            consumer.poll()

    assert [f"{link.trace_id:032x}-{link.span_id:016x}" for link in links(poll)] == [TRACEPARENT[3:-3].decode()]
    assert attributes(poll) == {
        "messaging.system": "eoslog",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.consumer.group.name": "g",
        "messaging.batch.message_count": 4,
        "messaging.destination.name": "t",
        "eoslog.topics": ("t",),
        "eoslog.store": store.url,
    }
    assert ["GET data", "poll"] in recorded.paths("GET data")
    assert {span.status.status_code for span in recorded.named("poll")} == {StatusCode.UNSET}


@pytest.mark.usefixtures("files_are_objects")
def test_reads_of_other_threads_belong_to_the_span_of_the_scan(local: Store, recorded: Recorded) -> None:
    with local.producer() as producer:
        for _ in range(3):
            producer.send_table("t", pa.table({"value": [b"1", b"2"], "partition": pa.array([0, 1], pa.int32())}))
            producer.flush()
    recorded.clear()

    with recorded.provider.get_tracer("program").start_as_current_span("report"):
        assert local.scan("t").to_table().num_rows == 6

    assert recorded.paths("GET data") == [["GET data", "report"]] * 6


def test_requests_outside_of_a_span_are_not_recorded(store: Store, recorded: Recorded) -> None:
    assert values(store) == []
    store.object_store.put("a", b"")

    assert recorded.spans == []


def test_an_expected_answer_is_no_error(store: Store, recorded: Recorded) -> None:
    with recorded.provider.get_tracer("program").start_as_current_span("program"):
        store.object_store.put_if_absent("a", b"1234")
        store.object_store.put_if_absent("a", b"")
        with pytest.raises(Exception, match="missing"):
            store.object_store.get("missing")
        next(iter(store.object_store.list("")))
        store.object_store.delete(["a", "b"])

    requests = [span for span in recorded.spans if span.name != "program"]
    assert [attributes(span)["eoslog.outcome"] for span in requests][:3] == ["created", "exists", "ObjectNotFound"]
    assert [attributes(span).get("eoslog.object.bytes") for span in requests][:3] == [4, 0, None]
    assert {span.status.status_code for span in requests} == {StatusCode.UNSET}
    assert {span.kind for span in requests} == {SpanKind.CLIENT}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("eoslog.json", "description"),
        ("__transaction_state/slot/0000000000/00000000000000000001.json", "slot"),
        ("__transaction_state/checkpoint/00000000000000000001-ab.json", "checkpoint"),
        ("__append_service/key", "other"),
        ("__consumer_groups/ab/member.1", "heartbeat"),
        ("__gateways/ab", "heartbeat"),
        ("t/ab/0/00000000000000000000/ab.parquet", "data"),
        ("t/ab/0/00000000000000000000/ab.index.parquet", "index"),
        ("t/ab/0/00000000000000000000/ab.txnindex", "txnindex"),
        ("t/ab/0/00000000000000000000/ab.snapshot", "snapshot"),
        ("t/_delta_log/00000000000000000001.json", "delta"),
        ("t/any name.that a user.chose", "other"),
        ("", "other"),
    ],
)
def test_the_name_of_a_request_has_one_of_a_few_words(path: str, kind: str) -> None:
    assert tracing._kind_of(path) == kind


def test_no_row_and_no_text_of_an_error_is_recorded(store: Store, recorded: Recorded) -> None:
    with began(store) as producer:
        producer.send("t", b"secret-value", key=b"secret-key", headers=[("secret-header", b"secret")])
        producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(errors.SchemaMismatch):
            producer.send_table("t", pa.table({"secret-column": ["secret"]}))
        producer.send("t", b"secret", partition=0)
        store.admin.delete_topic("t")
        with pytest.raises(errors.UnknownTopicOrPartition):
            producer.flush()
        producer.abort_transaction()

    assert recorded.named("transaction")
    assert "secret" not in "".join(span.to_json() for span in recorded.spans)
    assert [span.events for span in recorded.spans if span.events] == []


@pytest.mark.parametrize("at", ["on_start", "on_end"])
def test_a_span_processor_that_fails_fails_no_commit(store: Store, recorded: Recorded, at: str) -> None:
    def fail(*given: object, **options: object) -> None:
        raise OSError("the program's own error")

    processor = SpanProcessor()
    setattr(processor, at, fail)
    recorded.provider.add_span_processor(processor)
    with began(store) as producer:
        producer.send("t", b"1")
        assert producer.commit_transaction()

    assert values(store) == [b"1"]


def test_appends_of_a_group_are_named_by_their_entries(store: Store, recorded: Recorded) -> None:
    with store.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll()
        consumer.commit({TopicPartition("t", 0): 0})
    store.admin.delete_consumer_group("g")

    assert recorded.named("append offsets")
    assert recorded.named("append delete_group")


def test_other_appends_are_traces_too(store: Store, recorded: Recorded) -> None:
    store.admin.alter_consumer_group_offsets("g", {TopicPartition("t", 0): 0})

    (append,) = [span for span in recorded.spans if span.name.startswith("append ")]
    assert append.name == "append offsets"
    assert recorded.path(recorded.the(SLOT)) == [SLOT, "append offsets"]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.s3
def test_requests_of_s3_belong_to_their_transaction(any_s3_server: S3Server, recorded: Recorded) -> None:
    options = any_s3_server.options()
    store = eoslog.connect(f"s3://{any_s3_server.new_bucket()}/store", **options)
    store.admin.create_topic("t", partitions=2)
    producer = began(store)
    recorded.clear()
    producer.send("t", b"1", partition=0)
    producer.send("t", b"2", partition=1)
    producer.commit_transaction()

    assert recorded.paths("PUT data") == [["PUT data", "upload", "flush", "transaction"]] * 2
    assert recorded.paths(SLOT)[-1] == [SLOT, "append commit", "transaction"]
    put = attributes(recorded.named(SLOT)[-1])
    assert put["http.response.status_code"] == 200
    assert isinstance(put["eoslog.object.bytes"], int)
    assert put["eoslog.object.bytes"] > 100
    recorded_text = "".join(span.to_json() for span in recorded.spans)
    assert str(options["secret"]) not in recorded_text
    assert "Authorization" not in recorded_text


@pytest.mark.s3
def test_an_expected_answer_of_s3_is_no_error(any_s3_server: S3Server, recorded: Recorded) -> None:
    objects = eoslog.connect(f"s3://{any_s3_server.new_bucket()}/store", **any_s3_server.options()).object_store
    with recorded.provider.get_tracer("program").start_as_current_span("program"):
        objects.put_if_absent("a", b"1234")
        objects.put_if_absent("a", b"1234")
        objects.for_each(lambda path: objects.get_many([path]), ["a", "b"])

    requests = [span for span in recorded.spans if span.name != "program"]
    assert sorted(attributes(span)["http.response.status_code"] for span in requests) == [200, 200, 404, 412]
    assert {span.status.status_code for span in requests} == {StatusCode.UNSET}
    assert [recorded.path(span)[1:] for span in requests] == [["program"]] * 4


@pytest.mark.s3
def test_a_request_that_s3_does_not_answer_is_an_error(recorded: Recorded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{port}", "max_attempts": 1}
    objects = eoslog.connect("s3://bucket/store", **options).object_store
    with (
        recorded.provider.get_tracer("program").start_as_current_span("program"),
        pytest.raises(errors.StoreUnavailable),
    ):
        objects.get("a")

    assert error_of(recorded.the("GET other"))[0] == "NewConnectionError"


WORK = """
store = eoslog.connect("store", fsync=False)
store.admin.create_topic("t")
with store.producer("tx") as producer:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1", headers=[("traceparent", b"1")])
    producer.commit_transaction()
with store.consumer("g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe("t")
    assert len(consumer.poll()) == 1
"""


def test_without_a_provider_nothing_is_imported(tmp_path: Path) -> None:
    program = "import sys, eoslog" + WORK + "print([name for name in sys.modules if name.startswith('opentelemetry')])"

    assert ran(program, directory=tmp_path) == (0, "[]\n", "")


def test_without_a_provider_the_api_alone_records_nothing(
    store: Store, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    asked: list[str] = []
    monkeypatch.setattr(trace.ProxyTracerProvider, "get_tracer", lambda *given: asked.append("tracer"))
    with began(store) as producer:
        producer.send("t", b"1")
        producer.commit_transaction()

    assert tracing.start("any") is None
    assert asked == []
    assert recorded.spans == []


def test_a_provider_that_is_not_installed_fails_no_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry then raises an error each time it is asked for its provider."""
    with store.producer() as producer:
        producer.send("t", b"1", partition=0)
        producer.send("t", b"2", partition=1)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "not_installed")

    assert sorted(store.scan("t").to_table()["value"].to_pylist()) == [b"1", b"2"]


def test_the_extra_needs_only_the_api() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (needed,) = project["optional-dependencies"]["opentelemetry"]
    assert needed.startswith("opentelemetry-api>=")


def test_the_page_s_example_prints_a_commit_s_spans(tmp_path: Path) -> None:
    (example,) = [each for each in fenced_blocks(PAGE, "python") if "opentelemetry" in each]
    store = eoslog.connect(tmp_path / "quickstart-store", fsync=False)
    store.admin.create_topic("payments")

    status, told, errors_ = ran(example, directory=tmp_path)

    assert status == 0, errors_
    assert {"transaction", "flush", "upload", "append commit", SLOT} <= set(
        re.findall(r'^ {4}"name": "(.*)"', told, re.M)
    )
    assert values(store, "payments") == [b"12.50"]


def test_the_page_names_each_attribute(store: Store, recorded: Recorded, each_span: Callable[[], None]) -> None:
    each_span()

    table = PAGE.read_text(encoding="utf-8").partition("| Attribute | Spans |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines()[2:] for name in re.findall(r"`([\w.]+)`", row.split("|")[1])}
    found = {name for span in recorded.spans for name in attributes(span)}
    assert told - found == {"http.response.status_code"}
    assert found <= told


def test_an_exporter_that_writes_with_eoslog_records_no_spans_of_its_own(store: Store, recorded: Recorded) -> None:
    archive = World().process()
    archive.admin.create_topic("spans")
    recorded.clear()
    depth = deepest = 0
    with archive.producer() as producer:

        class Archive(SpanExporter):
            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                nonlocal depth, deepest
                depth += 1
                deepest = max(deepest, depth)
                if depth == 1:
                    for span in spans:
                        producer.send("spans", span.name.encode())
                    producer.flush()
                depth -= 1
                return SpanExportResult.SUCCESS

        recorded.provider.add_span_processor(SimpleSpanProcessor(Archive()))
        began(store).commit_transaction()
        names = [span.name.encode() for span in recorded.spans]

    assert deepest == 1
    assert b"transaction" in names
    assert values(archive, "spans") == sorted(names)


@pytest.fixture
def each_span(store: Store) -> Callable[[], None]:
    """Work that records each attribute, except those of S3."""

    def work() -> None:
        producer = began(store)
        producer.send("t", b"1")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
        with store.consumer("g") as consumer:
            consumer.subscribe("t")
            consumer.poll(0)

    return work


def test_a_span_of_another_thread_is_not_current_here(local: Store, recorded: Recorded) -> None:
    producer = began(local)
    producer.send("t", b"1")
    thread = threading.Thread(target=producer.flush)
    thread.start()
    thread.join(LONGEST_WAIT_S)
    producer.commit_transaction()

    assert trace.get_current_span() is trace.INVALID_SPAN
    assert recorded.paths("flush") == [["flush", "transaction"]]
