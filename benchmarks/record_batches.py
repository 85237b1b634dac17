"""CPU time a record between Kafka's record batches and Arrow: the gateway's codec beside those of two clients.

``python -m benchmarks.record_batches [rounds]``. A client reads and writes single records, so the benchmark converts
between its records and Arrow, as a gateway on top of the client would have to. aiokafka's codec is compiled (Cython),
kafka-python's is Python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from rich.console import Console
from rich.table import Table

from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.gateway.record_batches import decode, encode

SHAPES = ((100, 100), (1_000, 100), (10_000, 100), (1_000, 1_000))
"""Records of a batch, and the bytes of a value."""
ROUNDS = 20
MOST_BYTES = 64 << 20
FIRST_MS = 1_700_000_000_000


def main(rounds: int) -> None:
    table = Table("batch", "codec", "read (µs a record)", "read (MB/s)", "write (µs a record)", "write (MB/s)")
    for count, size in SHAPES:
        for headers in (0, 2):
            rows = records(count, size, headers)
            batch = write(rows)
            for name, (reads, writes) in CODECS.items():
                numbers = (
                    number
                    for seconds in (
                        cpu_seconds(partial(reads, batch), rounds),
                        cpu_seconds(partial(writes, rows), rounds),
                    )
                    for number in (f"{seconds / count * 1e6:.2f}", f"{len(batch) / seconds / 1e6:,.0f}")
                )
                table.add_row(f"{count:,} of {size:,} B, {headers} headers", name, *numbers)
    Console().print(table)


def records(count: int, size: int, headers: int) -> pa.RecordBatch:
    """Return rows with a key of 8 bytes, a value of this size, and so many headers."""
    pairs = [{"key": f"name-{index}", "value": b"%08d" % index} for index in range(headers)]
    columns: list[Any] = [[b"%08d" % index for index in range(count)], [bytes(size)] * count, [pairs or None] * count]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, RECORDS_SCHEMA, strict=False)]
    timestamps = pa.array(FIRST_MS + np.arange(count)).view(RECORDS_SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([*arrays, timestamps], schema=RECORDS_SCHEMA)


def write(rows: pa.RecordBatch) -> bytes:
    timestamps = rows.column("timestamp").cast(pa.int64()).to_numpy()
    return encode(rows, base_offset=0, offsets=np.arange(rows.num_rows), timestamps=timestamps)


def read_by(reader: Any, batch: bytes) -> pa.RecordBatch:
    found = reader(batch)
    assert found.validate_crc()
    columns = zip(*((each.key, each.value, each.headers or None, each.timestamp) for each in found), strict=True)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, RECORDS_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS_SCHEMA)


def write_by(builder: Any, rows: pa.RecordBatch) -> bytes:
    batch = builder(2, 0, 0, -1, -1, -1, MOST_BYTES)
    keys, values, headers = (rows.column(name).to_pylist() for name in ("key", "value", "headers"))
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    for offset, (key, value, pairs, timestamp) in enumerate(zip(keys, values, headers, times, strict=True)):
        batch.append(offset, timestamp, key, value, [(each["key"], each["value"]) for each in pairs or ()])
    return bytes(batch.build())


CODECS: dict[str, tuple[Callable[[bytes], object], Callable[[pa.RecordBatch], object]]] = {
    "eoslog": (partial(decode, max_bytes=MOST_BYTES), write),
    "aiokafka": (partial(read_by, AiokafkaBatch), partial(write_by, AiokafkaBuilder)),
    "kafka-python": (partial(read_by, KafkaPythonBatch), partial(write_by, KafkaPythonBuilder)),
}


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the CPU time of the fastest round. Other processes on the machine only make rounds slower."""
    found = []
    for _ in range(rounds):
        started = time.thread_time()
        work()
        found.append(time.thread_time() - started)
    return min(found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
