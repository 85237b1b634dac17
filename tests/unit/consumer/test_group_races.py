"""Workers of one group that come, go, are removed and commit at the same time, on local disk and with real threads."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import eoslog
from eoslog import errors
from eoslog.state.names import TopicPartition

INPUTS = 120
WORKERS = 4


class Worker(threading.Thread):
    """Moves records from ``in`` to ``out``, a transaction a poll; now and then it dies, or removes all members."""

    def __init__(self, root: Path, number: int, done: threading.Event) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self._root = root
        self._chance = random.Random(number)
        self._done = done
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._done.is_set():
                self._live()
        except BaseException as error:
            self.error = error

    def _live(self) -> None:
        store = eoslog.connect(self._root, fsync=False)
        consumer = store.consumer("g", auto_offset_reset="earliest", max_poll_records=5)
        consumer.subscribe("in")
        producer = store.producer(self.name)
        producer.init_transactions()
        while not self._done.is_set():
            records = consumer.poll(0.01)
            producer.begin_transaction()
            for record in records:
                producer.send("out", record.value)
            positions = {place: consumer.position(place) for place in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            try:
                producer.commit_transaction()
            except errors.AbortableError:
                producer.abort_transaction()
                for place, committed in consumer.committed(consumer.assignment()).items():
                    consumer.seek(place, committed.offset if committed else 0)
            match self._chance.randrange(20):
                case 0:
                    consumer.close()
                    return
                case 1:
                    store.admin.remove_members("g", [consumer.group_metadata().member_id])
                    return
                case 2:
                    store.admin.remove_members("g")


def test_racing_members_move_each_record_once_and_end_in_one_generation(
    tmp_path: Path,
) -> None:
    store = eoslog.connect(tmp_path, fsync=False)
    store.admin.create_topic("in", partitions=5)
    store.admin.create_topic("out")
    expected = sorted(b"%d" % number for number in range(INPUTS))
    with store.producer() as producer:
        for value in expected:
            producer.send("in", value, key=value)
    done = threading.Event()
    workers = [Worker(tmp_path, number, done) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    reader = store.consumer(auto_offset_reset="earliest")
    reader.assign([TopicPartition("out", 0)])
    moved: list[bytes] = []
    while len(moved) < INPUTS and any(worker.is_alive() for worker in workers):
        moved += [record.value for record in reader.poll(1)]
    done.set()
    for worker in workers:
        worker.join()

    assert [worker.error for worker in workers] == [None] * WORKERS
    assert sorted(store.scan("out").to_table()["value"].to_pylist()) == expected
    if store.admin.list_consumer_groups(states=["Stable", "Reconciling"]):
        store.admin.remove_members("g")
    last = eoslog.connect(tmp_path, fsync=False)
    with last.consumer("g") as consumer:
        consumer.subscribe("in")
        assert consumer.poll(0) == []
        assert len(consumer.assignment()) == 5
        assert consumer.lag() == dict.fromkeys(consumer.assignment(), 0)
    assert last.log.replica.invalid is None
