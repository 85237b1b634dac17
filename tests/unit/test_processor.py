"""A processor: each record counts exactly once, whatever fails, and ``run`` ends in order."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoslog import Consumer, ConsumerRecord, Processor, ProcessorOutput, Store, TopicConfig, TopicPartition
from eoslog.errors import (
    InconsistentGroupProtocol,
    InvalidOption,
    InvalidProducerEpoch,
    ProducerFenced,
    RequestTimedOut,
    StoreAccessDenied,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from eoslog.format.json_values import row_of_json
from tests.programs import Program
from tests.unit.support.groups import coordinate
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, FaultyStore, World

RECORDS = 40
EXPECTED = sorted(b"out:%d" % number for number in range(RECORDS))


class Killed(BaseException):
    """The process ends here: nothing is closed or cleaned up."""


@pytest.fixture
def store(world: World) -> Store:
    store = world.process()
    store.admin.create_topic("in", partitions=3)
    for topic in ("out", "dead"):
        store.admin.create_topic(topic)
    with store.producer() as producer:
        for number in range(RECORDS):
            producer.send("in", b"%d" % number, key=b"%d" % number)
            if number % 7 == 0:
                producer.flush()
    return store


def copy(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
    for record in records:
        output.send("out", b"out:" + record.value, key=record.key)


def processor(store: Store, process: Callable[..., object] = copy, **options: Any) -> Processor:
    given = {"group_id": "g", "transactional_id": "p", "max_records": 8} | options
    return store.processor("in", process, **given)


def values(store: Store, topic: str = "out") -> list[bytes]:
    return sorted(store.scan(topic).to_table()["value"].to_pylist())


def lag(store: Store) -> int:
    return sum(each.lag or 0 for each in store.admin.describe_consumer_group("g").partitions)


def test_each_record_is_processed_once_and_a_later_run_continues(store: Store) -> None:
    assert processor(store).run_available() == RECORDS
    assert values(store) == EXPECTED
    assert lag(store) == 0

    with store.producer() as producer:
        producer.send("in", b"new")

    assert processor(store).run_available() == 1
    assert values(store) == sorted([*EXPECTED, b"out:new"])


def test_a_transaction_has_at_most_max_records(store: Store) -> None:
    sizes: list[int] = []

    processor(store, lambda records, output: sizes.append(len(records)), max_records=5).run_available()

    assert sum(sizes) == RECORDS
    assert max(sizes) == 5


def test_the_exception_of_the_function_ends_the_run_and_the_next_one_begins_at_the_same_records(store: Store) -> None:
    def fails(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        if len(values(store)) >= 16:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        processor(store, fails).run_available()

    done = len(values(store))
    assert 16 <= done < RECORDS
    assert processor(store).run_available() == RECORDS - done
    assert values(store) == EXPECTED


def test_a_record_for_which_the_function_fails_becomes_a_dead_letter(store: Store) -> None:
    def fails(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        if any(record.value in (b"7", b"21") for record in records):
            raise ValueError("not this number")

    assert processor(store, fails, dead_letter_topic="dead").run_available() == RECORDS

    assert values(store) == sorted(set(EXPECTED) - {b"out:7", b"out:21"})
    assert lag(store) == 0
    consumer = store.consumer(None)
    consumer.assign([TopicPartition("dead", 0)])
    consumer.seek_to_beginning()
    letters = {letter.value: letter for letter in consumer.poll(0)}
    assert sorted(letters) == [b"21", b"7"]
    assert letters[b"7"].key == b"7"
    headers = dict(letters[b"7"].headers)
    assert headers["__streams.errors.exception"] == b"builtins.ValueError"
    assert headers["__streams.errors.message"] == b"not this number"
    assert headers["__streams.errors.topic"] == b"in"
    place = TopicPartition("in", int(headers["__streams.errors.partition"] or -1))
    consumer = store.consumer(None)
    consumer.assign([place])
    consumer.seek(place, int(headers["__streams.errors.offset"] or -1))
    assert consumer.poll(0)[0].value == b"7"


def test_a_row_that_the_producer_refuses_is_a_failure_of_its_record(store: Store) -> None:
    def sends_text(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        for record in records:
            output.send("out", "text" if record.value == b"3" else b"out:" + record.value)

    processor(store, sends_text, dead_letter_topic="dead").run_available()

    assert values(store) == sorted(set(EXPECTED) - {b"out:3"})
    assert values(store, "dead") == [b"3"]


def test_a_row_of_a_topic_of_columns_is_a_dead_letter_in_json(store: Store) -> None:
    schema = pa.schema({"n": pa.int64(), "day": pa.date32(), "ratio": pa.float64(), "bytes": pa.binary()})
    store.admin.create_topic("columns", schema=schema)
    row = {"n": 1, "day": date(1970, 1, 1), "ratio": math.nan, "bytes": b"\xff"}
    with store.producer() as producer:
        producer.send_table("columns", pa.Table.from_pylist([row], schema=schema))

    def fails(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        raise ValueError

    options = {"group_id": "g", "transactional_id": "p", "dead_letter_topic": "dead"}
    store.processor("columns", fails, **options).run_available()  # type: ignore[arg-type]

    (letter,) = values(store, "dead")
    assert row_of_json(letter, schema) | {"ratio": 0} == row | {"ratio": 0}
    assert json.loads(letter) == {"n": 1, "day": "1970-01-01", "ratio": "NaN", "bytes": {"base64": "/w=="}}


@pytest.mark.parametrize("dead_letter_topic", [None, "dead"])
def test_a_topic_that_is_created_again_ends_the_run_and_the_next_one_reads_the_new_topic(
    store: Store, dead_letter_topic: str | None
) -> None:
    """Kafka Streams ends, too, if a source topic is deleted (``MissingSourceTopicException``)."""

    def recreates(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        store.admin.delete_topic("in")
        store.admin.create_topic("in")
        with store.producer() as producer:
            producer.send("in", b"new")

    with pytest.raises(UnknownTopicOrPartition, match=r"topic in was deleted and created again .* The next poll"):
        processor(store, recreates, dead_letter_topic=dead_letter_topic).run_available()

    assert values(store) == values(store, "dead") == []
    assert processor(store).run_available() == 1
    assert values(store) == [b"out:new"]


def test_records_of_a_transaction_that_another_process_aborts_are_processed_again(store: Store, world: World) -> None:
    aborted: list[str] = []

    def aborts(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        if not aborted:
            output.flush()
            aborted.append("p")
            world.process().admin.abort_transaction("p")

    processor(store, aborts, producer_options={"staged": False}).run_available()

    assert aborted == ["p"]
    assert values(store) == EXPECTED


def test_seek_to_committed_goes_back_to_where_the_consumer_began_if_the_group_has_no_offset(store: Store) -> None:
    """``auto_offset_reset`` must not decide again: it would pass over records that were polled but not committed."""
    consumer = store.consumer("g", auto_offset_reset="latest")
    consumer.subscribe("in")
    assert consumer.poll(0) == []
    with store.producer() as producer:
        producer.send("in", b"new")
    assert [record.value for record in consumer.poll(0)] == [b"new"]

    consumer.seek_to_committed()

    assert [record.value for record in consumer.poll(0)] == [b"new"]
    consumer.close()


class Wrapped(Exception):
    """The exception of a library through which the function sends."""


def test_an_abort_by_another_process_is_no_fault_of_the_record_though_the_function_wraps_its_error(
    store: Store, world: World
) -> None:
    aborts = iter([True, True])  # of the first records together, and of the first one alone

    def wraps(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        output.flush()
        if next(aborts, False):
            world.process().admin.abort_transaction("p")
            try:
                copy(records, output)
                output.flush()
            except InvalidProducerEpoch as error:
                raise Wrapped from error

    options = {"dead_letter_topic": "dead", "producer_options": {"staged": False}}
    assert processor(store, wraps, **options).run_available() == RECORDS

    assert values(store) == EXPECTED
    assert values(store, "dead") == []


def test_a_fence_ends_the_run_though_the_function_wraps_its_error(store: Store, world: World) -> None:
    def wraps(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        world.process().producer("p").init_transactions()
        try:
            output.flush()
        except ProducerFenced as error:
            raise Wrapped from error

    options = {"dead_letter_topic": "dead", "producer_options": {"staged": False}}
    with pytest.raises(ProducerFenced):
        processor(store, wraps, **options).run_available()

    assert values(store) == values(store, "dead") == []


@pytest.mark.parametrize("hides", [False, True])
def test_a_row_that_the_flush_refuses_is_a_failure_of_its_record_though_the_function_wraps_or_hides_the_error(
    store: Store, hides: bool
) -> None:
    schema = pa.schema({"n": pa.int64()})

    def wraps(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        for record in records:
            if record.value == b"3":
                if "numbers" not in store.admin.list_topics():
                    store.admin.create_topic("numbers", schema=schema)
                output.send_table("numbers", pa.table({"n": [3]}, schema=schema))
                store.admin.delete_topic("numbers")
                try:
                    output.flush()
                except UnknownTopicOrPartition as error:
                    if not hides:
                        raise Wrapped from error

    options = {"dead_letter_topic": "dead", "producer_options": {"staged": False}}
    assert processor(store, wraps, **options).run_available() == RECORDS
    assert values(store, "dead") == [b"3"]


def test_a_group_of_kafkas_clients_ends_the_run(store: Store) -> None:
    coordinate(store)

    with pytest.raises(InconsistentGroupProtocol):
        processor(store).run()

    assert values(store) == []


def test_a_successor_fences_a_processor(store: Store, world: World) -> None:
    def fenced(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        world.process().producer("p").init_transactions()

    with pytest.raises(ProducerFenced):
        processor(store, fenced).run_available()

    assert values(store) == []
    assert processor(world.process()).run_available() == RECORDS


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_without_an_answer_is_repeated(store: Store, lands: bool) -> None:
    assert isinstance(store.object_store, FaultyStore)
    objects = store.object_store

    def loses(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        objects.lose_one_answer(SLOTS, lands=lands)

    processor(store, loses).run_available()

    assert values(store) == EXPECTED


def test_a_stop_ends_the_repetitions_of_a_call_that_the_store_does_not_answer(store: Store, world: World) -> None:
    assert isinstance(store.object_store, FaultyStore)
    objects = store.object_store
    stopped = processor(store, lambda records, output: (copy(records, output), objects.go_down(), stopped.stop()))

    with pytest.raises(RequestTimedOut):
        stopped.run()

    objects.heal()
    processor(world.process()).run_available()
    assert values(store) == EXPECTED


@pytest.mark.parametrize("seed", range(6))
def test_processors_that_die_at_random_points_write_each_output_once(store: Store, world: World, seed: int) -> None:
    chance = random.Random(seed)

    def dies(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        for record in records:
            if chance.random() < 0.05:
                raise Killed
            copy([record], output)
        if chance.random() < 0.2:
            output.flush()
        if chance.random() < 0.2:
            raise ValueError

    for _ in range(500):
        try:
            processor(world.process(), dies, producer_options={"staged": chance.random() < 0.5}).run_available()
            break
        except (Killed, ValueError):
            world.pass_time(50_000)

    assert values(store) == EXPECTED


def test_processors_in_one_group_share_the_partitions(store: Store, tmp_path: Path) -> None:
    import eoslog

    url = str(tmp_path / "store")
    shared = eoslog.connect(url)
    shared.admin.create_topic("in", partitions=4)
    shared.admin.create_topic("out")
    running = [
        eoslog.connect(url).processor("in", copy, group_id="g", transactional_id=f"p{number}", max_records=3)
        for number in range(3)
    ]
    threads = [threading.Thread(target=each.run) for each in running]
    for thread in threads:
        thread.start()
    with shared.producer() as producer:
        for number in range(RECORDS):
            producer.send("in", b"%d" % number, key=b"%d" % number)
            producer.flush()
    while shared.scan("out").record_count < RECORDS:
        threading.Event().wait(0.05)
    for each in running:
        each.stop()
    for thread in threads:
        thread.join()

    assert values(shared) == EXPECTED
    assert shared.admin.describe_consumer_group("g").members == ()


async def coroutine(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
    copy(records, output)


SIGTERM_PROGRAM = """
import sys, eoslog
store = eoslog.connect(sys.argv[1])
def process(records, output):
    output.send("out", b"%d" % len(records))
    print("processing", flush=True)
store.processor("in", process, group_id="g", transactional_id="p").run()
print("stopped")
"""


def test_sigterm_ends_the_run_after_its_transaction_and_the_group_is_left(tmp_path: Path) -> None:
    import eoslog

    url = str(tmp_path / "store")
    store = eoslog.connect(url)
    store.admin.create_topic("in")
    store.admin.create_topic("out")
    with store.producer() as producer:
        producer.send("in", b"0")
    with Program(SIGTERM_PROGRAM, url) as program:
        assert program.stdout.readline() == b"processing\n"

        program.send_signal(signal.SIGTERM)

        assert program.communicate()[0] == b"stopped\n"
    assert program.returncode == 0
    assert values(store) == [b"1"]
    group = store.admin.describe_consumer_group("g")
    assert group.members == ()
    assert [each.lag for each in group.partitions] == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumer_options": {"group_id": "h"}}, "decides group_id itself"),
        ({"consumer_options": {"isolation_level": "read_uncommitted"}}, "decides isolation_level itself"),
        ({"consumer_options": {"enable_auto_commit": True}}, "decides enable_auto_commit itself"),
        ({"dead_letter_topic": "dead", "consumer_options": {"value_deserializer": bytes}}, "value_deserializer"),
        ({"commit_interval_ms": 4_000, "consumer_options": {"session_timeout_ms": 6_000}}, "at most half"),
        ({"max_records": 0}, "max_records"),
        ({"process": "copy"}, "process must be a function"),
        ({"process": coroutine}, "coroutine or a generator"),
        ({"dead_letter_topic": "in"}, "processed again"),
        ({"dead_letter_topic": "dead", "producer_options": {"value_serializer": bytes}}, "value_serializer"),
    ],
)
def test_options_that_would_break_the_promise_are_refused(store: Store, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        processor(store, **options)


@pytest.mark.parametrize(
    "options", [{"schema": pa.schema([("n", pa.int64())])}, {"config": TopicConfig(cleanup_policy="compact")}]
)
def test_a_topic_that_cannot_take_every_record_is_no_dead_letter_topic(store: Store, options: dict[str, Any]) -> None:
    store.admin.create_topic("odd", **options)

    with pytest.raises(InvalidOption, match="dead_letter_topic"):
        processor(store, dead_letter_topic="odd").run_available()


def test_a_dead_letter_that_cannot_be_sent_ends_the_run_with_its_own_error(store: Store) -> None:
    def fails(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        if "dead" in store.admin.list_topics():
            store.admin.delete_topic("dead")
        raise ValueError

    with pytest.raises(UnknownTopicOrPartition) as caught:
        processor(store, fails, dead_letter_topic="dead").run_available()

    assert isinstance(caught.value.__cause__, ValueError)
    assert processor(store).run_available() == RECORDS


def test_records_are_processed_again_after_an_outage_during_the_function(store: Store) -> None:
    outages: list[str] = []

    def asks(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        if not outages:
            outages.append("one")
            raise StoreUnavailable("the function got no answer")

    assert processor(store, asks).run_available() == RECORDS
    assert values(store) == EXPECTED


def test_a_function_may_change_its_list_of_records(store: Store) -> None:
    def takes(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        records.reverse()
        while records:
            record = records.pop()
            if record.value == b"7":
                raise ValueError
            copy([record], output)

    assert processor(store, takes, dead_letter_topic="dead").run_available() == RECORDS
    assert values(store) == sorted(set(EXPECTED) - {b"out:7"})
    assert values(store, "dead") == [b"7"]


def test_the_exception_of_the_function_keeps_its_cause(store: Store) -> None:
    def fails(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        raise ValueError("outer") from KeyError("inner")

    with pytest.raises(ValueError, match="outer") as caught:
        processor(store, fails).run_available()

    assert isinstance(caught.value.__cause__, KeyError)


def test_a_store_that_refuses_requests_ends_the_run_and_makes_no_dead_letters(store: Store, world: World) -> None:
    assert isinstance(store.object_store, FaultyStore)
    objects = store.object_store

    def denied(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        objects.deny(SLOTS)
        output.flush()

    options = {"dead_letter_topic": "dead", "producer_options": {"staged": False}}
    with pytest.raises(StoreAccessDenied):
        processor(store, denied, **options).run_available()

    objects.heal()
    world.pass_time(50_000)  # The consumer could not leave the group.
    assert processor(store, dead_letter_topic="dead").run_available() == RECORDS
    assert values(store) == EXPECTED
    assert values(store, "dead") == []


def test_a_crash_before_the_first_commit_loses_no_record_of_a_group_that_begins_at_the_end(
    store: Store, world: World
) -> None:
    """``auto_offset_reset`` must not decide again for the next processor."""

    def new_records() -> None:
        world.while_asleep = lambda: None
        with world.process().producer() as producer:
            producer.send("in", b"new")

    def fails(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        raise ValueError("not today")

    world.while_asleep = new_records
    latest = {"consumer_options": {"auto_offset_reset": "latest"}}
    with pytest.raises(ValueError, match="not today"):
        processor(store, fails, **latest).run()

    assert processor(world.process(), **latest).run_available() == 1
    assert values(store) == [b"out:new"]


def test_records_of_partitions_without_a_prepared_transaction_are_processed(store: Store, world: World) -> None:
    other = open_transaction(store, "other")
    other.send_offsets_to_transaction({TopicPartition("in", 0): 0}, "g")
    other.prepare_transaction()
    held = store.scan("in", partitions=[0]).record_count

    found = processor(store).run_available()

    assert found == RECORDS - held


def test_run_available_ends_though_the_function_writes_to_its_input(store: Store) -> None:
    def feeds(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        for record in records:
            output.send("in", record.value, key=record.key)

    assert RECORDS <= processor(store, feeds).run_available() <= 2 * RECORDS


def test_a_child_that_the_function_forks_ends_at_sigterm(store: Store) -> None:
    ended: list[int] = []

    def forks(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
        copy(records, output)
        if ended:
            return
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"forked")
            time.sleep(60)
            os._exit(0)
        os.read(reading, 6)
        os.kill(child, signal.SIGTERM)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert processor(store, forks).run_available() == RECORDS
    assert ended == [-signal.SIGTERM]


def test_a_stop_during_the_first_poll_ends_run_available(store: Store, world: World) -> None:
    """The consumer has partitions then, but no poll has returned."""
    store.admin.create_topic("empty")
    stopped = store.processor("empty", copy, group_id="g", transactional_id="p")
    world.while_asleep = stopped.stop

    assert stopped.run_available() == 0


def test_a_processor_that_was_stopped_runs_no_more(store: Store) -> None:
    stopped = processor(store)
    holder = store.producer("p")
    holder.init_transactions()
    stopped.stop()

    stopped.run()

    assert stopped.run_available() == 0
    assert stopped.is_stopped
    holder.begin_transaction()
    holder.send("out", b"not fenced")
    holder.commit_transaction()


def test_topics_that_do_not_exist_are_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        processor(store, dead_letter_topic="nowhere").run_available()


def test_seek_to_committed_goes_back_to_the_lowest_position_if_the_group_has_no_offset(store: Store) -> None:
    consumer = store.consumer("g", auto_offset_reset="latest")
    consumer.subscribe("in")
    assert consumer.poll(0) == []
    consumer.seek_to_beginning()
    assert consumer.poll(0)

    consumer.seek_to_committed()

    assert len(consumer.poll(0)) == RECORDS


def test_subscribe_to_no_topic_ends_the_subscription(store: Store) -> None:
    consumer = store.consumer("g")
    consumer.subscribe("in")

    consumer.subscribe([])

    assert consumer.subscription() == set()


def test_seek_to_committed_goes_back_to_the_offsets_of_the_group(store: Store) -> None:
    consumer: Consumer = store.consumer("g", auto_offset_reset="earliest", max_poll_records=5)
    consumer.subscribe("in")
    first = consumer.poll(0)
    consumer.commit()
    second = consumer.poll(0)
    assert second

    consumer.seek_to_committed()

    assert consumer.poll(0)[0] not in first
    positions = consumer.committed(consumer.assignment())
    consumer.seek_to_committed()
    assert consumer.position(consumer.assignment()) == {
        place: each.offset if each is not None else 0 for place, each in positions.items()
    }
