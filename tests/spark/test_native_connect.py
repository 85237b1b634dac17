"""EosLogTable with a client of Spark Connect, which has no JVM of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.driver_process import StartDriver
from tests.spark.streams import make_topics, produce

CLIENT = """
    import sys
    from pyspark.sql import SparkSession
    from pyspark_eoslog import EosLogTable

    (root,) = sys.argv[1:]
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    table = EosLogTable.forPath(spark, root, "in")
    found = table.toDF()
    source = spark.read.format("eoslog").option("topic", "in").load(root)
    print("equal:", found.schema.simpleString() == source.schema.simpleString())
    print("rows:", sorted(found.collect()) == sorted(source.collect()), found.count())
    print("cut:", table.toDF(starting_offsets={0: 3}).count() < 20)
    print("empty:", EosLogTable.forPath(spark, root, "out").toDF().count())
    table.createOrReplaceTempView("numbers")
    print("sql:", spark.sql("select count(*) from numbers where n < 5").first()[0])
    print("told:", table.history(1).first().operation, table.detail().first().numRows, table.offsets().count())
    print("done:", table.transactions().count() > 0, table.optimize().count(), table.vacuum(dry_run=True).count())
    spark.stop()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("connect_port")
def test_a_connect_client_scans_files_and_is_told_of_the_table(start_driver: StartDriver, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store = make_topics(root)
    produce(store, 0, 20)

    client = start_driver(CLIENT, root)

    assert client.wait(orphans_s=3) == 0, client.output
    for line in (
        "equal: True",
        "rows: True 20",
        "cut: True",
        "empty: 0",
        "sql: 5",
        "told: append 20",
        "done: True 0 1",
    ):
        assert line in client.output
