"""The cache of segment indexes: bounded by bytes, and of use to passes over more than it holds."""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.format.segment_index import IndexCache


def misses(cache: IndexCache[int, str], keys: Iterable[int], size: int = 1) -> int:
    """Ask for each key, and put what is missing."""
    found = 0
    for key in keys:
        if cache.get(key) is None:
            found += 1
            cache.put(key, str(key), size)
    return found


def test_the_cache_keeps_all_entries_that_fit() -> None:
    cache = IndexCache[int, str](100)

    assert misses(cache, range(100)) == 100
    assert misses(cache, range(100)) == 0
    assert (cache.get(7), cache.bytes) == ("7", 100)


def test_repeated_passes_over_twice_its_size_find_most_entries() -> None:
    cache = IndexCache[int, str](100)
    misses(cache, range(200))

    again = [misses(cache, range(200)) for _ in range(10)]

    assert max(again) <= 120
    assert cache.bytes <= 100


def test_the_bound_counts_bytes_and_not_values() -> None:
    cache = IndexCache[int, str](100)

    misses(cache, range(50), size=30)

    assert cache.bytes <= 100
    assert sum(cache.get(key) is not None for key in range(50)) == 3


def test_a_value_larger_than_the_cache_is_kept_until_the_next_one() -> None:
    cache = IndexCache[int, str](100)
    misses(cache, range(10))

    cache.put(10, "large", 1000)

    assert (cache.get(10), cache.bytes) == ("large", 1000)
    cache.put(11, "next", 1)
    assert (cache.get(10), cache.get(11), cache.bytes) == (None, "next", 1)


def test_values_that_nobody_needs_any_more_give_way() -> None:
    cache = IndexCache[int, str](100)
    misses(cache, range(100))

    for _ in range(100):
        misses(cache, range(100, 200))

    assert misses(cache, range(100, 200)) == 0


def test_a_value_that_is_put_twice_counts_once() -> None:
    cache = IndexCache[int, str](100)

    cache.put(1, "one", 60)
    cache.put(1, "one", 70)

    assert (cache.get(1), cache.bytes) == ("one", 70)
