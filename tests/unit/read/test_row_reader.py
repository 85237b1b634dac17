"""Reading planned rows: files are fetched together where they are small, and each is believed only when verified."""

from __future__ import annotations

import pickle
import threading
from dataclasses import fields, replace

import pyarrow as pa
import pytest

from eoslog import CorruptRecord, Store
from eoslog.format.checked_files import crc32c
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, encode_data_file
from eoslog.read.columns import POSITION_COLUMNS
from eoslog.read.file_rows import BatchRows, FileRows
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.state.entry_fields import SharedPosition, shared_object_path
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import StoredObject
from tests.file_rows import batch, control, file_rows


class _Watched(MemoryStore):
    """Notes which data files are fetched. The first fetches wait for each other."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.fetched: list[str] = []
        self.others = threading.Barrier(1)

    def get(self, path: str) -> StoredObject:
        if path.startswith("t/"):
            self.fetched.append(path)
            if len(self.fetched) <= self.others.parties:
                self.others.wait(timeout=60)
        return super().get(path)


@pytest.fixture
def objects(environment: Environment) -> _Watched:
    return _Watched(environment)


@pytest.fixture
def store(objects: _Watched, environment: Environment) -> Store:
    """Twenty files of one row each."""
    store = Store(objects, environment)
    store.admin.create_topic("t")
    producer = store.producer()
    for number in range(20):
        producer.send("t", b"%d" % number)
        producer.flush()
    return store


@pytest.mark.usefixtures("files_are_objects")
def test_several_files_are_fetched_at_once_and_each_file_once(objects: _Watched, store: Store) -> None:
    objects.reads_at_once = 8
    objects.others = threading.Barrier(8)

    rows = store.scan("t").to_table()

    assert rows["value"].to_pylist() == [b"%d" % number for number in range(20)]
    assert len(objects.fetched) == len(set(objects.fetched)) == 20


def test_the_place_of_rows_is_known_without_their_files(objects: _Watched, store: Store) -> None:
    rows = store.scan("t", columns=["offset", "partition"]).to_table()

    assert rows["offset"].to_pylist() == list(range(20))
    assert objects.fetched == []


@pytest.mark.usefixtures("files_are_objects")
def test_a_damaged_file_is_met_after_the_rows_before_it(objects: _Watched, store: Store) -> None:
    scan = store.scan("t")
    victim = scan.planned_files()[3]
    objects.put(victim.path, b"\x00" * victim.length)
    batches = scan.to_batches()

    assert [next(batches).column("value")[0].as_py() for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(CorruptRecord, match=victim.path):
        next(batches)


COLUMNS = pa.schema([("number", pa.int64())])
PLACED = pa.schema([*COLUMNS, POSITION_COLUMNS.field("_offset"), POSITION_COLUMNS.field("_timestamp")])


def _shared_file(objects: _Watched, *offsets: int) -> bytes:
    """A file whose rows say at which offsets they lie."""
    numbers = pa.array(offsets, pa.int64())
    body = encode_data_file(pa.table([numbers, numbers], schema=COLUMNS.append(OFFSET_DELTA_COLUMN)))
    objects.put("t/shared", body)
    return body


def _batch(first_row: int, count: int, base_offset: int, end: int | None = None) -> BatchRows:
    gaps = {} if end is None else {"end_offset": end}
    return batch(first_row=first_row, record_count=count, base_offset=base_offset, timestamp=base_offset, **gaps)


def _rows(body: bytes, rows: int, *batches: BatchRows) -> FileRows:
    return file_rows("t/shared", *batches, length=len(body), crc32c=crc32c(body), file_rows=rows)


def _read(objects: _Watched, rows: FileRows, columns: pa.Schema = PLACED) -> pa.Table:
    read = PartitionRead(store=objects, topic="t", partition=0, files=[rows], stored=COLUMNS, wanted=columns)
    return pa.Table.from_batches(read_rows(read), schema=columns)


def test_batches_that_share_a_file_are_fetched_and_decoded_once(objects: _Watched) -> None:
    body = _shared_file(objects, 0, 1, 3, 4, 5, 9)

    rows = _read(objects, _rows(body, 6, _batch(0, 2, 0), _batch(2, 3, 3), _batch(5, 1, 9)))

    assert objects.fetched == ["t/shared"]
    assert rows["_offset"].to_pylist() == rows["number"].to_pylist() == [0, 1, 3, 4, 5, 9]
    assert [moment.microsecond for moment in rows["_timestamp"].to_pylist()] == [0, 0, 3000, 3000, 3000, 9000]
    assert rows["_offset"].num_chunks == 1


def test_batches_of_a_shared_file_outside_the_plan_are_skipped(objects: _Watched) -> None:
    body = _shared_file(objects, 0, 1, 2, 3, 4, 5)

    rows = _read(objects, _rows(body, 6, _batch(1, 1, 1), _batch(4, 2, 4)))

    assert rows["_offset"].to_pylist() == rows["number"].to_pylist() == [1, 4, 5]


@pytest.mark.parametrize("columns", [PLACED, pa.schema([POSITION_COLUMNS.field("_offset")])])
@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 20, [2, 7, 9, 12]), (2, 12, [2, 7, 9]), (3, 9, [7]), (3, 7, []), (13, 20, []), (12, 13, [12])],
)
def test_where_compaction_left_gaps_the_file_gives_the_rows_offsets(
    objects: _Watched, columns: pa.Schema, start: int, end: int, found: list[int]
) -> None:
    body = _shared_file(objects, 2, 7, 9, 12)

    rows = _read(objects, _rows(body, 4, _batch(0, 4, start, end)), columns)

    assert rows["_offset"].to_pylist() == found


def test_offsets_that_do_not_rise_are_damage(objects: _Watched) -> None:
    body = _shared_file(objects, 2, 9, 7)

    with pytest.raises(CorruptRecord, match="t/shared: the offsets of its rows do not increase"):
        _read(objects, _rows(body, 3, _batch(0, 3, 0, 10)))


@pytest.mark.parametrize("end", [None, 10])
def test_rows_that_are_cut_are_the_same_rows(objects: _Watched, end: int | None) -> None:
    offsets = [2, 3, 4, 5, 6] if end is None else [1, 2, 6, 9, 12]
    body = _shared_file(objects, *offsets)
    whole = _rows(body, 5, _batch(0, 5, 2, end))

    for rows in range(6):
        first, rest = whole.cut(rows)

        assert first.record_count == rows
        assert pa.concat_tables([_read(objects, first), _read(objects, rest)]) == _read(objects, whole)


def test_a_cut_between_batches_divides_none(objects: _Watched) -> None:
    whole = file_rows("f", batch(record_count=2), control(2), batch(first_row=2, record_count=2, base_offset=3))

    first, rest = whole.cut(3)

    assert first.batches.base_offset.tolist() == [0, 2]
    assert rest.batches.base_offset.tolist() == [3]


def test_rows_that_are_cut_keep_the_sequence_of_each_row() -> None:
    staged = batch(record_count=3, base_offset=10)
    numbered = batch(record_count=3, base_offset=10, base_sequence=2**31 - 1)

    first, rest = file_rows("f", numbered).cut(1)

    assert [first.batches.base_sequence[0], rest.batches.base_sequence[0]] == [2**31 - 1, 0]
    assert [each.batches.base_sequence[0] for each in file_rows("f", staged).cut(1)] == [-1, -1]


def test_the_first_rows_come_with_batches_whose_rows_nobody_can_count() -> None:
    whole = file_rows("f", batch(record_count=2), batch(record_count=5, end_offset=20), batch(record_count=4))

    assert [(rows.record_count, missing) for rows, missing in map(whole.first, (1, 2, 3, 6, 9))] == [
        (1, 0),
        (2, 0),
        (8, 0),
        (11, 0),
        (11, 3),
    ]


def test_rows_that_are_passed_to_another_process_are_the_same() -> None:
    shared = SharedPosition(path=shared_object_path(1, "0" * 32), position=7)
    whole = file_rows(
        "f", batch(record_count=2, transactional_id="a"), control(2), batch(record_count=5, end_offset=20)
    )
    assert whole.file is not None
    whole = replace(whole, file=whole.file.model_copy(update={"shared": shared}), record_slot=3)

    passed = pickle.loads(pickle.dumps(whole))

    names = [field.name for field in fields(BatchRows)]
    columns = [[getattr(each.batches, name).tolist() for name in names] for each in (whole, passed)]
    assert columns[0] == columns[1]
    assert (passed.file, passed.record_slot, passed.file_rows) == (whole.file, 3, 1)
    assert [rows.record_count for rows in passed.cut(1)] == [1, 7]
