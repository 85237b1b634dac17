"""What a process finds that opens or follows a log: the same as everybody else, or a clear error."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    CorruptRecord,
    StoreUnavailable,
)
from eoslog.log.slots import SlotRecord, decode_line, encode_line, first_line, slot_path
from eoslog.store import Store
from tests.unit.state.answers import replayed
from tests.unit.state.histories import History, fold
from tests.unit.support.partitions import epoch_of, read, state_of, write
from tests.unit.support.world import World


@pytest.mark.scenario(88)
def test_the_last_state_of_an_id_counts_for_whoever_loads_it(store: Store, world: World) -> None:
    write(store, "t", "commit", "abort", transactional_id="one")
    write(store, "t", "open", transactional_id="two")
    write(world.process(), "t", "commit", transactional_id="one")
    store.log.checkpoint()
    write(store, "t", "abort", transactional_id="two")

    for process in (store, world.process()):
        assert {name: (state_of(process, name), epoch_of(process, name)) for name in ("one", "two")} == {
            "one": ("COMPLETE_COMMIT", 4),
            "two": ("COMPLETE_ABORT", 3),
        }


@pytest.mark.scenario(88)
def test_a_process_that_takes_an_id_back_continues_its_last_epoch(store: Store, world: World) -> None:
    first = write(store, "t", "commit")
    other = write(world.process(), "t", "commit", "commit")
    assert other.producer_epoch > first.producer_epoch

    back = write(store, "t", "commit")

    assert (back.producer_id, back.producer_epoch) == (first.producer_id, other.producer_epoch + 2)


@pytest.mark.scenario(89)
@pytest.mark.parametrize("answers", range(1, 5))
def test_nothing_is_served_from_a_load_that_was_cut_short(store: Store, world: World, answers: int) -> None:
    write(store, "t", "commit")
    store.log.checkpoint()
    write(store, "t", "abort", "commit", transactional_id="other")
    cold = world.process()
    cold.describe()
    get, left = cold.object_store.get, answers - 1

    def get_some(path: str) -> object:
        nonlocal left
        if left == 0:
            raise StoreUnavailable("no answer")
        left -= 1
        return get(path)

    cold.object_store.get = get_some  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable):
        cold.read(lambda state, slot: state)
    assert cold.log.replica.is_open is False
    cold.object_store.get = get  # type: ignore[method-assign]

    assert cold.read(lambda state, slot: state) == store.read(lambda state, slot: state)


def _put_record(store: Store, *entries: dict[str, object]) -> None:
    """Append without asking the rules."""
    store.read(lambda state, slot: None)
    replica = store.log.replica
    record = SlotRecord(slot=replica.slot + 1, append_id="f" * 32, prev=replica.append_id, entries=entries)
    store.object_store.put_if_absent(slot_path(replica.slot + 1), encode_line(record))


@pytest.mark.scenario(99)
def test_a_record_without_entries_is_passed_over(store: Store, world: World) -> None:
    write(store, "t", "commit")
    _put_record(store)

    cold = world.process()

    assert read(cold, "t") == [(0, b"0")]
    write(cold, "t", "commit", transactional_id="other")


@pytest.mark.scenario(64)
def test_a_log_that_holds_an_end_too_many_is_read_and_not_continued(store: Store, world: World) -> None:
    """Kafka loads a marker of an older coordinator; here the record is inert for all readers, and stops the writers."""
    write(store, "t", "commit")
    state, slot = store.read(lambda state, slot: (state.frozen_copy(), slot))
    (end,) = decode_line(first_line(store.object_store.get(slot_path(slot)).body), slot).entries
    _put_record(world.process(), end)

    cold = world.process()

    assert cold.read(lambda state, slot: state) == state
    assert read(cold, "t") == [(0, b"0")]
    with pytest.raises(CorruptRecord):
        write(cold, "t", "commit", transactional_id="other")


@pytest.mark.scenario(45)
def test_a_slot_that_is_folded_twice_is_refused_the_second_time(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.abort(identity)

    again = replayed(history)

    assert fold(again, history.slot, history.records[-1]) is not None
    assert again == history.state
