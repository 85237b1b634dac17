"""Two-phase commit with an external database: whenever a process dies, a row is in both or in none."""

from __future__ import annotations

import pytest

from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.store import Store
from tests.depth import sweep
from tests.unit.support.paused_processes import Died, Mortal
from tests.unit.support.world import values


class Database:
    """A database with transactions of its own: rows, and the name of the transaction that was last decided."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.prepared = ""

    def commit(self, row: bytes, prepared: str) -> None:
        self.rows, self.prepared = [*self.rows, row], prepared


def run(store: Store, database: Database, environment: Environment, *, staged: bool) -> None:
    """Write each row to both systems, or to none; go on from where an earlier run died."""
    producer = store.producer("tx", staged=staged)
    producer.init_transactions(keep_prepared=True)
    if producer.prepared_transaction is not None:
        producer.complete_transaction(database.prepared)
    while len(database.rows) < 4:
        row = b"%d" % len(database.rows)
        producer.begin_transaction()
        producer.send("t", row)
        prepared = producer.prepare_transaction()
        database.commit(row, prepared)
        environment.reached("database committed")
        producer.complete_transaction(prepared)


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("times", sweep(range(1, 12, 2), quick=[1, 7]))
@pytest.mark.parametrize(
    "point",
    [
        "log.slot.before_put",
        "log.slot.claimed",
        "client.producer.files_uploaded",
        "client.producer.prepared",
        "database committed",
    ],
)
def test_whenever_a_process_dies_a_row_is_in_both_systems_or_in_none(point: str, times: int, staged: bool) -> None:
    objects, database = MemoryStore(Environment()), Database()
    Store(objects, Mortal()).admin.create_topic("t")
    mortal = Mortal(point, times)
    try:
        run(Store(objects, mortal), database, mortal, staged=staged)
    except Died:
        run(Store(objects, Mortal()), database, Mortal(), staged=staged)

    store = Store(objects, Mortal())
    assert values(store) == database.rows == [b"0", b"1", b"2", b"3"]
    assert store.log.replica.invalid is None
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))
