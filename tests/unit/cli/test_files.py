"""``eoslog export`` and ``eoslog import``: whole files, each commit once, and no more memory than a part needs."""

from __future__ import annotations

import json
import math
import random
import resource
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eoslog
from eoslog.cli import table_files
from eoslog.cli.rendering import progress
from tests.depth import examples, sweep
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("body", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("ratio", pa.float64()),
        ("good", pa.bool_()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": 'a "quoted", line\nand another',
        "body": b"text",
        "price": Decimal("12.50"),
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        "local": datetime(2026, 1, 31, 12, 0, 0, 1),
        "ratio": float("inf"),
        "good": True,
    },
    {"id": 2, "name": ""},
    {"id": 3, "name": None},
]
NESTED = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("place", pa.struct([("x", pa.float64())]))])


def write(store: eoslog.Store, topic: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    with open_transaction(store, "writer") as producer:
        producer.send_table(topic, pa.Table.from_pylist(rows, schema=schema))
        producer.commit_transaction()


def rows(store: eoslog.Store, topic: str) -> list[dict[str, Any]]:
    return sorted(store.scan(topic).to_table().to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def table(store: eoslog.Store) -> eoslog.Store:
    """The topics ``flat``, with rows, and ``again``, without, of the same columns."""
    for topic in ("flat", "again"):
        store.admin.create_topic(topic, schema=SCHEMA)
    write(store, "flat", ROWS, SCHEMA)
    return store


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.json", "rows.JSONL", "rows.ndjson"])
def test_an_import_of_an_exported_file_restores_its_rows(
    command: Command, table: eoslog.Store, tmp_path: Path, name: str
) -> None:
    file = str(tmp_path / name)

    exported = command.json("export", "flat", file)
    imported = command.json("import", "again", file)

    assert rows(table, "again") == rows(table, "flat")
    assert (exported["rows"], exported["bytes"]) == (3, Path(file).stat().st_size)
    assert imported == {"topic": "again", "files": 1, "rows": 3, "committed": True}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_nested_columns_and_kafka_records_come_back_too(
    command: Command, store: eoslog.Store, tmp_path: Path, name: str
) -> None:
    for topic in ("nested", "nested-again"):
        store.admin.create_topic(topic, schema=NESTED)
    store.admin.create_topic("again", partitions=3)
    write(store, "nested", [{"id": 1, "tags": ["a", None], "place": {"x": 1.5}}, {"id": 2}], NESTED)
    with store.producer() as producer:
        producer.send("t", b"\xff\x00", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
        producer.send("t", None, key=b"tombstone", timestamp=5)

    for topic in ("nested", "t"):
        command.ok("export", topic, str(tmp_path / f"{topic}-{name}"))
    command.ok("import", "nested-again", str(tmp_path / f"nested-{name}"))
    command.ok("import", "again", str(tmp_path / f"t-{name}"))

    assert rows(store, "nested-again") == rows(store, "nested")
    columns = ["key", "value", "headers", "timestamp"]
    found = store.scan("again", columns=columns).to_table().to_pylist()
    assert sorted(found, key=lambda row: row["key"]) == store.scan("t", columns=columns).to_table().to_pylist()


def test_kafka_records_of_a_csv_file_may_choose_their_partition(
    command: Command, store: eoslog.Store, tmp_path: Path
) -> None:
    store.admin.create_topic("again", partitions=3)
    file = tmp_path / "records.csv"
    file.write_text('key,value,partition,offset\n"k","v",2,99\n,"w",0,98\n')

    command.ok("import", "again", str(file))

    found = store.scan("again", columns=["key", "value", "partition", "offset"]).to_table().to_pylist()
    assert found == [
        {"key": None, "value": b"w", "partition": 0, "offset": 0},
        {"key": b"k", "value": b"v", "partition": 2, "offset": 0},
    ]


def test_csv_has_no_nested_columns_and_says_what_helps(command: Command, store: eoslog.Store, tmp_path: Path) -> None:
    store.admin.create_topic("nested", schema=NESTED)
    write(store, "nested", [{"id": 1}], NESTED)
    file = tmp_path / "rows.csv"

    refused = command.run("export", "nested", str(file))

    assert refused.exit_code == 1
    assert "no column 'tags', 'place': choose other columns with --columns" in refused.stderr
    assert list(tmp_path.glob("*.csv*")) == list(tmp_path.glob(".rows*")) == []
    command.ok("export", "nested", str(file), "--columns", "id, _offset,_slot")
    assert file.read_text().splitlines()[0] == '"id","_offset","_slot"'


def test_an_export_shows_the_newest_slot_or_a_chosen_one(command: Command, store: eoslog.Store, tmp_path: Path) -> None:
    slots = []
    for value in (b"1", b"2"):
        with open_transaction(store, "etl") as producer:
            producer.send("t", value)
            producer.commit_transaction()
        slots.append(store.read(lambda state, slot: slot))
    first, second = list(store.history("t"))[1::-1]
    file = tmp_path / "t.json"

    def exported(*options: str) -> list[str]:
        command.ok("export", "t", str(file), "--columns", "value", "--overwrite", *options)
        return [json.loads(line)["value"] for line in file.read_text().splitlines()]

    assert (first.slot, second.slot) == tuple(slots)
    assert exported() == ["1", "2"]
    assert exported("--slot", str(slots[0])) == ["1"]
    assert exported("--timestamp", str(second.timestamp)) == ["1", "2"]
    assert exported("--isolation-level", "snapshot", "--partition", "0") == ["1", "2"]
    assert command.run("export", "t", str(file), "--overwrite", "--timestamp", "yesterday").exit_code == 1
    assert command.run("export", "t", str(file), "--overwrite", "--slot", "99").exit_code == 1
    assert command.run("export", "t", str(file), "--overwrite", "--partition", "7").exit_code == 1


def test_a_predicate_chooses_rows_also_by_columns_that_are_not_exported(
    command: Command, table: eoslog.Store, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"

    told = command.json("export", "flat", str(file), "--columns", "name", "--predicate", "id >= 2 AND _partition = 0")

    assert told["rows"] == 2
    assert file.read_bytes() == b'"name"\n""\n\n'
    refused = command.run("export", "flat", str(file), "--overwrite", "--predicate", "id >> 2")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("[EOSLOG_")


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(
    command: Command, table: eoslog.Store, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    file.write_text("precious")

    refused = command.run("export", "flat", str(file))

    assert refused.exit_code == 2
    assert "--overwrite replaces it" in refused.stderr
    assert file.read_text() == "precious"
    command.ok("export", "flat", str(file), "--overwrite")
    assert pq.read_metadata(file).num_rows == 3


@pytest.mark.usefixtures("files_are_objects")
def test_an_export_that_fails_leaves_only_the_old_file(command: Command, table: eoslog.Store, tmp_path: Path) -> None:
    write(table, "flat", ROWS, SCHEMA)
    kept = tmp_path / "rows.parquet"
    kept.write_text("precious")
    last = table.scan("flat").planned_files()[-1].path
    table.object_store.delete([last])

    for file in (kept, tmp_path / "new.csv"):
        failed = command.run("export", "flat", str(file), "--overwrite")
        assert failed.exit_code == 1
        assert "[EOSLOG_CORRUPT_RECORD]" in failed.stderr
    assert kept.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["rows.parquet"]
    lost = command.run("export", "again", str(tmp_path / "no" / "rows.csv"))
    assert lost.exit_code == 1
    assert lost.stderr.startswith("[EOSLOG_INVALID_REQUEST] ")
    assert "rows.csv cannot be written: No such file or directory. Choose another path" in lost.stderr


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(
    ("what", "kind"),
    sweep(
        [("a damaged data file", "csv"), *(("a full disk", kind) for kind in ("parquet", "csv", "json"))],
        quick=[("a damaged data file", "csv"), ("a full disk", "parquet")],
    ),
)
def test_an_export_that_fails_tells_one_line_and_nothing_else(
    command: Command, store: eoslog.Store, tmp_path: Path, what: str, kind: str
) -> None:
    noise = random.Random(0)
    store.admin.create_topic("big", schema=SCHEMA)
    for _ in range(2):
        write(store, "big", [{"id": each, "name": f"{noise.random()}" * 20} for each in range(2_000)], SCHEMA)
    directory = tmp_path / "exported"
    directory.mkdir()
    if what == "a damaged data file":
        data_file = sorted(Path(command.url).glob("big/**/*.parquet"))[-1]
        body = bytearray(data_file.read_bytes())
        body[len(body) // 2] ^= 0xFF
        data_file.write_bytes(body)

    largest_file = 20_000 if what == "a full disk" else resource.RLIM_INFINITY
    with command.start("export", "big", str(directory / f"rows.{kind}"), largest_file=largest_file) as process:
        output, errors = process.communicate()

    assert (process.returncode, output) == (1, b"")
    assert len(errors.splitlines()) == 1, errors.decode()
    assert (b"File too large" if what == "a full disk" else b"[EOSLOG_CORRUPT_RECORD]") in errors
    assert list(directory.iterdir()) == []


def test_exported_floats_have_no_bounds(command: Command, store: eoslog.Store, tmp_path: Path) -> None:
    numbers = pa.schema(
        [("id", pa.int64()), ("d", pa.float64()), ("s", pa.struct([("f", pa.float32()), ("n", pa.int8())]))]
    )
    store.admin.create_topic("numbers", schema=numbers)
    write(
        store, "numbers", [{"id": each, "d": each / 3, "s": {"f": math.nan, "n": each}} for each in range(3)], numbers
    )
    file = tmp_path / "rows.parquet"

    command.ok("export", "numbers", str(file))

    group = pq.read_metadata(file).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    assert {each.path_in_schema for each in chunks if each.is_stats_set} == {"id", "s.n"}


def test_many_files_are_one_transaction(command: Command, table: eoslog.Store, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.parquet", "b.csv", "c.jsonl")]
    for file in files:
        command.ok("export", "flat", file)

    command.ok("import", "again", *files, "--transactional-id", "load")

    (commit,) = table.history("again", transactional_id="load")
    assert (commit.rows, commit.operation) == (9, "append")


def test_a_version_is_imported_once_and_an_earlier_one_not_any_more(
    command: Command, table: eoslog.Store, tmp_path: Path
) -> None:
    file = str(tmp_path / "rows.parquet")
    command.ok("export", "flat", file)
    named = ("import", "again", file, "--transactional-id", "load")

    told = [command.json(*named, "--version", version)["committed"] for version in ("3", "3", "2", "4")]

    assert told == [True, False, False, True]
    assert len(rows(table, "again")) == 6
    assert "committed before: nothing was imported" in command.ok(*named, "--version", "4")


def test_a_version_that_another_import_commits_meanwhile_is_not_committed_again(
    command: Command, table: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "rows.parquet")
    command.ok("export", "flat", file)
    named = ("import", "again", file, "--transactional-id", "load", "--version", "1")
    command.ok(*named)
    # Both looked before either committed.
    monkeypatch.setattr(table_files, "_was_committed", lambda *asked: False)

    told = command.json(*named)

    assert told == {"topic": "again", "files": 1, "rows": 0, "committed": False}
    assert len(rows(table, "again")) == 3


def test_an_import_that_is_interrupted_shows_nothing(
    command: Command, table: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "rows.parquet")
    command.ok("export", "flat", file)
    read = table_files.read_tables

    def interrupted(*arguments: Any) -> Any:
        yield from read(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(table_files, "read_tables", interrupted)

    assert command.run("import", "again", file).exit_code == 130
    assert rows(table, "again") == []
    assert table.admin.list_transactions(states=["Ongoing"]) == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("bad.csv", "id,colour\n1,red\n", "column 'colour'"),
        ("bad.csv", "id,name\none,x\n", "CSV conversion error to int64"),
        ("bad.csv", "name\nx\n", "column 'id' is missing"),
        ("bad.csv", "", "Empty CSV file"),
        ("bad.json", '{"id": 1}\n{"id": "two"}\n', "line 2: column 'id': expected int64"),
        ("bad.json", "[]\n", "line 1: not a JSON object"),
        ("bad.json", '{"name": "x"}\n', "column 'id' is missing"),
        ("bad.parquet", "no parquet", "Parquet"),
    ],
)
def test_a_file_that_does_not_fit_is_named_and_nothing_is_committed(
    command: Command, table: eoslog.Store, tmp_path: Path, name: str, text: str, problem: str
) -> None:
    good, bad = tmp_path / "good.parquet", tmp_path / name
    command.ok("export", "flat", str(good))
    bad.write_text(text)

    refused = command.run("import", "again", str(good), str(bad))

    assert refused.exit_code == 1
    assert "[EOSLOG_SCHEMA_MISMATCH]" in refused.stderr
    assert f"{bad}: " in refused.stderr
    assert problem in refused.stderr
    assert rows(table, "again") == []


def test_columns_are_compared_before_anything_is_uploaded(
    command: Command, table: eoslog.Store, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    command.ok("export", "flat", str(good))
    pq.write_table(pa.table({"id": ["text"]}), bad)
    before = table.read(lambda state, slot: slot)

    refused = command.run("import", "again", str(good), str(bad))

    assert "column 'id': expected int64, found string" in refused.stderr
    assert table.read(lambda state, slot: slot) == before


def test_wrong_arguments_of_export_and_import_are_refused(
    command: Command, table: eoslog.Store, tmp_path: Path
) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("id\n7\n")

    assert "has no known format" in command.run("import", "again", str(file)).stderr
    assert "--version needs --transactional-id" in command.run("import", "again", str(file), "--version", "1").stderr
    assert "does not exist" in command.run("import", "again", str(tmp_path / "none.csv")).stderr
    assert "has no known format" in command.run("export", "flat", str(tmp_path / "rows")).stderr
    assert command.run("import", "nowhere", str(file), "--format", "csv").exit_code == 1
    command.ok("import", "again", str(file), "--format", "csv")
    assert [row["id"] for row in rows(table, "again")] == [7]


def test_parquet_is_written_in_groups_that_do_not_grow_with_the_topic(
    command: Command, store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_ROWS_A_GROUP", 250)
    store.admin.create_topic("many", schema=pa.schema([("id", pa.int64())]))
    for first in range(0, 1000, 100):
        write(store, "many", [{"id": first + each} for each in range(100)], pa.schema([("id", pa.int64())]))
    file = tmp_path / "many.parquet"

    command.ok("export", "many", str(file))

    footer = pq.read_metadata(file)
    assert [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] == [200] * 5


def test_an_import_uploads_while_it_reads(
    command: Command, store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a file need not fit into memory: what is read is collected up to the producer's buffer."""
    monkeypatch.setattr(table_files, "_LINES_A_BATCH", 10)
    monkeypatch.setattr("eoslog.producer.producer.DEFAULT_BUFFER_BYTES", 1000)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"value": "{"x" * 100}"}}\n' for _ in range(100)))

    command.ok("import", "t", str(file))

    (commit,) = store.history("t", limit=1)
    assert commit.rows == 100
    assert (commit.files or 0) > 5


@pytest.mark.parametrize("terminal", [False, True])
def test_a_bar_is_shown_on_standard_error_to_nobody_but_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("importing") as show:
        show("importing", 5, 10, "5 rows")

    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("importing" in printed.err, "50%" in printed.err, "5 rows" in printed.err) == (terminal,) * 3


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
VALUES = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | TEXT,
    st.none() | TEXT.map(str.encode),
    st.none() | st.decimals(-(10**7), 10**7, places=2),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
)
OF_VALUES = pa.schema([SCHEMA.field(name) for name in ("id", "name", "body", "price", "ratio", "at")])


@pytest.mark.parametrize("kind", table_files.FORMATS)
@examples(6)
@given(values=st.lists(VALUES, max_size=12))
def test_any_rows_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, kind: str, values: list[tuple[Any, ...]]
) -> None:
    path = tmp_path_factory.mktemp("file") / "rows"
    expected = [dict(zip(OF_VALUES.names, row, strict=True)) for row in values]
    table = pa.Table.from_pylist(expected, schema=OF_VALUES)

    table_files.write_file(path, kind, OF_VALUES, table.to_batches(max_chunksize=5), name="name")

    # JSON lines have no columns that are null in all rows.
    found = [row for part, _ in table_files.read_tables(path, kind, OF_VALUES) for row in part.to_pylist()]
    assert [dict.fromkeys(OF_VALUES.names) | row for row in found] == expected


def test_bytes_that_are_no_text_have_no_place_in_csv(command: Command, store: eoslog.Store, tmp_path: Path) -> None:
    with store.producer() as producer:
        producer.send("t", b"\xff")

    refused = command.run("export", "t", str(tmp_path / "t.csv"), "--columns", "value")

    assert refused.exit_code == 1
    assert "CSV is text, and some bytes are not text" in refused.stderr
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("latin.csv", "carrier,miles\nMünchen,5\n".encode("latin-1")),
        ("wide.csv", "carrier,miles\nUA,5\n".encode("utf-16")),
        ("latin.jsonl", '{"carrier": "München"}\n'.encode("latin-1")),
        ("wide.jsonl", '{"carrier": "UA"}\n'.encode("utf-16")),
    ],
)
def test_a_file_in_another_encoding_is_reported(command: Command, tmp_path: Path, name: str, body: bytes) -> None:
    command.ok("topics", "create", "flights", "--column", "carrier:string", "--column", "miles:long")
    (tmp_path / name).write_bytes(body)

    result = command.run("import", "flights", str(tmp_path / name))

    assert result.exit_code == 1
    assert f"{name}: " in result.stderr
    assert "the file is not UTF-8: convert it" in result.stderr
