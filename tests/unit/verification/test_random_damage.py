"""A verification finds each object that the log names and that is changed, cut or lost, and names its path."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from eoslog import Store
from eoslog.errors import UnsupportedFormat
from eoslog.log.slots import slot_of, slot_path
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.depth import examples
from tests.unit.verification.histories import FILES_ARE_OBJECTS, faults, newest, references, small_objects


@cache
def needed_slots() -> range:
    """Those that the log cannot do without. That the very newest is gone leaves no trace."""
    store = Store(copy(), Environment())
    return range(references(store)[1].slot, newest(store))


def copy() -> MemoryStore:
    kept = MemoryStore(Environment())
    for path, body in small_objects(FILES_ARE_OBJECTS).items():
        kept.put(path, body)
    return kept


@examples(8)
@given(st.data())
def test_any_damage_to_an_object_with_a_checksum_is_found(data: st.DataObject) -> None:
    # Slots have no checksum: they are cut and lost below.
    paths = sorted(path for path in small_objects(FILES_ARE_OBJECTS) if slot_of(path) is None and path != "eoslog.json")
    path = data.draw(st.sampled_from(paths))
    body = small_objects(FILES_ARE_OBJECTS)[path]
    how = data.draw(st.sampled_from(("flipped", "cut", "lost", "longer")))
    kept = copy()
    if how == "lost":
        kept.delete([path])
    elif how == "cut":
        kept.put(path, body[: data.draw(st.integers(0, len(body) - 1))])
    elif how == "longer":
        kept.put(path, body + data.draw(st.binary(min_size=1, max_size=9)))
    else:
        at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
        kept.put(path, body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :])

    found = faults(Store(kept, Environment()))

    assert [each.path for each in found] == [path]
    assert found[0].kind.endswith("-missing" if how == "lost" else "-damaged")


@examples(5)
@given(st.data())
def test_a_slot_that_is_cut_or_lost_is_found(data: st.DataObject) -> None:
    path = slot_path(data.draw(st.sampled_from(needed_slots())))
    body = small_objects(FILES_ARE_OBJECTS)[path]
    cut_to = data.draw(st.none() | st.integers(0, len(body) - 1))
    kept = copy()
    if cut_to is None:
        kept.delete([path])
    else:
        kept.put(path, body[:cut_to])

    found = faults(Store(kept, Environment()))

    assert [(each.kind, each.path) for each in found] == [("slot-missing" if cut_to is None else "slot-damaged", path)]


@examples(5)
@given(st.data())
def test_a_flipped_bit_in_a_slot_is_found_unless_nothing_changes(
    data: st.DataObject,
) -> None:
    """A slot below a checkpoint is found by it: what it changes is in the state that both lead to."""
    path = slot_path(data.draw(st.integers(0, references(Store(copy(), Environment()))[0].slot)))
    body = small_objects(FILES_ARE_OBJECTS)[path]
    at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
    kept = copy()
    kept.put(path, body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :])

    try:
        found = faults(Store(kept, Environment()))
    except UnsupportedFormat:
        # The type of an entry or a number of the format has changed. A newer version may write them.
        return

    store = Store(kept, Environment())
    assert found or store.read(lambda state, slot: state) == Store(copy(), Environment()).read(
        lambda state, slot: state
    )
