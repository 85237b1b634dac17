"""Executors and workers that are killed in the middle of a task, lost shuffles, and tasks that run twice at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eoslog
from eoslog.maintenance.vacuum import vacuum
from tests.spark.driver_process import StartDriver
from tests.spark.exactness import assert_exact, files_of_topics, orphans
from tests.spark.streams import NUMBERS

ROWS = 400

ON_A_CLUSTER = """
    import json, os, sys
    from pathlib import Path
    from tests.spark.local_spark import QUICK_TO_START, start_session

    directory, root, order, once = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    settings = {"spark.executor.memory": "800m", "spark.executor.extraJavaOptions": QUICK_TO_START}
    spark = start_session(directory, settings, master="local-cluster[2,1,1024]")
    numbered = spark.range(0, 400, 1, 4).selectExpr("id as n")

    def write(rows, topic, act):
        order.write_text(f"spark.task.files_uploaded 2 {act}")
        rows.write.format("eoslog").option("topic", topic).mode("append").save(root)
        assert not order.exists()

    def kill_an_executor_once(batches):
        import psutil

        for batch in batches:
            if once.exists():
                once.unlink()
                next(each for each in psutil.Process().parents() if each.name() == "java").kill()
            yield batch

    write(numbered, "worker", "kill-worker")
    write(numbered, "executor", "kill-jvm")
    write(numbered.repartition(4), "shuffle", "kill-jvm")

    once.touch()
    rows = spark.read.format("eoslog").option("topic", "worker").option("minPartitions", 4).load(root)
    rows = rows.select("n", "_partition", "_offset")
    found = rows.mapInArrow(kill_an_executor_once, rows.schema).collect()
    assert not once.exists()
    (directory / "found.json").write_text(json.dumps([list(row) for row in found]))

    order.write_text("spark.task.files_uploaded 2 kill-jvm")
    rows = spark.readStream.format("eoslog").option("topic", "worker").option("startingOffsets", "earliest")
    rows = rows.option("maxOffsetsPerTrigger", 150).load(root).select("n").writeStream.format("eoslog")
    rows = rows.option("topic", "stream").option("checkpointLocation", str(directory / "checkpoint"))
    rows.trigger(availableNow=True).start(root).awaitTermination()
    assert not order.exists()
    print("done")
    spark.stop()
"""

SPECULATING = """
    import os, socket, subprocess, sys, time
    from pathlib import Path
    import pyspark
    from tests.spark.local_spark import QUICK_TO_START, start_session

    directory, root, order = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = QUICK_TO_START

    def daemon(*arguments):
        return subprocess.Popen([spark_class, *arguments], env=environment)

    daemons = [daemon(f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    # A copy runs on another host than the attempt that is slow.
    for host in ("127.0.0.2", "127.0.0.3"):
        worker = [f"{deploy}.worker.Worker", "--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        daemons.append(daemon(*worker, "--work-dir", str(directory / host), master))
    settings = {
        "spark.executor.memory": "800m",
        "spark.executor.extraJavaOptions": QUICK_TO_START,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    spark = start_session(directory, settings, master=master)
    while len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) < 3:
        time.sleep(0.1)
    numbered = spark.range(0, 400, 1, 4).selectExpr("id as n")
    order.write_text("spark.task.files_uploaded 1 hang-first-attempt")
    numbered.write.format("eoslog").option("topic", "speculated").mode("append").save(root)
    print("done")
    spark.stop()
    for each in daemons:
        each.kill()
"""


@pytest.fixture
def store(root: str) -> eoslog.Store:
    return eoslog.connect(root)


@pytest.mark.slow
@pytest.mark.usefixtures("files_are_objects")
def test_tasks_of_a_killed_worker_or_executor_handle_each_row_once(
    start_driver: StartDriver, store: eoslog.Store, tmp_path: Path
) -> None:
    topics = ("worker", "executor", "shuffle", "stream")
    for topic in topics:
        store.admin.create_topic(topic, partitions=2, schema=NUMBERS, key="n")
    directory, order, once = tmp_path / "driver", tmp_path / "order", tmp_path / "once"

    driver = start_driver(ON_A_CLUSTER, str(directory), store.url, str(order), str(once), EOSLOG_TEST_CRASH=str(order))

    assert driver.wait() == 0, driver.output
    for topic in topics:
        assert_exact(store, topic, range(ROWS))
    assert orphans(store)
    found = json.loads((directory / "found.json").read_text())
    assert sorted(n for n, _, _ in found) == list(range(ROWS))
    assert len({(partition, offset) for _, partition, offset in found}) == ROWS


@pytest.mark.slow
@pytest.mark.usefixtures("files_are_objects")
def test_the_slower_of_two_attempts_at_once_leaves_files_that_vacuum_takes(
    start_driver: StartDriver, store: eoslog.Store, tmp_path: Path
) -> None:
    store.admin.create_topic("speculated", partitions=2, schema=NUMBERS, key="n")
    order = tmp_path / "order"

    driver = start_driver(SPECULATING, str(tmp_path / "driver"), store.url, str(order), EOSLOG_TEST_CRASH=str(order))

    assert driver.wait() == 0, driver.output
    assert_exact(store, "speculated", range(ROWS))
    before, left_over = files_of_topics(store), orphans(store)
    assert {len(path.split("/")) for path in left_over} == {5}
    report = vacuum(store, staged_max_age_ms=1)
    assert set(report.paths) == left_over
    assert files_of_topics(store) == before - left_over
    assert_exact(store, "speculated", range(ROWS))
