"""Decompression takes what Kafka's clients write, and no more memory than allowed."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from aiokafka import codec as aiokafka
from kafka import codec as kafka_python

from eoslog.gateway.batch_errors import BatchTooLarge, InvalidBatch, UnsupportedBatch
from eoslog.gateway.decompression import GZIP, LZ4, SNAPPY, ZSTD, decompress

TEXT = b"".join(b"row %d\n" % index for index in range(20_000))
MOST = 1 << 20
WRITERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip of aiokafka": (GZIP, aiokafka.gzip_encode),
    "gzip of kafka-python": (GZIP, kafka_python.gzip_encode),
    "snappy of aiokafka, framed": (SNAPPY, aiokafka.snappy_encode),
    "snappy of kafka-python, framed": (SNAPPY, kafka_python.snappy_encode),
    "snappy, raw as by librdkafka": (SNAPPY, lambda data: kafka_python.snappy_encode(data, False)),
    "lz4 of aiokafka": (LZ4, aiokafka.lz4_encode),
    "lz4 of kafka-python": (LZ4, kafka_python.lz4_encode),
    "lz4, linked, with checksums": (
        LZ4,
        lambda data: lz4.frame.compress(data, block_linked=True, content_checksum=True, block_checksum=True),
    ),
    "lz4, without its size": (LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
    "zstd of aiokafka": (ZSTD, aiokafka.zstd_encode),
    "zstd of kafka-python": (ZSTD, kafka_python.zstd_encode),
    "zstd, without its size": (
        ZSTD,
        zstandard.ZstdCompressor(level=19, write_content_size=False, write_checksum=True).compress,
    ),
}
BY_WRITER = pytest.mark.parametrize(("compression", "writer"), WRITERS.values(), ids=list(WRITERS))


@BY_WRITER
@pytest.mark.parametrize(
    "data", [b"", b"a", TEXT, random.Random(1).randbytes(100_000)], ids=["", "a", "text", "random"]
)
def test_data_of_a_client(compression: int, writer: Callable[[bytes], bytes], data: bytes) -> None:
    written = writer(data)

    assert decompress(compression, written, max_bytes=len(data)) == data
    if data:
        with pytest.raises(BatchTooLarge):
            decompress(compression, written, max_bytes=len(data) - 1)


@BY_WRITER
def test_a_part_of_the_data_is_corrupt(compression: int, writer: Callable[[bytes], bytes]) -> None:
    written = writer(TEXT)
    for size in (1, 5, 15, 17, 19, len(written) // 2, len(written) - 1):
        with pytest.raises(InvalidBatch):
            decompress(compression, written[:size], max_bytes=MOST)
    with pytest.raises(InvalidBatch):
        decompress(compression, written + b"more", max_bytes=MOST)


@BY_WRITER
def test_wrong_bytes_raise_nothing_else(compression: int, writer: Callable[[bytes], bytes]) -> None:
    written, chance = writer(TEXT), random.Random(7)
    for _ in range(300):
        at = chance.randrange(min(len(written), 40) if chance.random() < 0.5 else len(written))
        wrong = written[:at] + chance.randbytes(chance.randrange(1, 5)) + written[at + 1 :]
        try:
            assert len(decompress(compression, wrong, max_bytes=MOST)) <= MOST
        except (InvalidBatch, BatchTooLarge):
            continue


@pytest.mark.parametrize(
    ("compression", "writer"),
    [
        (GZIP, gzip.compress),
        (LZ4, lz4.frame.compress),
        (ZSTD, zstandard.compress),
        (SNAPPY, kafka_python.snappy_encode),
        (SNAPPY, lambda data: kafka_python.snappy_encode(data, False)),
        (SNAPPY, lambda _: b"\xff\xff\xff\xff\x0f\x00"),
    ],
    ids=["gzip", "lz4", "zstd", "framed snappy", "raw snappy", "claimed snappy"],
)
def test_a_small_input_takes_no_more_memory_than_allowed(compression: int, writer: Callable[[bytes], bytes]) -> None:
    bomb = writer(bytes(64 << 20))
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decompress(compression, bomb, max_bytes=MOST)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * MOST + len(bomb)
    assert pool.bytes_allocated() - before < MOST


def test_empty_blocks_of_snappy_are_refused_before_all_are_read() -> None:
    header, empty = kafka_python.snappy_encode(b"")[:16], b"\x00\x00\x00\x01\x00"

    with pytest.raises(InvalidBatch, match="a block of snappy is empty, and others follow"):
        decompress(SNAPPY, header + empty * 1000, max_bytes=MOST)


def test_a_block_of_snappy_has_its_exact_size() -> None:
    # 5 bytes are claimed, and 3 are there: Arrow must not fill up the rest.
    with pytest.raises(InvalidBatch):
        decompress(SNAPPY, b"\x05\x08abc", max_bytes=MOST)


@pytest.mark.parametrize("size", [-1, 1_000, 2**31 - 1])
def test_a_framed_block_lies_within_the_data(size: int) -> None:
    written = kafka_python.snappy_encode(b"text")
    wrong = written[:16] + size.to_bytes(4, "big", signed=True) + written[20:]

    with pytest.raises(InvalidBatch, match="block"):
        decompress(SNAPPY, wrong, max_bytes=MOST)


@pytest.mark.parametrize("compression", [-1, 5, 6, 7])
def test_other_compressions_are_unknown(compression: int) -> None:
    with pytest.raises(UnsupportedBatch, match=f"compression {compression}"):
        decompress(compression, b"", max_bytes=MOST)
