"""Checkpoints: a cold open from any of them equals the full replay, and a bad one is passed over for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord, InvalidEntry, UnsupportedFormat
from eoslog.log import log as log_module
from eoslog.log.append_queue import OwnCheckpoint, Proposal
from eoslog.log.checkpoint import INLINE_PART_BYTES, CheckpointRoot, read_root, write_checkpoint
from eoslog.log.log import Log
from eoslog.log.slots import CheckpointEntry, CheckpointReference, decode_line, first_line, slot_path
from tests.unit.log.ledger import Ledger, add, move_horizon
from tests.unit.log.world import World, environment, names, script

LARGE = "x" * (INLINE_PART_BYTES + 1)


def spoil(log: Log[Ledger], reference: CheckpointReference | None, how: str) -> None:
    assert reference is not None
    body = script(log).get(reference.path).body
    if how == "missing":
        script(log).delete([reference.path])
    else:
        script(log).put(reference.path, body[:-1] if how == "truncated" else body.replace(b"0", b"1"))


@pytest.mark.scenario(34, 63)
@pytest.mark.parametrize("how", ["missing", "truncated", "altered"])
def test_a_bad_checkpoint_is_passed_over_for_the_one_before_it(how: str) -> None:
    world = World()
    log = world.created()
    for number in range(6):
        log.append(add(f"n{number}"))
        if number % 2:
            log.checkpoint()
    spoil(log, log.replica.checkpoint, how)
    reader = world.process()

    assert names(reader) == names(log)
    assert reader.replica.checkpoint == log.replica.checkpoint
    assert reader.replica.previous_checkpoint == log.replica.previous_checkpoint
    assert reader.append(add("y")) == 10


def test_with_both_checkpoints_bad_the_whole_log_is_folded() -> None:
    world = World()
    log = world.created()
    for number in range(6):
        log.append(add(f"n{number}"))
        log.checkpoint()
    spoil(log, log.replica.checkpoint, "missing")
    spoil(log, log.replica.previous_checkpoint, "altered")

    assert names(world.process()) == names(log)


def deep_history(world: World) -> tuple[Log[Ledger], list[CheckpointReference]]:
    """A log with several checkpoints, of which the slots below the second one have been deleted."""
    log = world.created()
    written = []
    for number in range(5):
        log.append(add(f"n{number}"))
        written.append(log.checkpoint())
    script(log).delete([slot_path(slot) for slot in range(written[1].slot)])
    return log, written


def test_with_both_checkpoints_bad_an_earlier_one_with_slots_is_taken() -> None:
    world = World()
    log, written = deep_history(world)
    for reference in written[2:]:
        spoil(log, reference, "missing")
    reader = world.process()

    assert names(reader) == names(log)
    assert reader.replica.checkpoint == log.replica.checkpoint
    assert reader.append(add("y")) == log.read(lambda state, slot: slot)


def test_with_no_readable_checkpoint_and_no_slots_the_error_names_one() -> None:
    world = World()
    log, written = deep_history(world)
    for reference in written:
        spoil(log, reference, "truncated")

    with pytest.raises(CorruptRecord, match=written[-2].path):
        world.process().read(lambda state, slot: slot)


def test_a_part_that_is_missing_makes_its_checkpoint_bad() -> None:
    world = World()
    log = world.created()
    log.append(add(LARGE))
    log.checkpoint()
    assert log.replica.checkpoint is not None
    part = next(part.path for part in read_root(log.store, log.replica.checkpoint).parts if part.path is not None)
    script(log).delete([part])

    assert names(world.process()) == names(log)


def test_a_checkpoint_of_a_newer_version_is_an_unsupported_format() -> None:
    world = World()
    log = world.created()
    log.checkpoint()
    assert log.replica.checkpoint is not None
    body = script(log).get(log.replica.checkpoint.path).body.replace(b'"format":1', b'"format":2')
    script(log).put(log.replica.checkpoint.path, body)
    forged = log.replica.checkpoint.model_copy(update={"length": len(body), "crc32c": google_crc32c.value(body)})
    with pytest.raises(UnsupportedFormat):
        read_root(log.store, forged)


def test_a_large_unchanged_part_is_shared_with_the_checkpoint_before() -> None:
    log = World().created()
    log.append(add(LARGE))
    log.checkpoint()
    puts = script(log).requests["PUT"]
    log.append(add("a"))
    log.checkpoint()

    assert script(log).requests["PUT"] - puts == 3  # the append, the root, the entry


def test_a_part_that_did_not_change_is_not_encoded_again() -> None:
    log = World().created()
    log.append(add("b"))
    log.checkpoint()
    log.append(add("a"))
    encoded: list[str] = []
    parts = log.machine.parts

    def watched(state: Ledger, slot: int) -> object:
        for part in parts(state, slot):
            yield type(part)(part.name, part.changed_slot, lambda part=part: encoded.append(part.name) or part.encode())  # type: ignore[call-arg]

    log.machine.parts = watched  # type: ignore[method-assign, assignment]
    log.checkpoint()

    assert encoded == ["horizon", "a"]


def test_a_checkpoint_that_shares_parts_with_one_that_was_replaced_is_refused() -> None:
    world = World()
    log = world.created()
    log.append(add(LARGE))
    for number in range(3):
        log.append(add(f"n{number}"))
        log.checkpoint()
    state = log.machine.frozen_copy(log.replica.state)
    log.append(add("z"))
    reference, _ = write_checkpoint(
        log.store,
        environment(log),
        log.machine,
        state=state,
        slot=log.replica.slot,
        append_id=log.replica.append_id,
        shared=log.replica.checkpoint_root,
    )
    entry = CheckpointEntry(reference=reference, upload_ms=world.now_ms, shares_with=1)
    with pytest.raises(InvalidEntry, match="replaced"):
        log.replica.check_checkpoint_entry(entry)


def test_a_checkpoint_overtaken_by_a_later_one_leaves_that_in_its_place() -> None:
    world = World()
    slow, log = world.created(), world.process()
    names(log)
    script(slow).before.append(lambda: (log.append(add("a")), log.checkpoint()))

    assert slow.checkpoint() == log.replica.checkpoint
    assert world.process().append(add("b")) == log.replica.slot + 1


def test_a_checkpoint_written_before_the_horizon_is_refused_and_written_again() -> None:
    world = World()
    slow, log = world.created(), world.process()

    def the_horizon_moves() -> None:
        log.append(move_horizon(world.now_ms))
        world.now_ms += 1

    script(slow).before.append(the_horizon_moves)
    world.now_ms += 1

    reference = slow.checkpoint()

    assert names(log) == names(slow)
    assert reference.slot == log.replica.checkpoint.slot == slow.replica.slot - 1


def test_a_cold_reader_passes_over_older_checkpoints_that_landed_after_its_own() -> None:
    """Three processes write down the state of slots 1, 2 and 3, and all their entries land after slot 3."""
    world = World()
    logs = [world.created(), world.process(), world.process()]
    started = []
    for number, log in enumerate(logs):
        logs[0].append(add(f"n{number}"))
        names(log)
        started.append((log, log.machine.frozen_copy(log.replica.state), log.replica.slot, log.replica.append_id, None))
    for number, step in enumerate(started):
        finish(world, *step)
        step[0].append(add(f"after{number}"))

    cold = world.process()

    assert names(cold) == names(logs[0]) == ["created", "n0", "n1", "n2", "after0", "after1", "after2"]
    assert cold.replica.invalid is None
    assert cold.replica.checkpoint == logs[2].replica.checkpoint


@given(st.data())
def test_every_reader_agrees_however_checkpoints_of_several_processes_overlap(data: st.DataObject) -> None:
    world = World(tail_bytes=data.draw(st.sampled_from([0, 500])))
    logs = [world.created(), world.process(), world.process()]
    started: list[tuple[Log[Ledger], Ledger, int, str, CheckpointRoot | None]] = []
    for number in range(data.draw(st.integers(5, 25))):
        log = logs[data.draw(st.integers(0, 2))]
        step = data.draw(st.sampled_from(["append", "begin", "finish", "checkpoint", "lose root"]))
        if step == "append":
            log.append(add(f"{'ab'[number % 2]}{number}"))
        elif step == "begin":
            names(log)
            replica = log.replica
            started.append(
                (log, log.machine.frozen_copy(replica.state), replica.slot, replica.append_id, replica.checkpoint_root)
            )
        elif step == "finish" and started:
            finish(world, *started.pop(data.draw(st.integers(0, len(started) - 1))))
        elif step == "checkpoint":
            log.checkpoint()
        elif step == "lose root":
            log.replica.checkpoint_root = None

    for log in logs:
        assert log.replica.invalid is None
    expected = names(logs[0])
    cold = world.process()
    assert names(cold) == expected == names(logs[1]) == names(logs[2])
    assert cold.replica.invalid is None
    assert {log.replica.checkpoint for log in (*logs, cold)} == {cold.replica.checkpoint}
    assert {log.replica.previous_checkpoint for log in (*logs, cold)} == {cold.replica.previous_checkpoint}


def finish(
    world: World, log: Log[Ledger], state: Ledger, slot: int, append_id: str, shared: CheckpointRoot | None
) -> None:
    reference, root = write_checkpoint(
        log.store, environment(log), log.machine, state=state, slot=slot, append_id=append_id, shared=shared
    )
    proposal = Proposal(OwnCheckpoint(CheckpointEntry(reference=reference, upload_ms=world.now_ms), root))
    try:
        log.appender.append(proposal)
    except InvalidEntry:
        return


def test_a_failing_checkpoint_does_not_fail_the_append_before_it() -> None:
    world = World()
    log = world.created(checkpoint_slots=2)

    def fails(path: str, body: bytes) -> None:
        raise OSError("disk on fire")

    script(log).put = fails  # type: ignore[method-assign]
    for number in range(12):
        log.append(add(f"n{number}"))

    assert len(names(world.process())) == 13


def attempts_of(log: Log[Ledger], appends: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Append, and return the slots since the last checkpoint at which the process tries to write one, in vain."""
    tried: list[int] = []
    monkeypatch.setattr(log._checkpointing, "_write", lambda: tried.append(log.replica.slots_since_checkpoint()))
    for number in range(appends):
        log.append(add(f"n{number}"))
    return tried


def test_a_checkpoint_that_failed_is_tried_again_some_records_later(monkeypatch: pytest.MonkeyPatch) -> None:
    log = World().created(checkpoint_slots=64)

    assert attempts_of(log, 100, monkeypatch) == [64, 72, 80, 88, 96]


def test_a_process_that_put_no_record_leaves_the_checkpoint_to_the_one_that_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = World().created(checkpoint_slots=2)
    append = log.appender.append

    def by_another(proposal: Proposal) -> Any:
        answer = append(proposal)
        proposal.has_landed = True
        return answer

    monkeypatch.setattr(log.appender, "append", by_another)

    assert attempts_of(log, 9, monkeypatch) == [8, 9, 10]  # It is overdue: the other process may be dead.


def test_a_state_that_cannot_be_made_smaller_is_checkpointed_as_it_is() -> None:
    log = World().created(checkpoint_slots=4)

    def fail() -> None:
        raise CorruptRecord("an index file is damaged")

    log.before_checkpoint = fail
    for number in range(8):
        log.append(add(f"x{number}"))

    assert log.replica.checkpoint is not None


def test_an_append_succeeds_though_no_thread_can_be_started_for_its_checkpoint() -> None:
    log = World().created(checkpoint_slots=2)

    def fails(work: object) -> None:
        raise RuntimeError("can't start new thread")

    environment(log).background = fails  # type: ignore[method-assign]
    for number in range(12):
        log.append(add(f"n{number}"))

    assert log.replica.checkpoint is not None  # once overdue, it is written in the foreground


class _EndsWhileItIsAskedFor(threading.Event):
    """The checkpoint that runs ends between the question whether it does and what follows from the answer."""

    def is_set(self) -> bool:
        was_set = super().is_set()
        self.set()
        return was_set


def test_a_checkpoint_that_ends_during_an_append_allows_the_next_one() -> None:
    log = World().created(checkpoint_slots=2)
    environment(log).inline = False
    log._checkpointing._idle = _EndsWhileItIsAskedFor()

    log.append(add("x"))

    assert log._checkpointing._idle.wait(0)


def test_appends_of_a_checkpoint_itself_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = World().created(checkpoint_slots=2)
    held: list[Callable[[], None]] = []
    environment(log).background = held.append  # type: ignore[method-assign]
    monkeypatch.setattr(log_module, "_LONGEST_WAIT_S", 0.01)
    for number in range(12):
        log.append(add(f"n{number}"))
    log.before_checkpoint = lambda: log.append(add("smaller"))
    waited: list[float] = []
    monkeypatch.setattr(log._checkpointing._idle, "wait", waited.append)

    environment(log).uninterrupted(held[0])

    assert waited == []
    assert log.replica.checkpoint is not None
    assert names(log)[-1] == "smaller"


def test_a_checkpoint_interrupted_before_it_began_is_not_waited_for() -> None:
    log = World().created(checkpoint_slots=2)
    background = environment(log).background

    def interrupted(work: object) -> None:
        raise KeyboardInterrupt

    environment(log).background = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        log.append(add("a"))
    environment(log).background = background  # type: ignore[method-assign]

    log.append(add("b"))

    assert log.replica.checkpoint is not None


def test_the_record_of_a_checkpoint_names_the_one_before_it() -> None:
    world = World()
    log = world.created()
    log.checkpoint()
    log.append(add("a"))

    record = decode_line(first_line(world.body(2)), 2)

    assert record.checkpoint == log.replica.checkpoint
