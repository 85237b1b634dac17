"""``eoslog console``: write lines into a topic, and print a topic's records."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Any, Literal

import click
import pyarrow as pa

import eoslog
from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.json_values import row_of_json, to_json
from eoslog.cli.output import json_text, progress, shown
from eoslog.errors import EosLogError, InvalidRequest, SchemaMismatch, UnstableOffsetCommit, without_code
from eoslog.rules.state import Topic
from eoslog.segment.stored_schema import stored_schema

_LINES_AT_ONCE = 10_000
_RECORDS_A_POLL = 2_000
_LONGEST_POLL_S = 1.0
_COMMIT_EVERY_MS = 5_000


@click.group()
def console() -> None:
    """Produce from standard input, consume to standard output."""


@console.command("produce")
@click.argument("topic")
@click.option("--transactional-id", metavar="ID", help="Write in a transaction, committed at the end of the input.")
@click.option("--commit-every", type=click.IntRange(min=1), metavar="LINES", help="Commit after so many lines.")
@click.option("--key-separator", metavar="TEXT", help="What divides key and value in a line; without it, no keys.")
@click.option("--partition", type=click.IntRange(min=0), help="Write to this partition only.")
@global_options
@pass_session
def produce(
    session: Session,
    topic: str,
    transactional_id: str | None,
    commit_every: int | None,
    key_separator: str | None,
    partition: int | None,
) -> None:
    """Write each line of standard input into TOPIC; if it has columns, each line is a JSON object.

    \b
    Examples:
      echo hello | eoslog --store my-store console produce payments
      printf 'card-1:12.50\\ncard-2:3.10\\n' | eoslog --store my-store console produce payments --key-separator :
      echo '{"carrier": "UA", "miles": 1400}' | eoslog --store my-store console produce flights
      cat lines | eoslog --store my-store console produce payments --transactional-id loader --commit-every 1000
    """
    if commit_every and not transactional_id:
        raise click.UsageError("--commit-every needs --transactional-id")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    store = session.store()
    target = store.admin.describe_topic(topic)
    if key_separator and target.topic_schema.kind == "columns":
        raise click.UsageError(f"topic {topic} has columns, and those of its key choose the partition: no separator")
    lines = _lines()
    records = committed = transactions = 0
    with progress(f"writing to {topic}", unit="records") as advance, store.producer(transactional_id) as producer:
        if transactional_id:
            producer.init_transactions()
        while True:
            if transactional_id:
                producer.begin_transaction()
            before = records
            with _told_what_stays(transactional_id, committed):
                for chunk in _chunks(islice(lines, commit_every)):
                    _send(producer, target, chunk, key_separator, partition, records + 1)
                    records += len(chunk)
                    advance(len(chunk))
                if transactional_id and records > before:
                    producer.commit_transaction()
                    committed, transactions = records, transactions + 1
            if commit_every is None or records - before < commit_every:
                break
    facts = {"topic": topic, "records": records, "transactions": transactions}
    if session.as_json:
        session.print_result("", facts)
    else:
        click.echo(f"wrote {records} record{'s' * (records != 1)} to {topic}", err=True)


@console.command("consume")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Begin at the earliest offset, not at the end.")
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition only.")
@click.option("--offset", type=click.IntRange(min=0), help="Begin at this offset of --partition.")
@click.option("--group", metavar="GROUP", help="Read as a member of this group, and commit what was printed.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
)
@click.option("--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many records.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop when none came for so long.")
@click.option("--print-offset", is_flag=True, help="Print partition and offset before the value.")
@click.option("--print-timestamp", is_flag=True, help="Print the timestamp before the value.")
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option(
    "--print-transaction", is_flag=True, help="Print transactional id and slot before the value; with --json more."
)
@global_options
@pass_session
def consume(
    session: Session,
    topic: str,
    from_beginning: bool,
    partition: int | None,
    offset: int | None,
    group: str | None,
    isolation_level: str,
    max_records: int | None,
    timeout: float | None,
    print_offset: bool,
    print_timestamp: bool,
    print_key: bool,
    print_transaction: bool,
) -> None:
    """Print the records of TOPIC, a line each, until interrupted; with --json a JSON object each.

    \b
    Examples:
      eoslog --store my-store console consume payments --from-beginning --timeout 1
      eoslog --store my-store console consume payments --partition 0 --offset 42 --max-records 10
      eoslog --store my-store console consume flights --group billing --from-beginning --json
    """
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if offset is not None and from_beginning:
        raise click.UsageError("give --offset or --from-beginning, not both")
    if group and partition is not None:
        raise click.UsageError("a --group shares the partitions out itself: leave --partition out")
    reset: Literal["earliest", "latest", "none"] = "earliest" if from_beginning else "latest"
    if offset is not None:
        reset = "none"
    store = session.store()
    out = sys.stdout.buffer
    with store.consumer(
        group,
        isolation_level=isolation_level,
        auto_offset_reset=reset,
        max_poll_records=min(max_records or _RECORDS_A_POLL, _RECORDS_A_POLL),
        with_transaction=print_transaction,
    ) as consumer:
        if partition is not None:
            place = eoslog.TopicPartition(topic, partition)
            consumer.assign([place])
            if offset is not None:
                consumer.seek(place, offset)
        else:
            consumer.subscribe([topic])
        with closing(_polled(store, consumer, max_records, timeout)) as polled:
            for records in polled:
                for record in records:
                    plain = _line(record, print_offset, print_timestamp, print_key)
                    if sys.stdout.isatty():
                        plain = _on_a_terminal(plain)
                    out.write((_json_line(record) if session.as_json else plain) + b"\n")
                out.flush()


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _chunks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    while chunk := list(islice(lines, _LINES_AT_ONCE)):
        yield chunk


@contextmanager
def _told_what_stays(transactional_id: str | None, committed: int) -> Iterator[None]:
    """An error says what of the input is in the topic."""
    try:
        yield
    except EosLogError as error:
        if transactional_id:
            error.add_note(f"{committed} lines had been committed before")
        else:
            error.add_note("lines before may have been written; with --transactional-id it is all or nothing")
        raise


def _send(
    producer: eoslog.Producer,
    topic: Topic,
    lines: list[bytes],
    key_separator: str | None,
    partition: int | None,
    first: int,
) -> None:
    if topic.topic_schema.kind == "columns":
        producer.send_table(topic.topic, _table(topic, lines, partition, first))
        return
    separator = key_separator.encode() if key_separator is not None else None
    for number, line in enumerate(lines, start=first):
        key: bytes | None = None
        value = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise InvalidRequest(f"line {number} has no key: there is no {key_separator!r} in it")
        producer.send(topic.topic, value, key=key, partition=partition)


def _table(topic: Topic, lines: list[bytes], partition: int | None, first: int) -> pa.Table:
    schema = stored_schema(topic)
    rows = []
    for number, line in enumerate(lines, start=first):
        try:
            rows.append(row_of_json(line, schema))
        except SchemaMismatch as error:
            raise SchemaMismatch(f"line {number}: {without_code(error)}") from None
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaMismatch(f"lines {first} to {first + len(lines) - 1}: {error}") from None
    if partition is None:
        return table
    return table.append_column("_partition", pa.array([partition] * len(rows), pa.int32()))


def _polled(
    store: eoslog.Store, consumer: eoslog.Consumer, max_records: int | None, timeout: float | None
) -> Generator[list[eoslog.ConsumerRecord]]:
    """What is to be printed. A group commits what was printed now and then, and at the end."""
    environment = store.environment
    left = max_records
    in_print: list[eoslog.ConsumerRecord] = []
    heard_ms = committed_ms = environment.monotonic_ms()
    try:
        while left is None or left > 0:
            if timeout is not None and environment.monotonic_ms() - heard_ms > timeout * 1000:
                return
            records = consumer.poll(_LONGEST_POLL_S if timeout is None else min(_LONGEST_POLL_S, timeout))
            if records:
                _give_back(consumer, records[left:] if left is not None else [])
                in_print = records[:left]
                yield in_print
                left = None if left is None else left - len(in_print)
                in_print = []
                heard_ms = environment.monotonic_ms()
            if environment.monotonic_ms() - committed_ms >= _COMMIT_EVERY_MS:
                _commit(consumer)
                committed_ms = environment.monotonic_ms()
    finally:
        _give_back(consumer, in_print)
        _commit(consumer)


def _give_back(consumer: eoslog.Consumer, records: list[eoslog.ConsumerRecord]) -> None:
    for record in reversed(records):
        consumer.seek(eoslog.TopicPartition(record.topic, record.partition), record.offset)


def _commit(consumer: eoslog.Consumer) -> None:
    """Commit the positions of a group's member, unless they are committed: an idle one writes nothing."""
    if consumer.group_id is None:
        return
    moved: dict[eoslog.TopicPartition, int | eoslog.OffsetAndMetadata] = {}
    for place in consumer.assignment():
        with suppress(UnstableOffsetCommit):
            position = consumer.position(place)
            known = consumer.committed([place])[place]
            if known is None or known.offset != position:
                moved[place] = position
    if moved:
        consumer.commit(moved)


def _line(record: eoslog.ConsumerRecord, with_offset: bool, with_timestamp: bool, with_key: bool) -> bytes:
    parts = [b"%d:%d" % (record.partition, record.offset)] if with_offset else []
    if with_timestamp:
        parts.append(b"%d" % record.timestamp)
    if record.transaction is not None:
        parts += [_printed(record.transaction.transactional_id), _printed(record.transaction.slot)]
    if with_key:
        parts.append(_printed(record.key))
    return b"\t".join([*parts, _printed(record.value)])


def _printed(value: Any) -> bytes:
    """A record's bytes as they are; what a row of columns holds, as JSON."""
    if isinstance(value, bytes):
        return value
    return json.dumps(to_json(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _json_line(record: eoslog.ConsumerRecord) -> bytes:
    fields = record._asdict()
    del fields["transaction"]
    if record.transaction is not None:
        fields["transaction"] = record.transaction._asdict()
    return json_text(to_json(fields)).encode()


def _on_a_terminal(line: bytes) -> bytes:
    """A line whose control characters are shown, not obeyed. A file or a pipe is given the bytes as they are."""
    text = line.decode("utf-8", "backslashreplace")
    return "\t".join(shown(part) for part in text.split("\t")).encode()
