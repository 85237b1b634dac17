"""A driver process of its own: the streaming query from files into the topic ``flights``, to the end of what there is.

Run as ``python -m examples.demo.stream_driver <work directory> <store>``. It can be killed at any moment and started
again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.demo.sessions import start_spark


def main(work: Path, store: str) -> None:
    spark = start_spark(work)
    source = work / "stream-input"
    schema = spark.read.parquet(str(source)).schema
    (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .writeStream.format("eoslog")
        .option("topic", "flights")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(store)
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
