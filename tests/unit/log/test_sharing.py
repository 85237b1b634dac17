"""Shared commits: under contention, processes publish requests, and one process appends the requests of all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eoslog.errors import CommitStateUnknown, OutcomeLost, StoreAccessDenied, StoreUnavailable
from eoslog.log import appender
from eoslog.log import shared_commits as sharing
from eoslog.log.log import Log
from eoslog.log.slots import (
    PENDING,
    IncludedRequest,
    SlotRecord,
    decode_line,
    encode_line,
    first_line,
    pending_name,
    pending_path,
    slot_path,
)
from tests.unit.log.ledger import AlreadyThere, Ledger, SharedAdd, add, add_once, shared_add
from tests.unit.log.queueing import await_queued, held
from tests.unit.log.world import Crashed, Fault, World, environment, names, script
from tests.unit.support.recorded import Recorded, attributes

NAME = "ab" * 16
PUBLISHED = "log.shared.published"


def share(log: Log[Ledger], name: str, **options: Any) -> int:
    """Add a name by a request that other processes may append. Return its slot."""
    return log.append(shared_add(name), **options)


def losing(log: Log[Ledger], other: Log[Ledger], *others_names: str) -> None:
    """Let ``other`` append a name before each of the log's next puts, so that the log loses these races."""
    log.read(lambda state, slot: None)
    script(log).before.extend(lambda name=name: other.append(add(name)) for name in others_names)  # type: ignore[misc]


def contended(world: World) -> Log[Ledger]:
    """Return a process that has just put a record with requests of two processes."""
    log = world.created()
    publish(world, log.replica.slot, shared_add("contended").shared_entries, name="01" * 16)
    losing(log, world.process(), "first", "second")
    share(log, "third")
    assert log.replica.is_contended
    return log


def publish(world: World, slot: int, *requests: Sequence[Any], name: str = NAME) -> str:
    """Publish requests like a process that dies right afterwards. Return the path."""
    path = pending_path(slot, name)
    publication = sharing.Publication(requests=tuple(sharing.PendingRequest(entries=tuple(each)) for each in requests))
    script(world.process()).put(path, publication.model_dump_json().encode())
    return path


def record(world: World, slot: int) -> SlotRecord:
    return decode_line(first_line(world.body(slot)), slot)


def request_names(world: World, slot: int) -> list[list[str]]:
    """The names that each published request in a record added."""
    found = record(world, slot)
    return [
        [entry["name"] for entry in found.entries[each.first_entry : each.first_entry + each.entry_count]]
        for each in found.requests or ()
    ]


def published(world: World) -> list[str]:
    return [info.path for info in script(world.process()).list(PENDING)]


def at(log: Log[Ledger], point: str, then: Callable[[], object]) -> None:
    """Call ``then`` when the process next reaches a crash point."""
    came: list[str] = []

    def reached(crash_point: str) -> None:
        environment(log).points.append(crash_point)
        came.append(crash_point)
        if crash_point == point and came.count(point) == 1:
            then()

    environment(log).reached = reached  # type: ignore[method-assign]


def die(log: Log[Ledger]) -> None:
    """From here on no request of the process has any effect."""
    script(log).requests_left = 0
    raise Crashed


def while_it_waits(log: Log[Ledger], then: Callable[[], object]) -> None:
    """Call ``then`` instead of each sleep from here on."""

    def sleep_ms(duration_ms: float) -> None:
        then()

    environment(log).sleep_ms = sleep_ms  # type: ignore[method-assign]


class Stopped:
    """A process that is paused right after it has published a request, until ``go_on`` is called."""

    def __init__(self, log: Log[Ledger], other: Log[Ledger], name: str) -> None:
        self.told: list[Any] = []
        self._may_go_on = threading.Event()
        has_published = threading.Event()

        def stop() -> None:
            has_published.set()
            self._may_go_on.wait()

        at(log, PUBLISHED, stop)
        losing(log, other, f"{name}-lost-1", f"{name}-lost-2")
        self._thread = threading.Thread(target=self._run, args=(log, name))
        self._thread.start()
        has_published.wait()

    def _run(self, log: Log[Ledger], name: str) -> None:
        try:
            self.told.append(share(log, name))
        except BaseException as error:
            self.told.append(error)

    def go_on(self) -> Any:
        """Let the process end its call. Return the call's answer or error."""
        self._may_go_on.set()
        self._thread.join()
        return self.told[0]


# When requests are published


def test_a_writer_without_competition_publishes_nothing() -> None:
    world = World()
    log = world.created()
    before = script(log).requests.copy()

    assert share(log, "x") == 1
    assert script(log).requests - before == {"PUT": 1}
    assert record(world, 1).requests is None


def test_a_writer_publishes_after_two_lost_races() -> None:
    world = World()
    log = world.process()
    losing(log, world.created(), "a", "b")
    before = script(log).requests["PUT"]

    assert share(log, "x") == 3
    assert environment(log).points.count(PUBLISHED) == 1
    # Two lost races, the publication, and the record.
    assert script(log).requests["PUT"] - before == 4
    assert request_names(world, 3) == [["x"]]
    assert published(world) == []


def test_a_writer_that_lost_one_race_goes_on_alone() -> None:
    world = World()
    log = world.process()
    losing(log, world.created(), "a")

    assert share(log, "x") == 2
    assert PUBLISHED not in environment(log).points


def test_a_writer_publishes_at_once_where_the_newest_record_shows_competition() -> None:
    world = World()
    contended(world)
    log = world.process()

    slot = share(log, "x")

    assert environment(log).points.count(PUBLISHED) == 1
    assert record(world, slot).contended is None
    share(log, "y")
    assert environment(log).points.count(PUBLISHED) == 1


def test_what_no_other_process_may_append_is_not_published() -> None:
    world = World()
    contended(world)
    log = world.process()

    log.append(add("mine"))

    assert PUBLISHED not in environment(log).points
    assert names(log)[-1] == "mine"


@pytest.mark.parametrize("limit", ["_LARGEST_REQUEST_BYTES", "_LARGEST_REQUESTS_BYTES"])
def test_a_request_too_large_to_be_shared_is_appended_alone(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    contended(world)
    log = world.process()
    monkeypatch.setattr(sharing, limit, 10)

    share(log, "x")

    assert PUBLISHED not in environment(log).points
    assert names(log)[-1] == "x"


def test_a_store_that_refuses_publications_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    contended(world)
    log = world.process()

    def denied(path: str, body: bytes) -> None:
        raise StoreAccessDenied("no permission")

    monkeypatch.setattr(script(log), "put", denied)

    share(log, "x")
    losing(log, world.process(), "a", "b")
    share(log, "y")

    assert environment(log).points.count("log.shared.before_publish") == 1


# One record for several processes


def test_one_record_holds_several_processes_requests_and_each_learns_its_slot() -> None:
    world = World()
    other = world.created()
    first, second = (Stopped(world.process(), other, name) for name in ("x", "y"))
    log = world.process()
    losing(log, other, "a", "b")

    slot = share(log, "z")

    assert request_names(world, slot) == [["x"], ["y"], ["z"]]
    assert record(world, slot).contended is True
    assert first.go_on() == second.go_on() == slot
    assert "log.shared.appended_for_others" in environment(log).points
    assert names(other)[-3:] == ["x", "y", "z"]
    assert published(world) == []


def test_a_writer_waits_for_the_process_that_published_before_it() -> None:
    world = World()
    other = world.created()
    earlier = Stopped(world.process(), other, "x")
    log = world.process()
    losing(log, other, "a", "b")
    told: list[int] = []
    at(log, PUBLISHED, lambda: while_it_waits(log, lambda: told or told.append(earlier.go_on())))

    slot = share(log, "z")

    assert told == [slot]
    assert request_names(world, slot) == [["z"], ["x"]]
    assert environment(log).points[-1] == "log.shared.appended_by_another"
    assert published(world) == []


def test_the_span_of_a_request_that_another_process_has_appended_says_so(recorded: Recorded) -> None:
    world = World()
    other = world.created()
    earlier = Stopped(world.process(), other, "x")
    log = world.process()
    losing(log, other, "a", "b")
    told: list[int] = []
    at(log, PUBLISHED, lambda: while_it_waits(log, lambda: told or told.append(earlier.go_on())))

    slot = share(log, "z")

    named = "eoslog.slot", "eoslog.append.conflicts", "eoslog.append.by_another_process"
    by_another, in_own_record = (
        tuple(attributes(span).get(name) for name in named)
        for span in reversed(recorded.spans)
        if attributes(span).get("eoslog.slot") == slot
    )
    assert by_another == (slot, 2, True)
    assert in_own_record == (slot, 2, False)


def test_the_threads_of_a_process_learn_their_outcomes_one_by_one() -> None:
    world = World()
    log = contended(world)
    told: dict[str, int] = {}
    threads = [threading.Thread(target=lambda name=name: told.update({name: share(log, name)})) for name in "xyz"]  # type: ignore[misc]
    with held(log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(log, count)
    for thread in threads:
        thread.join()

    assert set(told.values()) == {log.replica.slot}
    assert request_names(world, log.replica.slot) == [["x"], ["y"], ["z"]]


def test_a_request_already_done_is_left_out_and_its_publication_deleted() -> None:
    world = World()
    log = contended(world)
    publish(world, log.replica.slot, [{"type": "add", "name": "third"}], [{"type": "add", "name": "new"}])

    slot = share(log, "x")

    assert request_names(world, slot) == [["new"], ["x"]]
    assert published(world) == []


def test_publications_are_kept_as_long_as_no_record_was_put_for_them() -> None:
    world = World()
    log = contended(world)
    path = publish(world, log.replica.slot, [{"type": "add", "name": "x"}])

    with pytest.raises(AlreadyThere):
        share(log, "third")

    assert published(world) == [path]


def test_requests_that_make_a_record_too_large_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = contended(world)
    for number in range(4):
        publish(world, log.replica.slot, [{"type": "add", "name": f"n{number}{'x' * 300}"}], name=f"{number:032x}")
    monkeypatch.setattr(appender, "_LARGEST_SHARED_RECORD_BYTES", 1_500)

    first, second = share(log, "first of mine"), share(log, "second of mine")

    assert len(request_names(world, first)) == 3
    assert len(request_names(world, second)) == 3
    assert published(world) == []


# Processes that die, and answers that are lost


@pytest.mark.parametrize(
    "point", ["log.shared.before_publish", "log.shared.published", "log.shared.appended_for_others"]
)
def test_a_process_that_dies_leaves_its_request_to_the_next_one(point: str) -> None:
    world = World()
    dying = contended(world)
    publish(world, dying.replica.slot, [{"type": "add", "name": "another's"}])
    at(dying, point, lambda: die(dying))
    with pytest.raises(Crashed):
        share(dying, "mine")
    was_published = point != "log.shared.before_publish"

    log = world.process()
    share(log, "x")
    share(log, "y")

    expected = ["another's", "x", "y"] + ["mine"] * was_published
    assert sorted(names(log)[5:]) == sorted(expected)
    with contextlib.suppress(AlreadyThere):
        world.process().append(add("mine"))
    assert names(log).count("mine") == 1


def test_a_request_appended_by_another_stays_done_when_its_process_dies() -> None:
    world = World()
    other = world.created()
    earlier = Stopped(world.process(), other, "x")
    log = world.process()
    losing(log, other, "a", "b")
    told: list[int] = []

    def reached(point: str) -> None:
        if point == PUBLISHED:
            while_it_waits(log, lambda: told or told.append(earlier.go_on()))
        if point == "log.shared.appended_by_another":
            die(log)

    environment(log).reached = reached  # type: ignore[method-assign]
    with pytest.raises(Crashed):
        share(log, "z")

    assert names(other)[-2:] == ["z", "x"]


def test_a_writer_takes_over_from_a_process_that_died_before_it() -> None:
    world = World()
    log = contended(world)
    publish(world, 0, [{"type": "add", "name": "of the dead"}])
    before_ms = world.now_ms

    slot = share(log, "x")

    assert request_names(world, slot) == [["of the dead"], ["x"]]
    assert world.now_ms - before_ms < 1_000


def test_other_writers_do_not_prolong_the_wait_for_the_dead() -> None:
    """Each of their records shows that the log goes on, and none has published requests: an earlier version's."""
    world = World()
    other = contended(world)
    other.appender._shared._is_allowed = False
    log = world.process()
    names(log)
    publish(world, 0, [{"type": "add", "name": "of the dead"}])
    count = 0

    def others_append(duration_ms: float) -> None:
        nonlocal count
        world.now_ms += 10
        if count < 1_000:
            count += 1
            other.append(add(f"n{count}"))

    environment(log).sleep_ms = others_append  # type: ignore[method-assign]

    slot = share(log, "x")

    assert count < 20
    assert request_names(world, slot) == [["of the dead"], ["x"]]


def test_a_publication_that_was_not_answered_is_appended_by_its_own_process() -> None:
    world = World()
    log = contended(world)
    put = script(log).put
    late: list[Callable[[], None]] = []

    def unanswered(path: str, body: bytes) -> None:
        late.append(lambda: put(path, body))
        raise StoreUnavailable("no answer")

    script(log).put = unanswered  # type: ignore[method-assign]
    slot = share(log, "x")
    script(log).put = put  # type: ignore[method-assign]
    late[0]()

    assert names(log)[-1] == "x"
    other = world.process()
    losing(other, log, "a", "b")
    assert share(other, "y") == slot + 3
    assert names(other).count("x") == 1


def test_publications_that_cannot_be_listed_hinder_nobody() -> None:
    world = World()
    log = contended(world)

    def unanswered() -> None:
        raise StoreUnavailable("no answer")

    script(log).on_list = unanswered

    share(log, "x")

    assert names(log)[-1] == "x"


def test_publications_older_than_ten_minutes_are_deleted_and_appended_by_nobody() -> None:
    world = World()
    log = contended(world)
    publish(world, log.replica.slot, [{"type": "add", "name": "old"}])
    world.now_ms += 10 * 60 * 1000 + 1_000

    share(log, "x")

    assert "old" not in names(log)
    assert published(world) == []


# Deadlines


def test_a_writer_whose_time_is_up_learns_its_request_may_land() -> None:
    world = World()
    log = contended(world)
    publish(world, 0, [{"type": "add", "name": "of the dead"}])

    with pytest.raises(CommitStateUnknown) as caught:
        share(log, "x", timeout_ms=1)

    assert caught.value.is_published
    assert log.replica.awaited == {}
    assert log.appender.find_request(caught.value.slot, caught.value.append_id) is None


def test_a_writer_does_not_wait_longer_for_another_process_than_its_caller() -> None:
    world = World()
    log = contended(world)
    put = script(log).put

    def slow(path: str, body: bytes) -> None:
        world.now_ms += 60_000
        put(path, body)

    script(log).put = slow  # type: ignore[method-assign]
    publish(world, 0, [{"type": "add", "name": "of the dead"}])
    before_ms = world.now_ms

    with pytest.raises(CommitStateUnknown):
        share(log, "x", timeout_ms=60_100)

    assert world.now_ms - before_ms < 60_500


def test_a_slow_put_makes_nobody_wait_for_minutes() -> None:
    own = sharing.OwnPublication(pending_path(1, NAME), put_ms=60_000)
    own.before = [pending_path(0, NAME)] * 10

    assert own.patience_ms == 2_000


def test_a_request_given_up_and_landed_is_found_by_its_id() -> None:
    world = World()
    log = contended(world)
    publish(world, 0, [{"type": "add", "name": "of the dead"}])
    held_back = script(log).delete
    script(log).delete = lambda paths: None  # type: ignore[method-assign]
    with pytest.raises(CommitStateUnknown) as caught:
        share(log, "x", timeout_ms=1)
    script(log).delete = held_back  # type: ignore[method-assign]

    other = world.process()
    slot = share(other, "y")

    found = log.appender.find_request(caught.value.slot, caught.value.append_id)
    assert found is not None
    assert ([entry["name"] for entry in found[0]], found[1]) == (["x"], slot)


# What is refused


def test_a_refused_writer_looks_whether_another_process_appended_its_request() -> None:
    world = World()
    log = contended(world)

    def another_appends() -> None:
        share(world.process(), "y")

    at(log, PUBLISHED, another_appends)

    slot = share(log, "x")

    assert request_names(world, slot) == [["x"], ["y"]]


def test_a_reopened_view_looks_for_its_request_in_the_skipped_records() -> None:
    world = World()
    log = contended(world)

    def another_appends_and_the_view_is_opened_again() -> None:
        share(world.process(), "y")
        log.replica.open()

    at(log, PUBLISHED, another_appends_and_the_view_is_opened_again)

    slot = share(log, "x")

    assert request_names(world, slot) == [["x"], ["y"]]


def test_a_record_passed_over_that_is_gone_leaves_the_outcome_lost() -> None:
    world = World()
    log = contended(world)

    def another_appends_and_its_record_goes() -> None:
        other = world.process()
        slot = share(other, "y")
        for number in range(3):
            other.append(add(f"n{number}"))
            other.checkpoint()
        script(other).delete([slot_path(each) for each in range(slot + 1)])
        log.replica.open()

    at(log, PUBLISHED, another_appends_and_its_record_goes)

    with pytest.raises(OutcomeLost):
        share(log, "x")

    assert names(log).count("x") == 1


def test_a_refusal_beside_others_requests_is_asked_again_without_them() -> None:
    world = World()
    log = contended(world)
    publish(world, log.replica.slot, [{"type": "add", "name": "x"}])

    assert log.append(SharedAdd(("x",), add_once("x"), lambda entries, slot: "added")) == "added"
    assert names(log).count("x") == 1


# What no version of eoslog writes


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (pending_path(0, NAME), b"no JSON"),
        (pending_path(0, NAME), b'{"requests":7}'),
        (pending_path(0, NAME), b'{"requests":[{"entries":[7]}]}'),
        (pending_path(0, NAME), b"[" * 100_000),
        (pending_path(0, NAME), b'{"requests":[{"entries":[{"type":"add"}]}]}'),
        (PENDING + "!", b'{"requests":[]}'),
    ],
)
def test_a_malformed_publication_is_passed_over_and_deleted(path: str, body: bytes) -> None:
    world = World()
    log = contended(world)
    script(world.process()).put(path, body)

    slot = share(log, "x")

    assert request_names(world, slot) == [["x"]]
    assert names(log)[-1] == "x"


def test_publications_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = contended(world)
    large = publish(world, 0, [{"type": "add", "name": "x" * 2_000}])
    publish(world, 0, [{"type": "add", "name": "small"}], name="cd" * 16)
    monkeypatch.setattr(sharing, "_MOST_READ_BYTES", 1_000)

    slot = share(log, "mine")

    assert request_names(world, slot) == [["small"], ["mine"]]
    assert published(world) == [large]


@pytest.mark.parametrize(("first_entry", "entry_count"), [(0, 0), (7, 1), (1, 1)])
def test_a_record_that_names_a_request_for_other_entries_answers_nobody(first_entry: int, entry_count: int) -> None:
    world = World()
    log = contended(world)

    def forge() -> None:
        (path,) = published(world)
        name = pending_name(path)
        assert name is not None
        request = IncludedRequest(request_id=f"{name.name}-0", first_entry=first_entry, entry_count=entry_count)
        entries = ({"type": "add", "name": "forged"}, {"type": "add", "name": "forged, too"})
        newest = record(world, log.replica.slot)
        forged = SlotRecord(
            slot=newest.slot + 1, append_id="7" * 32, prev=newest.append_id, entries=entries, requests=(request,)
        )
        world.put(forged.slot, encode_line(forged))

    at(log, PUBLISHED, forge)

    slot = log.append(replace(shared_add("x"), answer=_only_for_x))

    assert names(log)[-1] == "x"
    assert slot == log.replica.slot


def _only_for_x(entries: Sequence[Any], slot: int) -> int:
    (entry,) = entries
    if entry["name"] != "x":
        raise ValueError("another request's entry")
    return slot


# Interrupts


def test_an_interrupted_writer_leaves_nothing_that_waits() -> None:
    world = World()
    log = contended(world)

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(log, PUBLISHED, interrupt)

    with pytest.raises(KeyboardInterrupt):
        share(log, "x")

    assert log.replica.awaited == {}
    share(log, "y")
    assert names(log)[-1] == "y"


def test_a_follower_of_an_interrupted_writer_learns_its_request_may_land() -> None:
    world = World()
    log = contended(world)
    told: list[BaseException] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(log, PUBLISHED, interrupt)

    def run(name: str) -> None:
        try:
            share(log, name)
        except BaseException as error:
            told.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in "xy"]
    with held(log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(log, count)
    for thread in threads:
        thread.join()

    assert sorted(type(each).__name__ for each in told) == ["CommitStateUnknown", "KeyboardInterrupt"]
    (unknown,) = (each for each in told if isinstance(each, CommitStateUnknown))
    assert unknown.is_published


def test_an_unanswered_put_of_the_own_record_leaves_the_request_unknown() -> None:
    world = World()
    log = contended(world)
    at(log, PUBLISHED, lambda: script(log).faults.extend([Fault.LATE] * 200))

    with pytest.raises(CommitStateUnknown) as caught:
        share(log, "x")

    script(log).faults.clear()
    script(log).land_late()
    assert caught.value.is_published
    assert log.appender.find_request(caught.value.slot, caught.value.append_id) is not None
