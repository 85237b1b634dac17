"""Statistics go with their batch: through the log, checkpoints and indexes, and wherever its rows are rewritten to."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog import Store, TopicConfig
from eoslog.format.segment_index import BATCHES_SCHEMA, encode_segment_index, iterate_segment_index
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.end_requests import TransactionContent, end_request, prepare_request
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.unit.state.histories import History
from tests.unit.support.transactions import open_transaction

SCHEMA = pa.schema([("carrier", pa.string()), ("miles", pa.int64())])
FIRST = '{"carrier":[0,"B6","UA"],"miles":[0,719,1400]}'
SECOND = '{"carrier":[0,"B6","B6"],"miles":[0,7,7]}'


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore(Environment())


def store_with(objects: MemoryStore, **config: object) -> Store:
    store = Store(objects, Environment())
    store.admin.create_topic("flights", schema=SCHEMA, key="carrier", config=TopicConfig.model_validate(config))
    return store


def write(store: Store, rows: dict[str, list[object]], *, staged: bool = False) -> None:
    with open_transaction(store, "etl", staged=staged) as producer:
        producer.send_table("flights", pa.table(rows, schema=SCHEMA))
        producer.commit_transaction()


def write_both(store: Store) -> None:
    write(store, {"carrier": ["UA", "B6"], "miles": [1400, 719]})
    write(store, {"carrier": ["B6"], "miles": [7]}, staged=True)


def seal(store: Store) -> None:
    seal_segments(store)


def batches(store: Store) -> list[Batch]:
    """Those with rows, sealed ones before the active."""

    def look(state: StoreState, slot: int) -> list[Batch]:
        (partition,) = state.partitions.values()
        sealed = [batch for segment in partition.sealed for batch in store.indexes.batches(segment)]
        return [batch for batch in (*sealed, *partition.active) if batch.control is None]

    return store.read(look)


def statistics(store: Store) -> list[str | None]:
    return [batch.statistics for batch in batches(store)]


def test_eager_and_staged_batches_have_those_of_their_files(objects: MemoryStore) -> None:
    store = store_with(objects)

    write_both(store)

    assert statistics(store) == [FIRST, SECOND]


def test_a_topic_says_of_how_many_columns_there_are_statistics(objects: MemoryStore) -> None:
    store = store_with(objects, statistics_columns=1)
    write(store, {"carrier": ["UA"], "miles": [1]})
    store.admin.alter_topic("flights", statistics_columns=0)

    write(store, {"carrier": ["UA"], "miles": [1]})

    assert statistics(store) == ['{"carrier":[0,"UA","UA"]}', None]


def test_kafka_records_have_none(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t")

    with store.producer() as producer:
        producer.send("t", b"value")

    assert statistics(store) == [None]


def test_they_outlive_a_checkpoint_and_a_seal(objects: MemoryStore) -> None:
    store = store_with(objects, segment_batches=2)
    write_both(store)

    seal(store)
    store.log.checkpoint()

    reopened = Store(objects, Environment())
    assert reopened.read(lambda state, slot: len(next(iter(state.partitions.values())).sealed)) == 2
    assert statistics(reopened) == [FIRST, SECOND]


def test_a_compacted_file_has_those_of_each_of_its_batches(objects: MemoryStore) -> None:
    store = store_with(objects, segment_batches=2)
    write_both(store)
    write_both(store)
    seal(store)

    compact_files(store)

    assert len({batch.file.path for batch in batches(store) if batch.file is not None}) == 1
    assert statistics(store) == [FIRST, SECOND, FIRST, SECOND]


def test_a_compacted_batch_keeps_its_own_which_still_bound_what_is_left(objects: MemoryStore) -> None:
    store = store_with(objects, segment_batches=1, cleanup_policy="compact")
    write_both(store)
    seal(store)

    compact_keys(store, force=True)

    assert [batch.record_count for batch in batches(store)] == [1, 1]
    assert statistics(store) == [FIRST, SECOND]


def test_a_batch_of_which_compaction_left_no_row_has_none(objects: MemoryStore) -> None:
    store = store_with(objects, segment_batches=1, cleanup_policy="compact")
    with store.producer() as producer:
        for miles in (1, 2):
            producer.send_table("flights", pa.table({"carrier": ["UA"], "miles": [miles]}, schema=SCHEMA))
            producer.flush()
    batch = batches(store)[0]
    seal(store)

    compact_keys(store, force=True)

    assert batch.statistics == '{"carrier":[0,"UA","UA"],"miles":[0,1,1]}'
    assert [left.statistics for left in batches(store) if left.record_count == 0] in ([], [None])
    assert store.scan("flights").to_table()["miles"].to_pylist() == [2]


def test_a_prepared_transaction_keeps_them_until_its_commit() -> None:
    history = History()
    identity = history.init()
    staged = history.staged(3)
    history.prepare(identity, batches=[staged])

    history.commit(identity)

    (batch, _) = history.partition().active
    assert batch.statistics == staged.statistics == '{"n":[0,0,3]}'


def test_an_entry_of_very_many_files_leaves_out_some_statistics() -> None:
    history = History()
    batch = history.staged().model_copy(update={"statistics": "x" * 8192})
    identity = ProducerIdentity(1, 0)

    ended = end_request("tx", identity, "commit", content=TransactionContent(batches=[batch] * 2050), time_ms=1)
    content = TransactionContent(batches=[batch] * 2050)
    prepared = prepare_request("tx", identity, content=content, timeout_ms=None, time_ms=1)

    for entry in (ended, prepared):
        with_statistics = [each.statistics is not None for each in entry.batches]
        assert with_statistics == [True] * 2048 + [False] * 2


def test_an_index_from_before_there_were_statistics_is_read_without_them() -> None:
    history = History()
    history.send(history.init(None), transactional_id=None)
    (batch,) = history.state.partitions[PartitionId(history.partition().id.topic_id, 0)].active
    body = encode_segment_index([batch], b"")
    sink = pa.BufferOutputStream()
    pq.write_table(
        pq.read_table(pa.BufferReader(body)).select([n for n in BATCHES_SCHEMA.names if n != "statistics"]), sink
    )

    assert list(iterate_segment_index(bytes(sink.getvalue()), "old")) == [batch._replace(statistics=None)]
