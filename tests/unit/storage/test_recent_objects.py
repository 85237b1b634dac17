"""What a process keeps in memory of objects that it has read or written."""

from __future__ import annotations

from eoslog.storage.object_store import RecentObjects


def test_the_object_that_was_kept_longest_ago_is_dropped_first() -> None:
    recent = RecentObjects(most_bytes=10)
    for path in ("a", "b", "c"):
        recent.keep(path, b"1234")

    assert [recent.find(path) for path in ("a", "b", "c")] == [None, b"1234", b"1234"]


def test_empty_contents_need_room_for_their_names() -> None:
    recent = RecentObjects(most_bytes=10)
    for number in range(20):
        recent.keep(f"{number:05}", b"")

    assert sum(recent.find(f"{number:05}") is not None for number in range(20)) == 2


def test_an_object_larger_than_the_limit_is_not_kept_and_displaces_no_other() -> None:
    recent = RecentObjects(most_bytes=10)
    recent.keep("a", b"1")

    recent.keep("b", bytes(11))

    assert (recent.find("a"), recent.find("b")) == (b"1", None)


def test_an_object_that_is_kept_again_counts_once() -> None:
    recent = RecentObjects(most_bytes=4)
    for _ in range(5):
        recent.keep("a", b"12")

    recent.keep("b", b"")

    assert recent.find("a") == b"12"


def test_room_of_what_was_dropped_is_free_again() -> None:
    recent = RecentObjects(most_bytes=4)
    recent.keep("a", b"12")

    recent.drop("a")
    recent.drop("never kept")
    recent.keep("b", b"12")

    assert (recent.find("a"), recent.find("b")) == (None, b"12")
