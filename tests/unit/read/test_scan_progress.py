"""A long read tells how far it has come."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog import Progress, Store, TopicConfig
from eoslog.maintenance.sealing import seal_segments
from tests.unit.support.world import World

FILES = 6


@pytest.fixture
def store(world: World) -> Store:
    """The topic ``t`` in two partitions, with a file and a marker for each commit."""
    store = world.process()
    store.admin.create_topic("t", partitions=2, config=TopicConfig(segment_batches=4))
    with store.producer("etl") as producer:
        producer.init_transactions()
        for number in range(FILES):
            producer.begin_transaction()
            for _ in range(10):
                producer.send("t", b"x" * number, partition=number % 2)
            producer.commit_transaction()
    return store


def stored_bytes(store: Store) -> int:
    return sum(info.size for info in store.object_store.list("t/") if not info.path.endswith(".index.parquet"))


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("columns", [None, ["_slot"]])
def test_progress_rises_to_the_totals_which_are_known_from_the_first(store: Store, columns: list[str] | None) -> None:
    told: list[Progress] = []

    table = store.scan("t", columns=columns).to_table(progress=told.append)

    assert {(each.total_rows, each.total_bytes, each.total_files) for each in told} == {
        (table.num_rows, stored_bytes(store), FILES)
    }
    assert told == sorted(told, key=lambda each: (each.rows, each.files))
    assert [each.files for each in told] == [number for done in range(FILES) for number in (done, done + 1)]
    assert told[-1] == Progress(60, 60, stored_bytes(store), stored_bytes(store), FILES, FILES)


def test_rows_are_counted_before_they_are_handed_over(store: Store) -> None:
    told: list[Progress] = []
    batches = store.scan("t").to_batches(progress=told.append)

    first = next(batches)

    assert [(each.rows, each.files) for each in told] == [(first.num_rows, 0)]


def test_a_compacted_file_is_one_and_control_rows_lie_in_none(store: Store) -> None:
    seal_segments(store)
    store.admin.compact_files("t")
    told: list[Progress] = []

    table = store.scan("t", include_control_rows=True).to_table(progress=told.append)

    assert table.num_rows == 60 + FILES
    assert (told[-1].rows, told[-1].total_rows) == (60 + FILES, 60 + FILES)
    assert told[-1].files == told[-1].total_files
    assert 0 < (told[-1].total_files or 0) <= FILES


def test_an_empty_topic_has_nothing_to_tell(store: Store) -> None:
    store.admin.create_topic("empty")
    told: list[Progress] = []

    assert store.scan("empty").to_table(progress=told.append) == pa.Table.from_batches(
        [], schema=store.scan("empty").schema
    )
    assert told == []
