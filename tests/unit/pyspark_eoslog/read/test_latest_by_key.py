"""Option ``latestByKey``: a batch reads the newest row of each key, with one task for each topic partition."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog import InvalidOption
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import EosLogReader
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader

MILES = StructType([StructField("miles", LongType())])


@pytest.fixture
def trips(store: eoslog.Store) -> eoslog.Store:
    schema = pa.schema([("id", pa.int64()), ("miles", pa.int64())])
    store.admin.create_topic("trips", partitions=3, schema=schema, key="id")
    for miles in ([10, 20, 30, 40], [11, None, 31, 41]):
        with store.producer() as producer:
            producer.send_table("trips", pa.table({"id": [1, 2, 3, 4], "miles": miles}, schema))
    return store


def options(store: eoslog.Store, **given: Any) -> Options:
    named = {"path": store.url, "topic": "trips", "latestByKey": "true", **given}
    return Options.of({name: str(value) for name, value in named.items()})


def miles(store: eoslog.Store, **given: Any) -> list[int]:
    source = EosLogReader(options(store, **given), MILES)
    parts = pickle.loads(pickle.dumps(source.partitions()))
    return sorted(row["miles"] for part in parts for batch in source.read(part) for row in batch.to_pylist())


def test_a_batch_reads_the_newest_row_of_each_key(trips: eoslog.Store) -> None:
    assert miles(trips) == [11, 31, 41]
    assert miles(trips, predicate="miles > 15") == [31, 41]
    assert miles(trips, predicate="miles = 10") == []
    slot = trips.scan("trips").slot
    with trips.producer() as producer:
        producer.send_table("trips", pa.table({"id": [1], "miles": [12]}))
    assert miles(trips, versionAsOf=slot) == [11, 31, 41]
    assert miles(trips) == [12, 31, 41]


def test_each_topic_partition_is_one_spark_partition(trips: eoslog.Store) -> None:
    used = {plan.partition for plan in trips.scan("trips").plans if plan.record_count}

    assert len(EosLogReader(options(trips), MILES).partitions()) == len(used)


@pytest.mark.parametrize("other", ["minPartitions", "maxRecordsPerPartition", "includeControlRows"])
def test_options_that_contradict_it_are_refused(trips: eoslog.Store, other: str) -> None:
    given = {other: "true" if other.startswith("include") else 2}

    with pytest.raises(InvalidOption, match=f"option '{other}' does not go with option 'latestByKey'"):
        EosLogReader(options(trips, **given), MILES).partitions()


def test_streams_and_topics_without_a_key_are_refused(trips: eoslog.Store) -> None:
    trips.admin.create_topic("plain", schema=pa.schema([("miles", pa.int64())]))

    with pytest.raises(InvalidOption, match="topic plain has no key"):
        miles(trips, topic="plain")
    with pytest.raises(InvalidOption, match="option 'latestByKey' is for batch reads"):
        EosLogStreamReader(options(trips), MILES)
