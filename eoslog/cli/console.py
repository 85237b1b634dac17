"""``eoslog console``: write lines into a topic, and print a topic's records."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any

import click
import pyarrow as pa

import eoslog
from eoslog.cli import completion
from eoslog.cli.options import (
    COUNT,
    NATURAL,
    REGEX,
    Group,
    Invocation,
    group_option,
    pass_invocation,
    transactional_id_option,
)
from eoslog.cli.rendering import json_text, progress, shown
from eoslog.errors import (
    CommitFailed,
    EosLogError,
    InvalidRequest,
    SchemaMismatch,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from eoslog.format.json_values import rows_of_json, to_json
from eoslog.format.topic_schemas import stored_schema
from eoslog.state.store_state import Topic
from eoslog.wording import counted

_LINES_AT_ONCE = 10_000
_RECORDS_A_POLL = 2_000
_LONGEST_POLL_S = 1.0
_COMMIT_EVERY_MS = 5_000
_LEVEL = click.Choice(["read_committed", "read_uncommitted"], case_sensitive=False)
_SECONDS = click.FloatRange(min=0)

console = Group("console", help="Produce from standard input, consume to standard output.")


@console.command(
    examples=[
        "echo hello | eoslog --store my-store console produce payments",
        r"printf 'card-1:12.50\ncard-2:3.10\n' | eoslog --store my-store console produce payments --key-separator :",
        """echo '{"carrier": "UA", "miles": 1400}' | eoslog --store my-store console produce flights""",
        "cat lines | eoslog --store my-store console produce payments --transactional-id loader --commit-every 1000",
    ]
)
@click.argument("topic", shell_complete=completion.topics)
@transactional_id_option(help="Write in a transaction, committed at the end.")
@click.option("--commit-every", type=COUNT, metavar="LINES", help="Commit after this number of lines.")
@click.option("--key-separator", metavar="TEXT", help="The text between key and value. By default no keys.")
@click.option("--partition", type=NATURAL, help="Write to this partition only.")
@pass_invocation
def produce(
    invocation: Invocation,
    topic: str,
    transactional_id: str | None,
    commit_every: int | None,
    key_separator: str | None,
    partition: int | None,
) -> None:
    """Write each line of standard input into TOPIC. If TOPIC has columns, each line is a JSON object."""
    if commit_every and not transactional_id:
        raise click.UsageError("--commit-every needs --transactional-id.")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    store = invocation.store()
    target = store.admin.describe_topic(topic)
    if key_separator and target.topic_schema.kind == "columns":
        raise click.UsageError(
            f"Topic {topic} has columns, and its key columns choose the partition. Leave --key-separator out."
        )
    lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in sys.stdin.buffer)
    records = committed = transactions = 0
    with progress(label := f"writing to {topic}") as show, store.producer(transactional_id) as producer:
        if transactional_id:
            producer.init_transactions()
        while True:
            if transactional_id:
                producer.begin_transaction()
            before = records
            with _note_on_errors(transactional_id, committed):
                wanted = islice(lines, commit_every)
                while chunk := list(islice(wanted, _LINES_AT_ONCE)):
                    _send(producer, target, chunk, key_separator, partition, records + 1)
                    records += len(chunk)
                    show(label, records, words=counted(records, "record"))
                if transactional_id and records > before:
                    producer.commit_transaction()
                    committed, transactions = records, transactions + 1
            if commit_every is None or records - before < commit_every:
                break
    if invocation.as_json:
        invocation.print_result("", {"topic": topic, "records": records, "transactions": transactions})
    else:
        click.echo(f"wrote {counted(records, 'record')} to {topic}", err=True)


@contextmanager
def _note_on_errors(transactional_id: str | None, committed: int) -> Iterator[None]:
    """Add to an error which lines stay in the topic."""
    try:
        yield
    except EosLogError as error:
        if transactional_id:
            error.add_note(f"{committed} lines had been committed before")
        else:
            error.add_note("earlier lines may have been written; with --transactional-id all or none are written")
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
    rows = rows_of_json(lines, schema, first)
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaMismatch(f"lines {first} to {first + len(lines) - 1}: {error}") from None
    if partition is None:
        return table
    return table.append_column("_partition", pa.array([partition] * len(rows), pa.int32()))


@console.command(
    examples=[
        "payments --from-beginning --timeout 1",
        "payments --partition 0 --offset 42 --max-records 10",
        "flights --group billing --from-beginning --json",
        "payments --from-beginning --grep 'card-1[0-9]' --print-key --print-headers",
    ]
)
@click.argument("topic", shell_complete=completion.topics)
@click.option("--from-beginning", is_flag=True, help="Begin at the earliest offset, not at the end.")
@click.option("--partition", type=NATURAL, help="Read this partition only.")
@click.option("--offset", type=NATURAL, help="Begin at this offset of --partition.")
@group_option(help="Read as a member of GROUP, and commit the printed offsets.")
@click.option("--isolation-level", type=_LEVEL, default="read_committed", show_default=True)
@click.option("--max-records", type=COUNT, metavar="N", help="Stop after N records.")
@click.option("--timeout", type=_SECONDS, metavar="SECONDS", help="Stop if no record comes for this time.")
@click.option("--print-offset", is_flag=True, help="Print partition and offset before the value.")
@click.option("--print-timestamp", is_flag=True, help="Print the timestamp before the value.")
@click.option("--print-headers", is_flag=True, help="Print the headers before the value, as name:value,name:value.")
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option(
    "--print-transaction",
    is_flag=True,
    help="Print transactional id and slot, too. --json prints all fields.",
)
@click.option("--grep", type=REGEX, metavar="REGEX", help="Print only records whose key or value has a match.")
@pass_invocation
def consume(
    invocation: Invocation,
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
    print_headers: bool,
    print_key: bool,
    print_transaction: bool,
    grep: re.Pattern[str] | None,
) -> None:
    """Print the records of TOPIC, a line each, until interrupted. With --json each line is a JSON object."""
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition.")
    if offset is not None and from_beginning:
        raise click.UsageError("Give --offset or --from-beginning, not both.")
    if group and partition is not None:
        raise click.UsageError("A --group assigns the partitions itself: leave --partition out.")
    store = invocation.store()
    with store.consumer(
        group,
        isolation_level=isolation_level,
        auto_offset_reset="none" if offset is not None else "earliest" if from_beginning else "latest",
        max_poll_records=_RECORDS_A_POLL if grep is not None else min(max_records or _RECORDS_A_POLL, _RECORDS_A_POLL),
        with_transaction=print_transaction,
    ) as consumer:
        if partition is None:
            # Without the commit, the next reader of a partition would print its last records again.
            consumer.subscribe([topic], on_revoked=partial(_give_up, consumer), on_lost=partial(_tell_lost, consumer))
        else:
            chosen = eoslog.TopicPartition(topic, partition)
            consumer.assign([chosen])
            if offset is not None:
                consumer.seek(chosen, offset)
        with closing(_polled(store, consumer, grep, max_records=max_records, timeout=timeout)) as polled:
            for records in polled:
                for record in records:
                    parts = _parts(
                        record,
                        offset=print_offset,
                        timestamp=print_timestamp,
                        headers=print_headers,
                        key=print_key,
                    )
                    if sys.stdout.isatty():
                        parts = map(_on_a_terminal, parts)
                    sys.stdout.buffer.write((_json_line(record) if invocation.as_json else b"\t".join(parts)) + b"\n")
                sys.stdout.buffer.flush()


def _polled(
    store: eoslog.Store,
    consumer: eoslog.Consumer,
    grep: re.Pattern[str] | None,
    *,
    max_records: int | None,
    timeout: float | None,
) -> Generator[list[eoslog.ConsumerRecord]]:
    """Yield the records to print. A group commits the offsets of printed records every few seconds, and at the end."""
    environment = store.environment
    left = max_records
    in_print: list[eoslog.ConsumerRecord] = []
    heard_ms = committed_ms = environment.monotonic_ms()
    try:
        while left is None or left > 0:
            records = consumer.poll(_LONGEST_POLL_S if timeout is None else min(_LONGEST_POLL_S, timeout))
            if records:
                in_print, later = _up_to(records, grep, left)
                _seek_back(consumer, later)
                wanted = [record for record in in_print if _matches(record, grep)]
                yield wanted
                left = None if left is None else left - len(wanted)
                in_print = []
                heard_ms = environment.monotonic_ms()
            elif timeout is not None and environment.monotonic_ms() - heard_ms >= timeout * 1000:
                return
            if environment.monotonic_ms() - committed_ms >= _COMMIT_EVERY_MS:
                _commit(consumer)
                committed_ms = environment.monotonic_ms()
    finally:
        # The caller may have stopped in the middle of these records, so they count as not printed.
        _seek_back(consumer, in_print)
        _commit(consumer)


def _up_to(
    records: list[eoslog.ConsumerRecord], grep: re.Pattern[str] | None, left: int | None
) -> tuple[list[eoslog.ConsumerRecord], list[eoslog.ConsumerRecord]]:
    """Return the records up to the last one to print, and those after it."""
    for number, record in enumerate(records):
        if left == 0:
            return records[:number], records[number:]
        if left is not None and _matches(record, grep):
            left -= 1
    return records, []


def _matches(record: eoslog.ConsumerRecord, grep: re.Pattern[str] | None) -> bool:
    return grep is None or any(
        grep.search(_printed(each).decode("utf-8", "backslashreplace")) for each in (record.key, record.value)
    )


def _seek_back(consumer: eoslog.Consumer, records: list[eoslog.ConsumerRecord]) -> None:
    for record in reversed(records):
        consumer.seek(eoslog.TopicPartition(record.topic, record.partition), record.offset)


def _tell_lost(consumer: eoslog.Consumer, lost: Iterable[eoslog.TopicPartition]) -> None:
    partitions = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(lost))
    click.echo(
        f"group {consumer.group_id} went on without this consumer: records of {partitions} that were printed since the "
        "last commit may be printed again",
        err=True,
    )


def _give_up(consumer: eoslog.Consumer, revoked: Iterable[eoslog.TopicPartition]) -> None:
    try:
        _commit_moved(consumer, revoked)
    except CommitFailed:
        _tell_lost(consumer, revoked)


def _commit(consumer: eoslog.Consumer) -> None:
    # The commit fails if the group has evicted this consumer. The next poll, or the close, calls a listener, which
    # reports the eviction.
    with suppress(CommitFailed):
        _commit_moved(consumer, consumer.assignment())


def _commit_moved(consumer: eoslog.Consumer, partitions: Iterable[eoslog.TopicPartition]) -> None:
    """Commit the positions of a member of a group that are not committed yet. An idle member writes nothing.

    Raises:
        CommitFailed: the group has gone on without this consumer.
    """
    if consumer.group_id is None:
        return
    moved: dict[eoslog.TopicPartition, int | eoslog.OffsetAndMetadata] = {}
    for partition in partitions:
        # A deleted topic has no offsets. Its deletion may be the reason why the partition is revoked.
        with suppress(UnstableOffsetCommit, UnknownTopicOrPartition):
            position = consumer.position(partition)
            known = consumer.committed([partition])[partition]
            if known is None or known.offset != position:
                moved[partition] = position
    if moved:
        consumer.commit(moved)


def _parts(
    record: eoslog.ConsumerRecord, *, offset: bool, timestamp: bool, headers: bool, key: bool
) -> Iterable[bytes]:
    """Return the parts of a record's line."""
    parts = [b"%d:%d" % (record.partition, record.offset)] if offset else []
    if timestamp:
        parts.append(b"%d" % record.timestamp)
    if record.transaction is not None:
        parts += [_printed(record.transaction.transactional_id), _printed(record.transaction.slot)]
    if headers:
        # As Kafka's console consumer prints them.
        named = (name.encode() + b":" + _printed(value) for name, value in record.headers)
        parts.append(b",".join(named) or b"NO_HEADERS")
    if key:
        parts.append(_printed(record.key))
    return [*parts, _printed(record.value)]


def _printed(value: Any) -> bytes:
    """Return the bytes of a record as they are, and the row of a topic with columns as JSON."""
    if isinstance(value, bytes):
        return value
    return json.dumps(to_json(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _json_line(record: eoslog.ConsumerRecord) -> bytes:
    fields = record._asdict()
    transaction = fields.pop("transaction")
    if transaction is not None:
        fields["transaction"] = transaction._asdict()
    return json_text(to_json(fields)).encode()


def _on_a_terminal(part: bytes) -> bytes:
    """Return a part whose control characters are visible and have no effect. A file or a pipe gets the bytes."""
    return shown(part.decode("utf-8", "backslashreplace")).encode()
