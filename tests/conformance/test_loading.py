"""What a process finds that opens or follows a log: the same as everybody else, or a clear error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import (
    CorruptRecord,
    StoreUnavailable,
    UnsupportedFormat,
)
from eoslog.log.slots import SlotRecord, decode_line, encode_line, first_line, slot_path
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.store import Store
from tests.unit.state.answers import reloaded, replayed
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


@pytest.mark.scenario(99)
@pytest.mark.parametrize("body", [b"", b"\n", b"not json\n", b'{"format": 1}\n'])
def test_a_damaged_record_ends_the_load_with_an_error(store: Store, world: World, body: bytes) -> None:
    write(store, "t", "commit")
    slot = store.read(lambda state, slot: slot)
    store.object_store.put(slot_path(slot), body)

    with pytest.raises(CorruptRecord):
        world.process().read(lambda state, slot: None)


def _put_record(store: Store, *entries: dict[str, object]) -> None:
    """Append without asking the rules."""
    store.read(lambda state, slot: None)
    replica = store.log.replica
    record = SlotRecord(slot=replica.slot + 1, append_id="f" * 32, prev=replica.append_id, entries=entries)
    store.object_store.put_if_absent(slot_path(replica.slot + 1), encode_line(record))


@pytest.mark.scenario(99)
def test_an_entry_of_a_type_to_come_is_never_guessed_at(store: Store, world: World) -> None:
    """Kafka skips types that it does not know; here an unknown entry may decide a row, so the store is refused."""
    _put_record(store, {"type": "of the future"})

    with pytest.raises(UnsupportedFormat, match="of the future"):
        world.process().read(lambda state, slot: None)


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
@given(data=st.data())
def test_a_follower_a_replay_and_a_reload_have_the_same_index_of_aborted_transactions(data: st.DataObject) -> None:
    history = History()
    identities: dict[str, ProducerIdentity] = {name: history.init(name) for name in ("a", "b", "c")}
    sequences = dict.fromkeys(identities, 0)
    for _ in range(data.draw(st.integers(1, 25))):
        name = data.draw(st.sampled_from(sorted(identities)))
        step = data.draw(st.sampled_from(["send", "commit", "abort", "seal"]))
        open_now = history.transaction(name).partitions
        if step == "send":
            history.send(identities[name], sequences[name], transactional_id=name)
            sequences[name] += 1
        elif step == "seal" and history.partition().active:
            end = history.partition().active[0].end_offset
            if end <= history.partition().last_stable_offset:
                history.seal(end)
        elif step in ("commit", "abort") and open_now:
            identities[name] = history.end(identities[name], step, name)
            sequences[name] = 0

    state = history.state
    for other in (history.follower, replayed(history), reloaded(history)):
        assert other == state


@pytest.mark.scenario(45)
def test_a_slot_that_is_folded_twice_is_refused_the_second_time(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.abort(identity)

    again = replayed(history)

    assert fold(again, history.slot, history.records[-1]) is not None
    assert again == history.state
