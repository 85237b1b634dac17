"""``eoslog console``: write lines into a topic, and print a topic's records."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any, Literal, TextIO

import click
import pyarrow as pa

import eoslog
from eoslog.cli.context import Session, pass_session
from eoslog.errors import InvalidRequest, SchemaMismatch
from eoslog.read.columns import stored_schema
from eoslog.rules.state import Topic

_LINES_A_TABLE = 10_000


@click.group()
def console() -> None:
    """Produce from standard input, consume to standard output."""


@console.command("produce")
@click.argument("topic")
@click.option("--transactional-id", help="Write in transactions of this id, committed at the end of the input.")
@click.option("--commit-every", type=click.IntRange(min=1), metavar="LINES", help="Commit after so many lines.")
@click.option("--key-separator", help="What divides key and value in a line; without it there are no keys.")
@click.option("--partition", type=int, help="Write to this partition only.")
@pass_session
def produce(
    session: Session,
    topic: str,
    transactional_id: str | None,
    commit_every: int | None,
    key_separator: str | None,
    partition: int | None,
) -> None:
    """Write each line of standard input as a record; of a topic with columns, each line is a JSON object.

    \b
    Examples:
      echo hello | eoslog --store my-store console produce payments
      printf 'anna:12.50\\nbert:3.10\\n' | eoslog --store my-store console produce payments --key-separator :
      echo '{"carrier": "UA", "miles": 1400}' | eoslog --store my-store console produce flights
      cat lines | eoslog --store my-store console produce payments --transactional-id loader --commit-every 1000
    """
    if commit_every and not transactional_id:
        raise click.UsageError("--commit-every needs --transactional-id")
    store = session.store()
    target = store.admin.describe_topic(topic)
    count = 0
    with store.producer(transactional_id) as producer:
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for chunk in _chunks(sys.stdin, commit_every or _LINES_A_TABLE):
            _send(producer, target, chunk, key_separator, partition, count)
            count += len(chunk)
            if transactional_id and commit_every:
                producer.commit_transaction()
                producer.begin_transaction()
        if transactional_id:
            producer.commit_transaction()
    if session.as_json:
        session.print_json({"topic": topic, "records": count})
    else:
        click.echo(f"wrote {count} record{'s' * (count != 1)} to {topic}", err=True)


@console.command("consume")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Begin at the earliest offset, not at the end.")
@click.option("--partition", type=int, help="Read this partition only.")
@click.option("--offset", type=click.IntRange(min=0), help="Begin at this offset of --partition.")
@click.option("--group", help="Read as a member of this group, and commit what was printed.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
)
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=None, metavar="SECONDS", help="Stop when none came for so long."
)
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option("--print-offset", is_flag=True, help="Print partition and offset before the value.")
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
    print_key: bool,
    print_offset: bool,
) -> None:
    """Print a topic's records, a line each, until interrupted; with --json a JSON object each.

    \b
    Examples:
      eoslog --store my-store console consume payments --from-beginning --timeout 1
      eoslog --store my-store console consume payments --partition 0 --offset 42 --max-records 10
      eoslog --store my-store --json console consume flights --group billing
    """
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if group and partition is not None:
        raise click.UsageError("--group shares out the partitions itself; leave --partition out")
    reset: Literal["earliest", "latest"] = "earliest" if from_beginning else "latest"
    store = session.store()
    target = store.admin.describe_topic(topic)
    with store.consumer(group, isolation_level=isolation_level, auto_offset_reset=reset) as consumer:
        if group:
            consumer.subscribe([topic])
        else:
            places = [
                eoslog.TopicPartition(topic, each)
                for each in (range(target.partitions) if partition is None else [partition])
            ]
            consumer.assign(places)
            if offset is not None:
                consumer.seek(places[0], offset)
        for record in _records(consumer, max_records, timeout, commit=bool(group)):
            click.echo(_json_line(record) if session.as_json else _line(record, print_key, print_offset))


def _chunks(lines: TextIO, size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line.rstrip("\r\n"))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _send(
    producer: eoslog.Producer,
    topic: Topic,
    lines: list[str],
    key_separator: str | None,
    partition: int | None,
    before: int,
) -> None:
    if topic.topic_schema.kind == "columns":
        table = _table(topic, lines, before)
        if partition is not None:
            table = table.append_column("_partition", pa.array([partition] * table.num_rows, pa.int32()))
        producer.send_table(topic.topic, table)
        return
    for number, line in enumerate(lines, start=before + 1):
        key: bytes | None = None
        value = line
        if key_separator is not None:
            first, separator, value = line.partition(key_separator)
            if not separator:
                raise InvalidRequest(f"line {number} has no key: {key_separator!r} is not in it")
            key = first.encode()
        producer.send(topic.topic, value.encode(), key=key, partition=partition)


def _table(topic: Topic, lines: list[str], before: int) -> pa.Table:
    rows = []
    schema = stored_schema(topic)
    for number, line in enumerate(lines, start=before + 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidRequest(f"line {number} is no JSON object: {error.msg}") from None
        if not isinstance(row, dict):
            raise InvalidRequest(f"line {number} is no JSON object")
        if unknown := [name for name in row if name not in schema.names]:
            raise SchemaMismatch(
                f"line {number}: topic {topic.topic} has no column {unknown[0]!r}; it has {', '.join(schema.names)}"
            )
        rows.append(row)
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaMismatch(f"lines {before + 1} to {before + len(lines)}: {error}") from None


def _records(
    consumer: eoslog.Consumer, max_records: int | None, timeout: float | None, *, commit: bool
) -> Iterator[eoslog.ConsumerRecord]:
    left = max_records
    while left is None or left > 0:
        records = consumer.poll(timeout=1.0 if timeout is None else timeout)
        if not records and timeout is not None:
            return
        yield from records[:left]
        if left is not None:
            left -= len(records)
        if commit and (left is None or left >= 0):
            consumer.commit()


def _line(record: eoslog.ConsumerRecord, print_key: bool, print_offset: bool) -> str:
    parts = [f"{record.partition}:{record.offset}"] if print_offset else []
    if print_key:
        parts.append(_text(record.key))
    parts.append(_text(record.value))
    return "\t".join(parts)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return json.dumps(_plain(value))


def _json_line(record: eoslog.ConsumerRecord) -> str:
    return json.dumps(_plain(record._asdict()))


def _plain(value: Any) -> Any:
    """A value as JSON has it: bytes as text where they are UTF-8, else in base64."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)
