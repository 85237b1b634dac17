"""A replica: opened cold, and followed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import (
    CorruptRecord,
    EosLogError,
    NotAStore,
    UnsupportedFormat,
)
from eoslog.log.log import Log
from eoslog.log.slots import CHECKPOINTS, decode_line, first_line, slot_path
from tests.unit.log.ledger import Ledger, add
from tests.unit.log.world import World, environment, names, script

TAIL = 64 << 10


def test_a_place_without_slots_is_no_store() -> None:
    with pytest.raises(NotAStore):
        names(World().process())


@given(st.integers(1, 60), st.sampled_from([0, 700, TAIL]), st.integers(2, 20))
def test_a_cold_reader_sees_what_a_follower_sees(appends: int, tail_bytes: int, checkpoint_slots: int) -> None:
    world = World(tail_bytes=tail_bytes)
    log = world.created(checkpoint_slots=checkpoint_slots)
    for number in range(appends):
        log.append(add(f"{'abc'[number % 3]}{number}"))
        cold, full = world.process(), world.process()
        full.replica.slot, full.replica.append_id = 0, decode_line(first_line(world.body(0)), 0).append_id
        full.replica.machine.fold(full.replica.state, 0, [{"type": "add", "name": "created"}])
        full.replica.note_check(full.replica.store.clock.moment())
        full.replica.refresh()
        cold.replica.open()
        assert cold.replica.state == full.replica.state == log.replica.state
        assert cold.replica.slot == full.replica.slot
        assert cold.replica.append_id == full.replica.append_id
        assert cold.replica.checkpoint == full.replica.checkpoint == log.replica.checkpoint
        assert cold.replica.previous_checkpoint == full.replica.previous_checkpoint == log.replica.previous_checkpoint


def test_slots_between_checkpoint_and_tail_are_read() -> None:
    world = World(tail_bytes=600)
    log = world.created(checkpoint_slots=1000)
    environment(log).inline = False
    for number in range(40):
        log.append(add(f"n{number}"))

    assert names(world.process()) == names(log)


def test_a_slot_missing_in_the_middle_is_no_silent_gap() -> None:
    world = World()
    log = world.created()
    for number in range(3):
        log.append(add(f"n{number}"))
    script(log).delete([slot_path(2)])

    with pytest.raises(CorruptRecord, match="slot 2 is missing"):
        names(world.process())


def spoil(body: bytes, how: str) -> bytes:
    record = decode_line(first_line(body), 2)
    spoilt = {
        "no JSON": b"{nonsense\n",
        "empty": b"",
        "truncated": body[: len(body) // 2],
        "an array": b"[1, 2]\n",
        "another slot": record.model_copy(update={"slot": 7}).model_dump_json().encode(),
        "no append id": body.replace(b'"append_id"', b'"taken"'),
        "entries that are no objects": b'{"format":1,"slot":2,"append_id":"'
        + b"0" * 32
        + b'","prev":"","entries":[3]}',
        "not a continuation": record.model_copy(update={"prev": "f" * 32}).model_dump_json().encode(),
    }
    return spoilt[how]


@pytest.mark.scenario(99)
@pytest.mark.parametrize("follower", [True, False])
@pytest.mark.parametrize(
    "how",
    [
        "no JSON",
        "empty",
        "truncated",
        "an array",
        "another slot",
        "no append id",
        "entries that are no objects",
        "not a continuation",
    ],
)
def test_a_damaged_record_is_a_corrupt_record(how: str, follower: bool) -> None:
    world = World()
    log, reader = world.created(), world.process()
    log.append(add("x"))
    if follower:
        names(reader)
    log.append(add("y"))
    world.put(2, spoil(world.body(2), how))

    with pytest.raises(CorruptRecord, match="slot 2"):
        names(reader)


def test_a_record_that_breaks_the_chain_makes_a_follower_open_anew() -> None:
    world = World()
    log, reader = world.created(), world.process()
    log.append(add("x"))
    names(reader)
    log.append(add("y"))
    world.put(2, spoil(world.body(2), "not a continuation"))

    with pytest.raises(CorruptRecord):
        names(reader)

    assert "log.replica.slot_deleted_meanwhile" in environment(reader).points


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"format":1', b'"format":2', 1),
        lambda body: body.replace(b'"type":"add"', b'"type":"future"', 1),
    ],
)
def test_a_record_of_a_newer_version_is_an_unsupported_format(change: Callable[[bytes], bytes]) -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    world.put(1, change(world.body(1)))

    with pytest.raises(UnsupportedFormat):
        names(world.process())


def test_a_forged_slot_far_ahead_costs_a_reader_few_requests() -> None:
    world = World()
    log = world.created()
    far = 5_000_000_000
    world.put(far, world.body(0).replace(b'"slot":0', b'"slot":%d' % far))
    reader = world.process()

    with pytest.raises(CorruptRecord, match="slot 1 is missing, though the log goes on to slot 5000000000"):
        names(reader)

    assert script(reader).requests["GET"] < 2000
    assert names(log) == ["created"]


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    world.put(1, world.body(1).replace(b'"format":1', b'"format":1,"note":"new"', 1))

    assert names(world.process()) == ["created", "x"]


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_in_a_slot_raise_anything_but_an_error_of_ours(noise: bytes, as_tail: bool) -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    world.put(1, world.body(1).rstrip(b"\n") + b"\n" + noise if as_tail else noise)

    try:
        seen = names(world.process())
    except EosLogError:
        return
    assert seen == ["created", "x"]


ENTRY_NOISE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"type": st.just("checkpoint")},
        optional={"reference": ENTRY_NOISE, "upload_ms": ENTRY_NOISE, "shares_with": ENTRY_NOISE},
    )
)
def test_a_malformed_checkpoint_entry_makes_its_record_inert(entry: dict[str, object]) -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    record = decode_line(first_line(world.body(1)), 1)
    reference = {"slot": 0, "path": "__transaction_state/checkpoint/a", "length": 1, "crc32c": 1}
    for value in (entry, {"reference": reference, **entry}):
        line = record.model_copy(update={"entries": ({"type": "add", "name": "y"}, value)})
        world.put(1, line.model_dump_json(exclude_none=True).encode() + b"\n")

        assert names(world.process()) in (["created"], ["created", "y"])


def test_a_record_continues_the_log_only_without_a_gap() -> None:
    world = World()
    log = world.created()
    for number in range(4):
        log.append(add(f"n{number}"))
    append_ids = [decode_line(first_line(world.body(slot)), slot).append_id for slot in range(5)]
    assert all(log._conditional_append.continues(log.replica, slot, append_ids[slot]) for slot in range(5))
    assert not log._conditional_append.continues(log.replica, 2, append_ids[1])

    script(log).delete([slot_path(3)])
    assert not log._conditional_append.continues(log.replica, 1, append_ids[1])
    assert log._conditional_append.continues(log.replica, 4, append_ids[4])


def test_a_store_that_lists_in_no_order_finds_its_newest_slot() -> None:
    world = World()
    log = world.created()
    for number in range(3):
        log.append(add(f"n{number}"))
    reader: Log[Ledger] = world.process()
    script(reader).lists_in_order = False

    assert names(reader) == names(log)
    assert reader.replica.reader.slots_from(2) == [2, 3]


def test_the_newest_slot_is_found_across_groups() -> None:
    world = World()
    log = world.created(checkpoint_slots=5000)
    for number in range(1005):
        log.append(add(f"n{number}"))

    for ordered in (True, False):
        reader = world.process()
        script(reader).lists_in_order = ordered
        reader.replica.open()
        assert reader.replica.slot == 1005
        assert reader.replica.reader.slots_from(998) == list(range(998, 1006))


def far_behind(world: World) -> tuple[Log[Ledger], Log[Ledger]]:
    """A log with two hundred slots and checkpoints, and a process that has seen the first slot only."""
    log, follower = world.created(), world.process()
    names(follower)
    for number in range(200):
        log.append(add(f"n{number}"))
    return log, follower


@pytest.mark.parametrize("tail_bytes", [0, TAIL])
def test_a_follower_that_is_far_behind_comes_to_the_same_state(tail_bytes: int) -> None:
    log, follower = far_behind(World(tail_bytes=tail_bytes))
    opened = follower.replica.opening

    assert names(follower) == names(log)

    assert follower.replica.opening == opened + 1
    assert follower.replica.slot == log.replica.slot
    assert follower.replica.checkpoint == log.replica.checkpoint
    assert follower.append(add("mine")) == log.replica.slot + 1
    assert names(log) == names(follower)


def test_a_follower_that_cannot_open_the_log_goes_on_slot_by_slot() -> None:
    """All checkpoints and the first slot are lost: no process can open the log, but this one has its beginning."""
    world = World(tail_bytes=TAIL)
    log, follower = far_behind(world)
    script(log).delete([slot_path(0), *(info.path for info in log.store.list(CHECKPOINTS))])
    with pytest.raises(CorruptRecord):
        names(world.process())

    assert names(follower) == names(log)

    assert "log.replica.far_behind" in environment(follower).points


def test_a_thread_that_is_further_meanwhile_is_not_led_back() -> None:
    """A thread lists the newest slot and then pauses. Another thread of its process follows the log, and appends."""
    _, follower = far_behind(World(tail_bytes=TAIL))
    seen: list[str] = []

    def meanwhile() -> None:
        script(follower).on_list = lambda: None
        # This thread awaits a request, and so follows slot by slot.
        follower.replica.awaited["a"] = lambda entries, slot: None
        follower.append(add("mine"))
        seen.extend(names(follower))

    script(follower).on_list = meanwhile

    follower.replica.refresh()

    assert seen[-1] == "mine"
    assert follower.replica.state.names == seen


def test_a_replica_that_awaits_a_request_of_its_own_passes_over_no_record() -> None:
    log, follower = far_behind(World(tail_bytes=TAIL))
    follower.replica.awaited["a"] = lambda entries, slot: None
    opened = follower.replica.opening

    assert names(follower) == names(log)

    assert follower.replica.opening == opened


@pytest.mark.parametrize("body", [b"", b"no record\n", b"{}\n"])
def test_a_far_record_that_cannot_be_read_leads_nowhere(body: bytes) -> None:
    world = World(tail_bytes=TAIL)
    log, follower = world.created(), world.process()
    names(follower)
    for number in range(20):
        log.append(add(f"n{number}"))
    for slot in range(60, 90):
        world.put(slot, body)

    assert names(follower) == names(log)
