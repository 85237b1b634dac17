"""``eoslog console``: lines go in, records come out, exactly as often as is promised."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterable

import pytest

import eoslog
from eoslog.cli import console
from eoslog.storage.environment import Environment
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction

ALL = ("--from-beginning", "--timeout", "0")


def slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def test_lines_go_in_and_come_out(command: Command, store: eoslog.Store) -> None:
    result = command.run("console", "produce", "t", "--key-separator", ":", text="card-1:12.50\ncard-2:3:10\n")

    assert result.stdout == ""
    assert result.stderr == "wrote 2 records to t\n"
    assert command.ok("console", "consume", "t", *ALL) == "12.50\n3:10\n"
    told = command.ok("console", "consume", "t", *ALL, "--print-key", "--print-offset")
    assert told == "0:0\tcard-1\t12.50\n0:1\tcard-2\t3:10\n"


def test_a_tab_in_a_value_is_visible_on_a_terminal(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"a\tb\x1b[31m", key=b"k\t1")
    terminal, own = os.openpty()

    with command.start("console", "consume", "t", *ALL, "--print-key", stdout=own) as process:
        assert process.wait() == 0
    os.close(own)

    assert os.read(terminal, 100) == rb"k\t1" + b"\t" + rb"a\tb\x1b[31m" + b"\r\n"
    os.close(terminal)


def test_the_number_of_records_is_told_as_json(command: Command, store: eoslog.Store) -> None:
    plain = command.json("console", "produce", "t", text="a\nb\n")
    committed = command.json(
        "console", "produce", "t", "--transactional-id", "x", "--commit-every", "2", text="a\nb\nc"
    )

    assert plain == {"topic": "t", "records": 2, "transactions": 0}
    assert committed == {"topic": "t", "records": 3, "transactions": 2}


def test_no_input_writes_nothing(command: Command, store: eoslog.Store) -> None:
    before = slot(store)

    assert command.json("console", "produce", "t", text="")["records"] == 0
    assert slot(store) == before


def test_bytes_pass_unchanged(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", text=b"\xff\xfe\n\nlast without end")

    printed = command.run("console", "consume", "t", *ALL).stdout_bytes
    as_json = command.ok("console", "consume", "t", *ALL, "--json").splitlines()

    assert printed == b"\xff\xfe\n\nlast without end\n"
    assert [json.loads(line)["value"] for line in as_json] == [{"base64": "//4="}, "", "last without end"]


def test_a_timeout_of_zero_still_reads_all_records(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the time is up before the first poll, as on a busy machine."""
    command.ok("console", "produce", "t", text=b"first\nsecond\n")
    times = itertools.count(0, 1_000)
    monkeypatch.setattr(Environment, "monotonic_ms", lambda self: next(times))

    assert command.ok("console", "consume", "t", *ALL) == "first\nsecond\n"


def test_a_record_as_json_has_its_place(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        producer.send("t", None, key=b"k", headers=[("h", b"1")], timestamp=7)

    (line,) = command.ok("console", "consume", "t", *ALL, "--json").splitlines()

    assert json.loads(line) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 7,
        "key": "k",
        "value": None,
        "headers": [["h", "1"]],
    }
    assert command.ok("console", "consume", "t", *ALL, "--print-key", "--print-timestamp") == "7\tk\tnull\n"


def test_rows_of_columns_are_json_lines(command: Command) -> None:
    columns = [f"--column={name}" for name in ("name:string", "price:decimal(5,2)", "at:timestamp", "raw:binary")]
    command.ok("topics", "create", "typed", *columns, "--key", "name")
    rows = [
        {"name": "a", "price": "1.50", "at": "2024-01-01T00:00:00+00:00", "raw": {"base64": "/w=="}},
        {"name": None, "price": None, "at": None, "raw": "text"},
    ]

    command.ok("console", "produce", "typed", text="\n".join(json.dumps(row) for row in rows))

    lines = command.ok("console", "consume", "typed", *ALL).splitlines()
    assert [json.loads(line) for line in lines] == rows
    command.ok("console", "produce", "typed", text="\n".join(lines))
    assert command.ok("console", "consume", "typed", *ALL).splitlines() == lines * 2


def test_a_partition_may_be_chosen(command: Command) -> None:
    command.ok("topics", "create", "two", "--partitions", "2")
    command.ok("topics", "create", "typed", "--partitions", "2", "--column", "n:int")

    for partition in "01":
        command.ok("console", "produce", "two", "--partition", partition, text=f"in {partition}\n")
        command.ok("console", "produce", "typed", "--partition", partition, text=f'{{"n": {partition}}}\n')

    assert command.ok("console", "consume", "two", "--partition", "1", *ALL) == "in 1\n"
    assert command.ok("console", "consume", "typed", "--partition", "0", *ALL) == '{"n": 0}\n'


def test_transactions_are_committed_every_so_many_lines(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", "--transactional-id", "x", "--commit-every", "2", text="a\nb\nc\nd\ne\n")

    assert command.ok("console", "consume", "t", *ALL) == "a\nb\nc\nd\ne\n"
    rows, commits = 5, 3
    assert command.json("offsets", "t")[0]["last_stable_offset"] == rows + commits


def test_a_bad_line_aborts_its_transaction_and_says_what_stays(command: Command, store: eoslog.Store) -> None:
    result = command.run(
        *("console", "produce", "t", "--transactional-id", "x", "--key-separator", ":", "--commit-every", "2"),
        text="a:1\nb:2\nc:3\nnothing\n",
    )

    assert result.exit_code == 1
    assert result.stderr.startswith("[EOSLOG_INVALID_REQUEST] line 4 has no key: there is no ':' in it")
    assert "2 lines had been committed before" in result.stderr
    assert command.ok("console", "consume", "t", *ALL) == "1\n2\n"
    assert command.json("transactions", "list", "--state", "Ongoing") == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", "line 2: not a JSON object"),
        ('{"n": "1"}', "line 2: column 'n': expected int32, found \"1\""),
        ('{"m": 1}', "line 2: column 'm' is not in the topic. Its columns are n"),
    ],
)
def test_a_row_unlike_the_topic_s_is_named_by_its_line(command: Command, line: str, message: str) -> None:
    command.ok("topics", "create", "typed", "--column", "n:int")

    result = command.run("console", "produce", "typed", text=f'{{"n": 1}}\n{line}\n')

    assert result.exit_code == 1
    assert f"[EOSLOG_SCHEMA_MISMATCH] {message}" in result.stderr
    assert "--transactional-id" in result.stderr


def test_aborted_records_show_under_read_uncommitted_only(command: Command, store: eoslog.Store) -> None:
    with open_transaction(store, "x") as producer:
        producer.send("t", b"aborted")
        producer.flush()
        producer.abort_transaction()

    assert command.ok("console", "consume", "t", *ALL) == ""
    assert command.ok("console", "consume", "t", *ALL, "--isolation-level", "read_uncommitted") == "aborted\n"


def test_without_from_beginning_it_begins_at_the_end(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", text="a\n")

    assert command.ok("console", "consume", "t", "--timeout", "0") == ""


def test_it_begins_at_an_offset_and_stops_after_so_many_records(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", text="a\nb\nc\n")

    assert command.ok("console", "consume", "t", "--partition", "0", "--offset", "1", "--max-records", "1") == "b\n"


def test_an_offset_that_is_not_there_is_an_error(command: Command, store: eoslog.Store) -> None:
    result = command.run("console", "consume", "t", "--partition", "0", "--offset", "5", "--timeout", "0")

    assert result.exit_code == 1
    assert result.stderr.startswith("[EOSLOG_OFFSET_OUT_OF_RANGE]")


def test_headers_are_printed_as_kafkas_console_prints_them(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"1", headers=[("source", b"web"), ("empty", None)])
        producer.send("t", b"2")

    assert command.ok("console", "consume", "t", *ALL, "--print-headers") == (
        "source:web,empty:null\t1\nNO_HEADERS\t2\n"
    )


def test_grep_prints_and_counts_only_records_whose_key_or_value_matches(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        for number in range(20):
            producer.send("t", f"v{number}".encode(), key=b"even" if number % 2 == 0 else None)

    def told(*options: str) -> list[str]:
        return command.ok("console", "consume", "t", *ALL, *options).split()

    assert told("--grep", "even") == [f"v{number}" for number in range(0, 20, 2)]
    assert told("--grep", "v1.", "--max-records", "2") == ["v10", "v11"]
    assert told("--grep", "nothing") == []
    assert command.run("console", "consume", "t", "--grep", "(").exit_code == 2


def test_a_group_goes_on_after_the_last_record_that_matched(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        for value in (b"a", b"b", b"a", b"b"):
            producer.send("t", value)
    options = ("console", "consume", "t", *ALL, "--group", "g", "--grep", "b", "--max-records", "1", "--print-offset")

    assert [command.ok(*options) for _ in range(3)] == ["0:1\tb\n", "0:3\tb\n", ""]


def test_a_group_goes_on_after_what_was_printed(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", text="a\nb\nc\nd\n")
    consume = ("console", "consume", "t", "--group", "g", "--from-beginning", "--timeout", "0.2")

    printed = [command.ok(*consume, "--max-records", "1"), command.ok(*consume, "--max-records", "2")]
    printed += [command.ok(*consume), command.ok(*consume)]

    assert printed == ["a\n", "b\nc\n", "d\n", ""]
    assert command.json("offsets", "t", "--group", "g")[0]["lag"] == 0


def test_a_group_keeps_its_place_in_partitions_of_which_nothing_was_printed(command: Command) -> None:
    command.ok("topics", "create", "two", "--partitions", "2")
    command.ok("console", "produce", "two", "--partition", "0", text="a\n")
    consume = ("console", "consume", "two", "--group", "g", "--timeout", "0.2")
    command.ok(*consume, "--from-beginning")

    command.ok("console", "produce", "two", "--partition", "1", text="b\n")

    assert command.ok(*consume) == "b\n"


def test_a_group_commits_the_partitions_that_no_prepared_transaction_keeps_it_from(
    command: Command, store: eoslog.Store
) -> None:
    command.ok("topics", "create", "two", "--partitions", "2")
    command.ok("console", "produce", "two", "--partition", "0", text="a\n")
    command.ok("console", "produce", "two", "--partition", "1", text="b\n")
    producer = open_transaction(store, "x")
    producer.send_offsets_to_transaction({eoslog.TopicPartition("two", 0): 1}, "g")
    producer.prepare_transaction()
    consume = ("console", "consume", "two", "--group", "g", "--from-beginning", "--timeout", "0.2")

    printed = [command.ok(*consume), command.ok(*consume)]
    producer.complete_transaction("")
    printed.append(command.ok(*consume))

    assert printed == ["b\n", "", "a\n"]


def test_a_group_that_prints_nothing_new_commits_nothing(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", text="a\n")
    consume = ("console", "consume", "t", "--group", "g", "--from-beginning", "--timeout", "0")
    command.ok(*consume)
    before = command.json("offsets", "t", "--group", "g")

    def committed_in(state: object, slot: int) -> list[int]:
        (group,) = state.groups.values()  # type: ignore[attr-defined]
        return [each.slot for each in group.offsets.values()]

    slots = store.read(committed_in)
    command.ok(*consume)

    assert command.json("offsets", "t", "--group", "g") == before
    assert store.read(committed_in) == slots


def while_it_prints(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen while the first record is printed."""
    parts = console._parts
    acts = iter([act])

    def acting(record: eoslog.ConsumerRecord, **columns: bool) -> Iterable[bytes]:
        for each in acts:
            each()
        return parts(record, **columns)

    monkeypatch.setattr(console, "_parts", acting)


def test_a_group_that_another_joins_while_it_prints_commits_what_was_printed(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.ok("topics", "create", "two", "--partitions", "2")
    command.ok("console", "produce", "two", "--partition", "0", text="a\n")
    command.ok("console", "produce", "two", "--partition", "1", text="b\n")
    consume = ("console", "consume", "two", "--group", "g", "--from-beginning")
    other = store.consumer("g")
    other.subscribe("two")
    while_it_prints(monkeypatch, lambda: other.poll(0))

    result = command.run(*consume, "--max-records", "2")
    other.close()

    assert (sorted(result.stdout.split()), result.stderr, result.exit_code) == (["a", "b"], "", 0)
    assert command.ok(*consume, "--timeout", "0") == ""


def test_a_partition_that_moves_to_another_member_is_not_printed_again(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.ok("topics", "create", "two", "--partitions", "2")
    command.ok("console", "produce", "two", "--partition", "0", text="a\n")
    command.ok("console", "produce", "two", "--partition", "1", text="b\n")
    other = store.consumer("g", auto_offset_reset="earliest")
    other.subscribe("two")
    while_it_prints(monkeypatch, lambda: other.poll(0))

    command.ok("console", "consume", "two", "--group", "g", "--from-beginning", "--timeout", "0.2")

    assert other.poll(0) == []


def test_an_eviction_while_it_prints_is_told_and_the_records_come_again(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.ok("console", "produce", "t", text="a\n")
    consume = ("console", "consume", "t", "--group", "g", "--from-beginning", "--max-records", "1")
    while_it_prints(monkeypatch, lambda: store.admin.remove_members("g"))

    result = command.run(*consume)

    assert (result.stdout, result.exit_code) == ("a\n", 0)
    assert "went on without this consumer: records of t-0" in result.stderr
    assert command.ok(*consume) == "a\n"


def test_a_closed_pipe_ends_it_quietly_without_losing_unprinted_records(command: Command, store: eoslog.Store) -> None:
    more_than_a_pipe_holds = 20_000
    with store.producer() as producer:
        for _ in range(more_than_a_pipe_holds):
            producer.send("t", b"x" * 100)

    with command.start("console", "consume", "t", "--from-beginning", "--group", "g") as process:
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == b""
        assert process.wait() == 1
    assert command.json("offsets", "t", "--group", "g")[0]["lag"] == more_than_a_pipe_holds


def test_ctrl_c_ends_it_quietly(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", text="a\n")

    with command.start("console", "consume", "t", "--from-beginning") as process:
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

    assert (line, errors, process.returncode) == (b"a\n", b"", 130)


def test_a_record_tells_its_transaction_on_request(command: Command, store: eoslog.Store) -> None:
    command.ok("console", "produce", "t", "--transactional-id", "loader", text="a\n")
    committed = slot(store)

    plain = command.ok("console", "consume", "t", *ALL, "--print-transaction")
    (line,) = command.ok("console", "consume", "t", *ALL, "--print-transaction", "--json").splitlines()

    assert plain == f'"loader"\t{committed}\ta\n'
    assert json.loads(line)["transaction"]["transactional_id"] == "loader"
    assert json.loads(line)["transaction"]["slot"] == committed
