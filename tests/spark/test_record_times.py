"""Spark and the times of Kafka records: it cannot write one beyond the year 9999, and one in a store hides no rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import eoslog
from eoslog.producer import rows
from pyspark_eoslog import EosLogTable
from tests.depth import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_767_225_600_000
LAST_US = 253_402_300_799_999_000


@pytest.mark.parametrize("microseconds", sweep([LAST_US + 1000, NOW_MS * 1_000_000, 2**63 - 1], quick=[LAST_US + 1000]))
def test_a_later_time_is_refused(spark: SparkSession, tmp_path: Path, microseconds: int) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("t")
    frame = spark.range(1).selectExpr("cast('v' as binary) value", f"timestamp_micros({microseconds}) timestamp")

    with pytest.raises(PySparkException, match=r"column 'timestamp': .* is not within the years 1 to 9999"):
        frame.write.format("eoslog").option("topic", "t").mode("append").save(store.url)

    assert store.scan("t").record_count == 0


def test_a_stored_time_that_spark_lacks_hides_no_other_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("t")
    with monkeypatch.context() as earlier, store.producer() as producer:
        # An earlier version took every time.
        earlier.setattr(rows, "unstorable", lambda times: None)
        for times in ([NOW_MS], [NOW_MS + 1, 2**62], [NOW_MS + 2]):
            values = [b"%d" % each for each in times]
            producer.send_table(
                "t", pa.table({"value": values, "timestamp": pa.array(times, pa.timestamp("ms", "UTC"))})
            )
            producer.flush()
    expected = [NOW_MS * 1000, (NOW_MS + 1) * 1000, LAST_US, (NOW_MS + 2) * 1000]

    source = spark.read.format("eoslog").option("topic", "t").load(store.url)
    table = EosLogTable.forPath(spark, store.url, "t")

    for frame in (source, table.toDF(), table.toDF(columns=["timestamp", "value"])):
        found = frame.selectExpr("unix_micros(timestamp) time", "cast(value as string) value").collect()
        assert sorted(row["time"] for row in found) == sorted(expected)
        assert {row["value"]: row["time"] for row in found}[str(2**62)] == LAST_US
    assert table.toDF(columns=["value"]).count() == 4
