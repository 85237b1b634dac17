"""What every object store promises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from eoslog.errors import InvalidRequest
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, PutOutcome
from eoslog.storage.probe import ProbeResult, probe_put_if_absent

BAD_PATHS = [
    "",
    "/absolute",
    "../outside",
    "a/../../b",
    "a//b",
    "a/",
    ".",
    "a/./b",
    "a\0b",
    "a\nb",
    ".tmp/x",
    "x" * 256,
]


def paths(store: ObjectStore, prefix: str = "", start_after: str = "", limit: int | None = None) -> list[str]:
    return [info.path for info in store.list(prefix, start_after=start_after, limit=limit)]


def test_put_if_absent_creates_once_and_keeps_the_first_body(any_store: ObjectStore) -> None:
    assert any_store.put_if_absent("a/b", b"first") is PutOutcome.CREATED
    assert any_store.put_if_absent("a/b", b"second") is PutOutcome.EXISTS
    assert any_store.get("a/b").body == b"first"


def test_put_if_absent_of_an_empty_body_is_exclusive_too(any_store: ObjectStore) -> None:
    assert any_store.put_if_absent("full", b"body") is PutOutcome.CREATED
    assert any_store.put_if_absent("full", b"") is PutOutcome.EXISTS
    assert any_store.put_if_absent("empty", b"") is PutOutcome.CREATED
    assert any_store.put_if_absent("empty", b"") is PutOutcome.EXISTS
    assert any_store.get("full").body == b"body"
    assert any_store.get("empty").body == b""


def test_calls_for_each_item_answer_in_order_and_the_first_error_is_raised(any_store: ObjectStore) -> None:
    items = [str(number) for number in range(50)]
    any_store.put_many([(f"a/{item}", item.encode()) for item in items])

    assert list(any_store.for_each(lambda item: any_store.get(f"a/{item}").body.decode(), items)) == items
    assert list(any_store.for_each(any_store.get, [])) == []
    with pytest.raises(ObjectNotFound):
        any_store.for_each(any_store.get, ["a/7", "missing"])


@pytest.mark.s3
def test_on_s3_calls_for_each_item_run_at_once(s3_store: ObjectStore) -> None:
    together = threading.Barrier(8)

    def meet(item: int) -> int:
        together.wait(30)
        return item

    assert list(s3_store.for_each(meet, range(8))) == list(range(8))


def test_of_many_threads_exactly_one_creates_and_its_body_stays(any_store: ObjectStore) -> None:
    racers = 8
    for round_number in range(10):
        start = threading.Barrier(racers)

        def race(number: int, start: threading.Barrier = start, path: str = f"slot/{round_number}") -> PutOutcome:
            start.wait()
            return any_store.put_if_absent(path, str(number).encode())

        with ThreadPoolExecutor(racers) as threads:
            outcomes = list(threads.map(race, range(racers)))

        assert sorted(outcomes, key=str) == [PutOutcome.CREATED] + [PutOutcome.EXISTS] * (racers - 1)
        winner = outcomes.index(PutOutcome.CREATED)
        assert any_store.get(f"slot/{round_number}").body == str(winner).encode()


def test_put_replaces(any_store: ObjectStore) -> None:
    any_store.put("a", b"old and longer")
    any_store.put("a", b"new")
    assert any_store.get("a").body == b"new"


def test_large_bodies_come_back_whole(any_store: ObjectStore) -> None:
    body = bytes(range(256)) * 20_000
    any_store.put("large", body)
    assert any_store.get("large").body == body


def test_an_object_that_does_not_exist_is_not_found(any_store: ObjectStore) -> None:
    any_store.put("a/b", b"")
    for path in ("missing", "a", "a/b/c"):
        with pytest.raises(ObjectNotFound):
            any_store.get(path)
        with pytest.raises(ObjectNotFound):
            any_store.get_range(path, 0, 0)


def test_a_range_is_cut_at_the_end_of_the_object(any_store: ObjectStore) -> None:
    any_store.put("digits", b"0123456789")

    for start, length, expected in (
        (0, 3, b"012"),
        (3, 4, b"3456"),
        (8, 100, b"89"),
        (10, 5, b""),
        (1000, 1, b""),
        (4, 0, b""),
    ):
        assert any_store.get_range("digits", start, length) == expected, (start, length)


def test_a_range_of_an_empty_object_is_empty(any_store: ObjectStore) -> None:
    any_store.put("empty", b"")
    assert any_store.get_range("empty", 0, 10) == b""


def test_an_impossible_range_is_refused(any_store: ObjectStore) -> None:
    with pytest.raises(InvalidRequest):
        any_store.get_range("digits", -1, 5)
    with pytest.raises(InvalidRequest):
        any_store.get_range("digits", 0, -5)


def test_list_is_in_order_of_the_whole_path(any_store: ObjectStore) -> None:
    for path in ("a/b", "a.json", "a-b/c", "a0", "B", "a/b.x", "é", "a/10", "a/9"):
        any_store.put(path, b"12345")

    assert paths(any_store) == ["B", "a-b/c", "a.json", "a/10", "a/9", "a/b", "a/b.x", "a0", "é"]
    assert {info.size for info in any_store.list("")} == {5}


def test_a_prefix_need_not_end_at_a_slash(any_store: ObjectStore) -> None:
    for path in ("ab/1", "abc/2", "abd", "b"):
        any_store.put(path, b"")

    assert paths(any_store, "ab") == ["ab/1", "abc/2", "abd"]
    assert paths(any_store, "abc") == ["abc/2"]
    assert paths(any_store, "ab/") == ["ab/1"]
    assert paths(any_store, "none/") == []


def test_start_after_is_exclusive_and_may_name_what_does_not_exist(any_store: ObjectStore) -> None:
    for path in ("s/0/1", "s/0/2", "s/1/1", "s/1/2", "s/2/1"):
        any_store.put(path, b"")

    assert paths(any_store, "s/", "s/0/2") == ["s/1/1", "s/1/2", "s/2/1"]
    assert paths(any_store, "s/", "s/1/15") == ["s/1/2", "s/2/1"]
    assert paths(any_store, "s/1/", "s/1/1") == ["s/1/2"]
    assert paths(any_store, "s/", "s/3") == []


def test_limit_bounds_the_answer(any_store: ObjectStore) -> None:
    for number in range(5):
        any_store.put(f"n/{number}", b"")

    assert paths(any_store, "n/", limit=2) == ["n/0", "n/1"]
    assert paths(any_store, "n/", "n/2", limit=1) == ["n/3"]
    assert paths(any_store, "n/", limit=9) == [f"n/{number}" for number in range(5)]


def test_list_directories_gives_the_next_parts_only(any_store: ObjectStore) -> None:
    for path in ("t/x/0/a", "t/x/1/b", "t/y/c", "t/file", "u/z"):
        any_store.put(path, b"")

    assert list(any_store.list_directories("t/")) == ["x", "y"]
    assert list(any_store.list_directories("")) == ["t", "u"]
    assert list(any_store.list_directories("none/")) == []


def test_a_directory_whose_objects_are_deleted_is_gone_and_comes_back(any_store: ObjectStore) -> None:
    any_store.put("t/x/a", b"")
    any_store.put("t/y/b", b"")

    any_store.delete(["t/x/a"])
    assert list(any_store.list_directories("t/")) == ["y"]

    assert any_store.put_if_absent("t/x/a", b"again") is PutOutcome.CREATED
    assert any_store.get("t/x/a").body == b"again"


def test_delete_passes_over_what_does_not_exist(any_store: ObjectStore) -> None:
    for number in range(4):
        any_store.put(f"d/{number}", b"")

    any_store.delete(["d/0", "missing", "d/1/below", "d/1"])
    assert paths(any_store) == ["d/2", "d/3"]

    any_store.delete_many(["d/3", "missing", "d/2"])
    assert paths(any_store) == []
    any_store.delete([])
    any_store.delete_many([])


def test_many_objects_are_put_and_read_together(any_store: ObjectStore) -> None:
    any_store.put_many([(f"m/{number}", str(number).encode()) for number in range(40)])

    found = any_store.get_many([f"m/{number}" for number in range(41)])

    assert [stored and stored.body for stored in found] == [*(str(number).encode() for number in range(40)), None]
    assert list(any_store.get_many([])) == []
    any_store.put_many([])


def test_a_path_that_could_leave_the_store_is_refused_before_any_request(any_store: ObjectStore) -> None:
    calls: list[Callable[[str], object]] = [
        any_store.get,
        lambda path: any_store.get_range(path, 0, 1),
        lambda path: any_store.put_if_absent(path, b""),
        lambda path: any_store.put(path, b""),
        lambda path: any_store.get_many([path]),
        lambda path: any_store.put_many([(path, b"")]),
        lambda path: any_store.delete([path]),
        lambda path: any_store.delete_many([path]),
    ]
    for path in BAD_PATHS:
        for call in calls:
            with pytest.raises(InvalidRequest):
                call(path)
    assert sum(any_store.requests.values()) == 0


def test_a_prefix_that_could_leave_the_store_is_refused(any_store: ObjectStore) -> None:
    for prefix in ("/", "../", "a/../", "a//", ".tmp/", "a\0"):
        with pytest.raises(InvalidRequest):
            list(any_store.list(prefix))
        with pytest.raises(InvalidRequest):
            any_store.list_directories(prefix)
    assert sum(any_store.requests.values()) == 0


def test_every_answer_tells_the_time(any_store: ObjectStore) -> None:
    any_store.put_if_absent("warm", b"")
    dates = []
    for call in (
        lambda: any_store.put_if_absent("a", b""),
        lambda: any_store.put_if_absent("a", b""),
        lambda: any_store.put("b", b""),
        lambda: any_store.get("a"),
        lambda: any_store.get_range("a", 0, 1),
        lambda: any_store.get_many(["missing"]),
        lambda: list(any_store.list("")),
        lambda: any_store.list_directories(""),
        lambda: any_store.delete(["a"]),
    ):
        any_store.clock = StoreClock(Environment())
        call()
        dates.append(any_store.clock.last_date_ms)

    assert all(date > 1_700_000_000_000 for date in dates)
    assert dates == sorted(dates)


def test_an_objects_date_lies_between_those_of_the_answers_around_it(
    any_store: ObjectStore,
) -> None:
    any_store.put("before", b"")
    earliest = any_store.clock.last_date_ms

    any_store.put("a", b"")
    created_ms = any_store.get("a").last_modified_ms
    any_store.put("after", b"")

    # Dates have whole seconds, and some servers renew theirs on a timer of its own, a little late.
    assert earliest <= created_ms <= any_store.clock.last_date_ms + 1000
    assert [info.last_modified_ms for info in any_store.list("a") if info.path == "a"] == [created_ms]


def test_every_request_is_counted(any_store: ObjectStore) -> None:
    any_store.put_if_absent("a", b"")
    any_store.put_if_absent("a", b"")
    any_store.put("b", b"")
    any_store.get("a")
    any_store.get_range("a", 0, 1)
    any_store.get_many(["b", "missing"])
    list(any_store.list(""))
    any_store.list_directories("")
    any_store.delete(["a", "b"])

    assert any_store.requests == {"PUT": 3, "GET": 4, "LIST": 2, "DELETE": 2}


def test_the_time_of_every_kind_of_request_is_counted(any_store: ObjectStore) -> None:
    any_store.put("a", b"x" * 1_000_000)
    any_store.get("a")
    list(any_store.list(""))
    any_store.delete(["a"])

    found = any_store.request_times.by_verb()
    assert found.keys() == {"PUT", "GET", "LIST", "DELETE"}
    assert all(sum(each.counts) == 1 and each.total_ns > 0 for each in found.values())


def test_reads_of_ranges_are_timed(any_store: ObjectStore) -> None:
    any_store.put("a", b"0123456789")
    any_store.get_range("a", 0, 2)
    any_store.get_ranges("a", [(0, 2), (4, 2)])

    assert sum(any_store.request_times.by_verb()["GET"].counts) >= 2


def test_every_kind_of_request_is_counted_from_zero(any_store: ObjectStore) -> None:
    """A Counter runs Python code when a kind is missing, where threads may be switched and a count be lost."""
    list(any_store.unfinished_uploads())
    assert any_store.requests.keys() == {"PUT", "GET", "LIST", "DELETE"}


def test_the_probe_passes_and_leaves_nothing(any_store: ObjectStore, environment: Environment) -> None:
    result = probe_put_if_absent(any_store, environment)

    assert result == ProbeResult(put_if_absent=True, races=4)
    assert paths(any_store) == []
