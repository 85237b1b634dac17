"""An object store that loses answers, refuses, breaks off and lets puts land late: a stream stays exact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fault_proxy import FaultProxy
from tests.s3.servers import S3Server
from tests.spark.exactness import assert_exact
from tests.spark.streams import LIMIT, copy_stream, make_topics, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.s3

DATA = r"/out/.*\.parquet"
SLOT = "/__transaction_state/slot/"
ROWS = 300


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.pyspark("4.2")
def test_a_stream_through_a_store_that_loses_answers_is_exact(
    spark: SparkSession, fault_proxy: FaultProxy, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    url = f"s3://{s3_bucket}/store"
    store = make_topics(url, **s3_server.options())
    options = {f"store.{name}": value for name, value in s3_server.behind(fault_proxy.url).options().items()}
    options |= {"store.max_attempts": "3", "store.retry_base_ms": "1"}
    source = {**LIMIT, **options}
    produce(store, 0, ROWS)
    faults = [
        fault_proxy.lose_answer("PUT", DATA, nth=2, times=2),
        fault_proxy.reset("PUT", DATA, nth=5, times=2),
        fault_proxy.answer(503, "SlowDown", "PUT", DATA, nth=8, times=2),
        fault_proxy.lose_answer("PUT", SLOT, nth=1),
        fault_proxy.lose_answer("PUT", SLOT, nth=3, times=6),
        fault_proxy.forward_then_answer(500, "InternalError", "PUT", SLOT, nth=11, times=2),
        fault_proxy.answer(409, "ConditionalRequestConflict", "PUT", SLOT, nth=15),
        fault_proxy.truncate(r"/in/.*\.parquet", nth=2),
        fault_proxy.reset("GET", nth=5, times=3),
        fault_proxy.answer(503, "SlowDown", "LIST", nth=2, times=3),
    ]

    stream = copy_stream(spark, url, tmp_path / "checkpoint", source, **options).trigger(availableNow=True).start()
    stream.awaitTermination()

    assert [fault for fault in faults if fault.seen < fault.nth] == []
    assert_exact(store, "out", range(ROWS))
