"""Every table fits a terminal of 80 columns, whatever it shows. Nothing is cut there."""

from __future__ import annotations

import re
from itertools import count
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest
from rich.cells import cell_len

import eoslog
from eoslog.cli.rendering import Columns, Title, as_object, duration_shown, shown_as, size_shown, time_shown
from eoslog.cli.tables import fact_lines, table_lines
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction

WIDTH = 80
LONG_ID = "spark-job-0f3c9a7e-4d2b-4c1e-9a7f-0123456789ab/17"
LONG_TOPIC = "clickstream.web.eu-central-1.sessions-enriched-and-deduplicated.v2"
COMMANDS = [
    f"topics describe {LONG_TOPIC}",
    "topics list",
    "topics schemas t",
    "offsets t",
    "offsets t --group billing",
    "transactions list",
    f"transactions describe {LONG_ID}",
    f"transactions last-committed {LONG_ID}",
    "transactions describe-producers t 0",
    "transactions find-hanging --max-transaction-timeout 0",
    "groups list",
    "groups describe billing",
    "groups describe billing --state",
    "groups describe billing --members",
    "groups reset-offsets idle --all-topics --to-latest",
    "groups delete-offsets idle t --yes",
    "history",
    "history t",
    "describe",
    "metrics",
    "checkpoint",
    "seal",
    "compact-files",
    "compact-keys",
    "publish flights",
    "restore-indexes t --dry-run",
    "topics delete-records t --yes",
    "vacuum --dry-run",
]


@pytest.fixture
def hostile(command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command on a terminal of 80 columns, on a store with long names and something for each table."""
    admin = store.admin
    admin.create_topic(LONG_TOPIC, config=eoslog.TopicConfig(retention_ms=604_800_000, segment_batches=1))
    admin.create_topic(
        "flights", schema=pa.schema([("carrier", pa.string())]), config=eoslog.TopicConfig(publish="delta")
    )
    admin.create_topic("compacted", config=eoslog.TopicConfig(cleanup_policy="compact", segment_batches=1))
    admin.alter_topic("t", segment_batches=1)
    for name in (LONG_ID, "etl-1", "東京-" * 15, "x" * 300):
        with store.producer(name) as producer:
            producer.init_transactions()
            for _ in range(2):
                producer.begin_transaction()
                for topic in ("t", LONG_TOPIC, "compacted"):
                    producer.send(topic, b"v", key=b"k")
                producer.commit_transaction()
    open_one = open_transaction(store, LONG_ID)
    open_one.send("t", b"open")
    open_one.flush()
    aborted = open_transaction(store, "aborted")
    aborted.send("t", b"aborted")
    aborted.flush()
    aborted.abort_transaction()
    store.consumer("idle").commit({eoslog.TopicPartition("t", 0): 1})
    member = store.consumer("billing", group_instance_id="worker-7.eu-central-1.example.com")
    member.subscribe(["t", LONG_TOPIC])
    member.poll(0)
    monkeypatch.setattr("eoslog.cli.tables.terminal_width", lambda: WIDTH)
    return command


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Title, Any]]:
    """The values that are printed. All numbers have 13 digits, and those that are no size or time are unique."""
    numbers = count(1_000_000_000_000)
    found: list[tuple[Title, Any]] = []
    original = Columns.of

    def with_large_numbers(self: Columns, thing: Any) -> dict[str, Any]:
        values = original(self, thing)
        for title, value in values.items():
            assert isinstance(title, Title)
            if isinstance(value, int) and not isinstance(value, bool):
                values[title] = next(numbers)
            found.append((title, values[title]))
        return values

    monkeypatch.setattr(Columns, "of", with_large_numbers)
    return found


@pytest.mark.parametrize("line", COMMANDS)
def test_each_table_fits_a_terminal_and_cuts_no_value(
    hostile: Command, told: list[tuple[Title, Any]], line: str
) -> None:
    if line.startswith(("compact", "restore")):
        hostile.ok("seal")
    if line.startswith("restore"):
        objects = eoslog.connect(hostile.url).object_store
        objects.delete([each.path for each in objects.list("t/") if each.path.endswith(".snapshot")])
    told.clear()

    text = hostile.ok(*line.split())

    assert told
    # The terminal continues the line of a single value, and no other.
    assert [each for each in text.splitlines() if cell_len(each) > WIDTH and not re.match(r" {4}\S", each)] == []
    for title, value in told:
        if isinstance(value, dict) or (title.wide and title not in text.split()):
            continue
        for each in value if isinstance(value, list) else [value]:
            assert shown_as(title, each) in text, title


def test_wide_tables_have_all_columns_at_full_length(hostile: Command) -> None:
    text = hostile.ok("history", "--wide")

    assert {"Files", "Bytes", "Duration", "Details"} <= set(text.splitlines()[0].split())
    assert any("x" * 300 in line and LONG_TOPIC in line for line in text.splitlines())


def test_a_pipe_gets_each_row_on_one_line(hostile: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    lines = hostile.ok("transactions", "list").splitlines()

    assert [line.split()[0] for line in lines[1:]] == [LONG_ID, "etl-1", "東京-" * 15, "x" * 300, "aborted"]


def test_the_widest_columns_move_below_the_rows_of_a_table_that_is_too_wide() -> None:
    columns = Columns(("Name", lambda each: each[0]), ("Rows", lambda each: each[1]), ("Reason", lambda each: each[2]))
    rows = [columns.of(each) for each in (("short", 7, None), ("a-very-long-name-of-a-thing", 8, "a few words"))]

    assert list(map(click.unstyle, table_lines(rows, width=40))) == [
        "Rows  Reason",
        "   7  -",
        "    Name: short",
        "   8  a few words",
        "    Name: a-very-long-name-of-a-thing",
    ]
    assert list(map(click.unstyle, table_lines(rows, width=16))) == [
        "Rows",
        "   7",
        "    Name: short",
        "   8",
        "    Name: a-very-long-name-of-a-thing",
        "    Reason: a few words",
    ]


def test_numbers_are_aligned_to_the_right_below_their_titles() -> None:
    columns = Columns(("Topic", lambda each: each[0]), ("Rows", lambda each: each[1]))
    rows = [columns.of(each) for each in (("flights", 7), ("東京", 1_000_000))]

    assert list(map(click.unstyle, table_lines(rows, width=None))) == [
        "Topic       Rows",
        "flights        7",
        "東京     1000000",
    ]


def test_a_property_that_has_no_room_beside_its_title_is_below_it() -> None:
    facts = {"Name": "a-name-of-25-characters-x", "Kind": "one two three", "Sizes": ["1", "2"], "None": None}

    assert list(map(click.unstyle, fact_lines(facts, width=29))) == [
        "Name",
        "    a-name-of-25-characters-x",
        "Kind   one two three",
        "Sizes  1",
        "       2",
        "None   -",
    ]


def test_a_list_with_a_long_name_stands_evenly_below_its_title() -> None:
    facts = {"Partitions": ["payments-0", "payments-1", "a-very-long-name-of-a-topic-0"]}

    assert list(map(click.unstyle, fact_lines(facts, width=29))) == [
        "Partitions",
        "    payments-0",
        "    payments-1",
        "    a-very-long-name-of-a-topic-0",
    ]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (3_249, "3.2 s"),
        (59_949, "59.9 s"),
        (59_950, "1 m"),
        (192_000, "3 m 12 s"),
        (3_600_000, "1 h"),
        (3_601_000, "1 h"),
        (7_500_000, "2 h 5 m"),
        (604_800_000, "7 d"),
        (2**53, "104249991 d 8 h"),
    ],
)
def test_a_duration_has_at_most_two_units(ms: int, text: str) -> None:
    assert duration_shown(ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_258_291, "1.2 MiB"),
        (1_048_575, "1.0 MiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 80, "1048576.0 EiB"),
    ],
)
def test_a_size_has_one_decimal(size: int, text: str) -> None:
    assert size_shown(size) == text


def test_a_time_is_in_utc_and_one_that_no_calendar_has_is_a_number() -> None:
    assert time_shown(1_795_561_021_999) == "2026-11-24 22:57:01"
    assert time_shown(2**62) == f"{2**62} ms"


def test_a_setting_shows_the_number_that_is_typed_and_unknown_numbers_are_a_dash() -> None:
    assert shown_as(Title("RetentionMs:ms"), 604_800_000) == "604800000 (7 d)"
    assert shown_as(Title("RetentionBytes:bytes"), -1) == "-1"
    assert shown_as(Title("DurationMs:duration"), -1) == "-"
    assert shown_as(Title("TimeMs:time"), None) == "-"


def test_the_form_of_a_column_changes_no_json() -> None:
    columns = Columns("DurationMs:duration Bytes=length:size? TimeMs=time:time")

    values = columns.of(SimpleNamespace(duration_ms=7, length=2048, time=3))

    assert as_object(values) == {"duration_ms": 7, "bytes": 2048, "time_ms": 3}
    assert [title.for_people() for title in values if isinstance(title, Title)] == ["Duration", "Bytes", "Time UTC"]
