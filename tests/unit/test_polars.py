"""Lazy frames of Polars: whatever a query asks for, it gets the rows that a filter of all rows gives."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import InvalidOption, Store, UnknownTopicOrPartition, connect
from eoslog.polars import predicate_text, scan_topic
from tests.depth import examples
from tests.unit.support.world import World

DAY = datetime.date(2026, 1, 1)
SCHEMA = pa.schema(
    {
        "day": pa.date32(),
        "carrier": pa.string(),
        "miles": pa.int64(),
        "delay": pa.float64(),
        "late": pa.bool_(),
        "odd `name`": pa.int32(),
        "speed": pa.float32(),
    }
)
ROWS = pa.table(
    [
        [DAY + datetime.timedelta(days=each) for each in range(60)],
        ["UA", "B6", "A'A`\\", None, "ß"] * 12,
        [*range(-30, 29), None],
        [float("nan"), float("inf"), -0.0, *(each / 4 for each in range(57))],
        [True, False, None] * 20,
        range(60),
        [each / 10 for each in range(60)],
    ],
    schema=SCHEMA,
)


@pytest.fixture(scope="module")
def store() -> Store:
    store = connect("memory://polars")
    store.admin.create_topic("t", partitions=2, schema=SCHEMA)
    with store.producer() as producer:
        for first in range(0, 60, 10):
            producer.send_table("t", ROWS.slice(first, 10))
            producer.flush()
    return store


DAYS = st.dates(DAY - datetime.timedelta(2), DAY + datetime.timedelta(70))
LEAVES = st.one_of(
    st.integers(-40, 40).map(lambda value: pl.col("miles") > value),
    st.integers(-40, 40).map(lambda value: value >= pl.col("odd `name`")),
    st.integers(-40, 40).map(lambda value: pl.col("miles") != value),
    st.lists(st.integers(-40, 40)).map(lambda values: pl.col("miles").is_in(values)),
    st.floats(allow_nan=True).map(lambda value: pl.col("delay") <= value),
    st.floats(0, 10).map(lambda value: pl.col("delay") == value),
    st.integers(0, 60).map(lambda tenths: pl.col("speed") == tenths / 10),
    st.integers(0, 60).map(lambda tenths: pl.col("speed").is_between(tenths / 10, (tenths + 5) / 10)),
    st.floats(0, 10).map(lambda value: pl.col("delay").sqrt() < value),
    st.sampled_from(["UA", "A'A`\\", "ß", "B", ""]).map(lambda value: pl.col("carrier") >= value),
    st.lists(st.sampled_from(["UA", "A'A`\\", "no"])).map(lambda values: pl.col("carrier").is_in(values)),
    st.sampled_from(["U", "A'", ""]).map(lambda value: pl.col("carrier").str.starts_with(value)),
    st.tuples(DAYS, DAYS).map(lambda ends: pl.col("day").is_between(*ends)),
    DAYS.map(lambda day: pl.col("day") < day),
    st.sampled_from(ROWS.column_names).map(lambda name: pl.col(name).is_null()),
    st.sampled_from(ROWS.column_names).map(lambda name: pl.col(name).is_not_null()),
    st.booleans().map(lambda value: pl.col("late") == value),
    st.just(pl.col("late")),
    st.just(pl.col("miles") > pl.col("odd `name`")),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.tuples(parts, parts).map(lambda each: each[0] & each[1]),
        st.tuples(parts, parts).map(lambda each: each[0] | each[1]),
        parts.map(lambda part: ~part),
    ),
    max_leaves=4,
)


@examples(30)
@given(CONDITIONS, st.sets(st.sampled_from(ROWS.column_names), min_size=1))
def test_a_query_finds_the_rows_of_a_filter_behind_the_read(store: Store, condition: pl.Expr, names: set[str]) -> None:
    columns = sorted(names)
    frame = scan_topic(store, "t")

    found = frame.filter(condition).select(columns).collect()

    assert found.equals(frame.collect().filter(condition).select(columns))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (pl.col("miles") > 1000, "`miles` > 1000"),
        (~(pl.col("carrier") == "O'Hare"), "(NOT `carrier` = 'O\\'Hare')"),
        (pl.col("carrier").is_in(["UA", "B6"]), "`carrier` IN ('UA', 'B6')"),
        (pl.col("day").is_between(DAY, DAY), "`day` BETWEEN DATE '2026-01-01' AND DATE '2026-01-01'"),
        (pl.col("speed") == pl.lit(0.1, dtype=pl.Float32), "`speed` = 0.10000000149011612"),
        (pl.col("day") < pl.lit(5_000_000, dtype=pl.Date), None),
        ((pl.col("miles") > 1) & (pl.col("miles").sqrt() > 1), "`miles` > 1"),
        ((pl.col("miles") > 1) | (pl.col("miles").sqrt() > 1), None),
        (~((pl.col("miles") > 1) & (pl.col("miles").sqrt() > 1)), None),
        (pl.col("late").is_null() | pl.col("late").is_not_null(), "(`late` IS NULL OR `late` IS NOT NULL)"),
    ],
    ids=str,
)
def test_a_condition_becomes_a_predicate_where_it_can(condition: pl.Expr, text: str | None) -> None:
    assert predicate_text(condition) == text


def test_only_files_that_may_match_are_fetched(store: Store) -> None:
    frame = scan_topic(store, "t")
    before = store.requests["GET"]

    found = frame.filter(pl.col("odd `name`") == 41).select("miles").collect()

    assert found["miles"].to_list() == [11]
    # The newest slot, and one file of six.
    assert store.requests["GET"] - before <= 2


def test_a_frame_keeps_its_rows_when_others_are_written() -> None:
    store = connect("memory://polars-keeps")
    store.admin.create_topic("t", schema=SCHEMA)
    with store.producer() as producer:
        producer.send_table("t", ROWS)
        producer.flush()
        frames = [scan_topic(store, "t"), scan_topic(store, "t", isolation_level="snapshot")]
        producer.send_table("t", ROWS)
        producer.flush()

    for frame in frames:
        assert frame.select(pl.len()).collect().item() == 60
        assert frame.join(frame, on="odd `name`").collect().height == 60
    assert scan_topic(store, "t").select(pl.len()).collect().item() == 120


def test_a_frame_as_of_now_keeps_its_rows(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t", schema=SCHEMA)
    with store.producer() as producer:
        producer.send_table("t", ROWS)
        producer.flush()
        options: list[dict[str, Any]] = [
            {"timestamp": world.time_ms},
            {"slot": None, "timestamp": world.time_ms},
            {"slot": None, "timestamp": None, "isolation_level": "snapshot"},
            {"slot": None},
        ]
        frames = [scan_topic(store, "t", **each) for each in options]
        producer.send_table("t", ROWS)
        producer.flush()

    assert [frame.collect().height for frame in frames] == [60] * 4


def test_options_of_a_scan_are_taken(store: Store) -> None:
    one = scan_topic(store, "t", partitions=[1], columns=["miles", "_partition", "_offset"])

    assert one.collect_schema().names() == ["miles", "_partition", "_offset"]
    assert set(one.collect()["_partition"]) <= {1}
    assert one.head(3).collect().height == min(3, one.collect().height)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"predicate": "miles > 1"}, InvalidOption), ({"columns": ["no"]}, InvalidOption), ({}, UnknownTopicOrPartition)],
)
def test_wrong_options_are_refused_at_once(store: Store, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        scan_topic(store, "t" if options else "unknown", **options)
