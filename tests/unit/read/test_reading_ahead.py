"""Reading ahead: how much of a read memory holds before the caller takes it, and reads without threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eoslog import Store, connect
from eoslog.format.data_file import DataFile
from eoslog.read import row_reader
from tests.programs import ran

FILES = 8
ROWS = 100_000
TEXT = "x" * 80
SCHEMA = pa.schema({"number": pa.int32(), "text": pa.string()})
CONSTANT = pa.table({"number": [1] * ROWS, "text": [TEXT] * ROWS}, schema=SCHEMA)


@pytest.fixture(scope="module")
def store() -> Store:
    """A store with files that are compressed to a hundredth of their size: 8 MB each."""
    store = connect("memory://ahead")
    store.object_store.reads_at_once = FILES
    store.admin.create_topic("t", schema=SCHEMA)
    with store.producer() as producer:
        for _ in range(FILES):
            producer.send_table("t", CONSTANT)
            producer.flush()
    return store


@pytest.mark.parametrize("columns", [None, ["text"]])
def test_memory_limits_how_many_compressed_files_are_decoded_ahead(
    store: Store, monkeypatch: pytest.MonkeyPatch, columns: list[str] | None
) -> None:
    monkeypatch.setattr(row_reader, "_BYTES_AT_ONCE", 2 << 20)
    decoded: list[object] = []
    batches = DataFile.batches

    def noted(self: DataFile, *args: Any, **options: Any) -> Any:
        decoded.append(args)
        return batches(self, *args, **options)

    monkeypatch.setattr(DataFile, "batches", noted)
    scan = store.scan("t", columns=columns).to_batches()

    next(scan)

    assert len(decoded) <= 3
    assert sum(batch.num_rows for batch in scan) + row_reader._ROWS_A_BATCH == FILES * ROWS


class _Late(Future[Any]):
    """A step that takes until somebody waits for it."""

    def __init__(self, run: Callable[[Any], Any], step: Any) -> None:
        super().__init__()
        self._run = partial(run, step)

    def result(self, timeout: float | None = None) -> Any:
        return self._run()


def test_memory_limits_how_many_files_are_decoded_behind_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema({"number": pa.int64()})
    store = connect("memory://slow")
    store.object_store.reads_at_once = 16
    store.admin.create_topic("t", schema=schema)
    two_steps = 150_000
    with store.producer() as producer:
        for rows in (two_steps, *[ROWS] * 40):
            numbers = np.random.default_rng(0).integers(1 << 62, size=rows)
            producer.send_table("t", pa.table({"number": numbers}, schema=schema))
            producer.flush()
    monkeypatch.setattr(row_reader, "_BYTES_AT_ONCE", 3 << 20)
    monkeypatch.setattr(row_reader, "_BYTES_A_STEP", 1 << 20)
    monkeypatch.setattr(
        row_reader,
        "_submitted",
        lambda pool, run, task: (_Late if isinstance(task, row_reader._Step) else row_reader._done)(run, task),
    )
    decoded: list[object] = []
    batches = DataFile.batches

    def noted(self: DataFile, *args: Any, **options: Any) -> Any:
        decoded.append(args)
        return batches(self, *args, **options)

    monkeypatch.setattr(DataFile, "batches", noted)
    scan = store.scan("t").to_batches()

    next(scan)

    assert len(decoded) <= 8
    assert sum(batch.num_rows for batch in scan) + row_reader._ROWS_A_BATCH == two_steps + 40 * ROWS


def test_the_rows_of_the_first_file_do_not_wait_for_the_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read_file, begun, may_end = row_reader.read_file, [], threading.Event()

    def slow(objects: Any, file: Any, slot: int) -> Any:
        begun.append(file)
        if file is not begun[0]:
            may_end.wait(60)
        return read_file(objects, file, slot)

    monkeypatch.setattr(row_reader, "read_file", slow)
    scan = store.scan("t").to_batches()
    taking = threading.Thread(target=next, args=(scan,), daemon=True)

    taking.start()
    taking.join(10)
    has_waited = taking.is_alive()
    may_end.set()

    assert not has_waited
    assert sum(batch.num_rows for batch in scan) + row_reader._ROWS_A_BATCH == FILES * ROWS


def test_rows_without_a_file_are_made_when_they_are_taken(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    column = row_reader.metadata_column

    def noted(field: Any, *args: Any) -> Any:
        made.append(field)
        return column(field, *args)

    monkeypatch.setattr(row_reader, "metadata_column", noted)
    scan = store.scan("t", columns=["_offset"]).to_batches()

    next(scan)

    assert len(made) == 1


def test_a_read_that_is_given_up_does_not_wait_for_its_threads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted, goes_on, busy = row_reader._submitted, threading.Event(), []

    def with_a_busy_thread(pool: Any, run: Any, task: Any) -> Any:
        if not busy:
            busy.append(pool.submit(goes_on.wait, 60))
        return submitted(pool, run, task)

    monkeypatch.setattr(row_reader, "_submitted", with_a_busy_thread)
    scan = store.scan("t").to_batches()
    next(scan)
    closing = threading.Thread(target=scan.close, daemon=True)  # type: ignore[attr-defined]

    closing.start()
    closing.join(10)
    has_waited = closing.is_alive()
    goes_on.set()

    assert busy
    assert not has_waited


READ_AT_EXIT = """
import threading
import pyarrow as pa
import eoslog

store = eoslog.connect("memory://exit")
store.admin.create_topic("t", schema=pa.schema({"number": pa.int64()}))
with store.producer() as producer:
    producer.send_table("t", pa.table({"number": [1, 2]}))

def read():
    threading.main_thread().join()
    print(store.scan("t").to_table().num_rows)

threading.Thread(target=read).start()
"""


def test_a_thread_reads_after_the_main_thread_has_ended() -> None:
    assert ran(READ_AT_EXIT) == (0, "2\n", "")
