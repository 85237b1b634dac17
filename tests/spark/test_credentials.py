"""Secrets given as options stand in nothing that a job leaves behind: its output, event log, checkpoint and store."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import eoslog
from tests.s3.servers import S3Server
from tests.spark.driver_process import StartDriver

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(900)]

KEY, SECRET, TOKEN = "CanaryKeyQ7X", "CanarySecretJ4W", "CanaryTokenZ9P"

JOB = """
    import json, sys
    from pathlib import Path
    from tests.spark.local_spark import start_session

    directory, endpoint, root, key, secret, token = sys.argv[1:]
    directory = Path(directory)
    (directory / "events").mkdir()
    spark = start_session(directory, {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.eventLog.logStageExecutorMetrics": "true",
        "spark.sql.debug.maxToStringFields": "1000",
    })
    spark.sparkContext.setLogLevel("INFO")
    options = {
        "topic": "t", "store.endpoint_url": endpoint, "store.region": "us-east-1",
        "store.key": key, "store.secret": secret, "store.token": token,
    }
    spark.range(3).write.format("eoslog").options(**options).mode("append").save(root)
    rows = spark.read.format("eoslog").options(**options).load(root)
    rows.explain("extended")
    print(rows, rows._jdf.queryExecution().toString())
    stream = spark.readStream.format("eoslog").options(**options).load(root)
    query = (
        stream.writeStream.format("eoslog").options(**options | {"topic": "out"}).queryName("canary")
        .option("checkpointLocation", f"file://{directory}/checkpoint").trigger(availableNow=True).start(root)
    )
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress, query.status)
    for wrong in ({"topic": "absent"}, {"store.max_attempts": "none"}, {"store.secrett": secret}):
        try:
            spark.read.format("eoslog").options(**{"store.max_attempts": "1", **options, **wrong}).load(root)
        except Exception as error:
            print("refused:", type(error).__name__, error)
    print("done")
    spark.stop()
"""


def test_a_secret_given_as_an_option_is_left_nowhere(
    start_driver: StartDriver, moto_server: S3Server, tmp_path: Path
) -> None:
    # This server accepts any credentials.
    root, endpoint = f"s3://{moto_server.new_bucket()}/store", moto_server.endpoint_url
    store = eoslog.connect(root, endpoint_url=endpoint, key=KEY, secret=SECRET, token=TOKEN, region="us-east-1")
    for topic in ("t", "out"):
        store.admin.create_topic(topic, schema=pa.schema([("id", pa.int64())]))
    directory = tmp_path / "job"
    directory.mkdir()

    driver = start_driver(JOB, str(directory), endpoint, root, KEY, SECRET, TOKEN)

    assert driver.wait(timeout_s=550) == 0, driver.output
    assert "done" in driver.output
    assert driver.output.count("refused: ") == 3
    written = {"output": driver.output.encode()} | dict(files_of(directory))
    written |= {info.path: store.object_store.get(info.path).body for info in store.object_store.list("")}
    assert any(name.startswith("events/") for name in written)
    assert any(name.startswith("checkpoint/") for name in written)
    found = {(name, secret) for name, body in written.items() for secret in (KEY, SECRET, TOKEN) if holds(body, secret)}
    assert found == set()


def files_of(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in directory.rglob("*"):
        if path.is_file():
            body = path.read_bytes()
            yield str(path.relative_to(directory)), gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


def holds(body: bytes, secret: str) -> bool:
    """Whether a secret stands there as it is, in UTF-16 or in base64."""
    encoded = [base64.b64encode(b"x" * shift + secret.encode())[4:-4] for shift in range(3)]
    forms = [secret.encode(), secret.encode("utf-16-le"), *encoded]
    return any(form in body for form in forms)
