"""Sizes and durations have Spark's units; JSON by partition is read whole or not at all."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidOption
from pyspark_eoslog.options.values import duration_ms, names, numbers_by_partition, size_bytes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a, b ,a", ("a", "b")),
        ('["a,b", " c", "a,b"]', ("a,b", " c")),
        ('[" "]', (" ",)),
        ("[a", ("[a",)),
        ("[1]", ("[1]",)),
        ('{"a": 1}', ('{"a": 1}',)),
    ],
)
def test_names_have_commas_between_them_or_are_a_json_array(given: str, expected: tuple[str, ...]) -> None:
    assert names({"columns": given}, "columns") == expected


@pytest.mark.parametrize("given", ["", " , ", "[]"])
def test_no_name_is_refused(given: str) -> None:
    with pytest.raises(InvalidOption, match="JSON array"):
        names({"columns": given}, "columns")


@pytest.mark.parametrize(
    ("given", "expected"),
    [("250", 250), ("50b", 50), ("1k", 1024), ("2KB", 2048), (" 3m ", 3 << 20), ("1gb", 1 << 30), ("1t", 1 << 40)],
)
def test_a_size_is_bytes_or_has_a_unit_of_1024(given: str, expected: int) -> None:
    assert size_bytes({"size": given}, "size") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0", 0),
        ("250", 250),
        ("1500us", 1),
        ("50s", 50_000),
        ("15m", 900_000),
        ("15MIN", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
    ],
)
def test_a_duration_is_ms_or_has_a_unit(given: str, expected: int) -> None:
    assert duration_ms({"delay": given}, "delay") == expected


@pytest.mark.parametrize("given", ["", "m", "-1s", "1.5m", "1 m", "1w", "99999999999999999999", "9" * 5000, "٣s"])
def test_other_sizes_and_durations_are_refused(given: str) -> None:
    with pytest.raises(InvalidOption, match="option 'x' is"):
        size_bytes({"x": given}, "x")
    with pytest.raises(InvalidOption, match="option 'x' is"):
        duration_ms({"x": given}, "x")


def test_numbers_stand_by_topic_and_partition() -> None:
    assert numbers_by_partition('{"a": {"0": 1, "10": 2}, "b": {}}', at_least=0) == {"a": {0: 1, 10: 2}, "b": {}}


@pytest.mark.parametrize(
    "given",
    [
        "x",
        "[]",
        '{"a": 1}',
        '{"a": {"x": 1}}',
        '{"a": {"0": -1}}',
        '{"a": {"0": "1"}}',
        '{"a": {"0": true}}',
        '{"a": {"0": 1, "0": 2}}',
        '{"a": {"0": 1, "00": 2}}',
        '{"a": {"0": 9223372036854775808}}',
        f'{{"a": {{"{"9" * 5000}": 1}}}}',
        "[" * 100_000,
    ],
)
def test_numbers_that_stand_otherwise_are_none(given: str) -> None:
    assert numbers_by_partition(given, at_least=0) is None
