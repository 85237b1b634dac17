"""Decompression of the records of a batch, with a bound on their size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from eoslog.gateway.batch_errors import BatchTooLarge, InvalidBatch, UnsupportedBatch
from eoslog.gateway.varints import read_unsigned_varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
"""Kafka's numbers of compressions."""
_STREAMS: dict[int, Literal["gzip", "lz4", "zstd"]] = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
"""Arrow's names of the compressions whose data tells its end, but not always its size."""
_READ_BYTES = 256 << 10
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = len(_XERIAL_MAGIC) + 8
"""Two versions follow the magic. Some clients write them in the wrong byte order, so they are not read."""
_BLOCK_SIZE = struct.Struct(">i")
_SNAPPY = pa.Codec("snappy")


def decompress(compression: int, data: bytes, *, max_bytes: int) -> bytes:
    """Return the records of a batch without compression.

    Memory is taken as records are found, up to about twice ``max_bytes``, whatever size the data claims.

    Args:
        compression: Kafka's number of the compression.
        data: the bytes behind the header of the batch.

    Raises:
        BatchTooLarge: the records have more than ``max_bytes`` bytes.
        InvalidBatch: the data is not what the compression writes.
        UnsupportedBatch: the compression is unknown.
    """
    if compression == NONE:
        parts = iter([data])
    elif compression == SNAPPY:
        parts = _snappy_blocks(data, max_bytes)
    elif compression in _STREAMS:
        parts = _stream(_STREAMS[compression], data)
    else:
        raise UnsupportedBatch(f"compression {compression} is unknown. Use none, gzip, snappy, lz4 or zstd")
    found, left = [], max_bytes
    try:
        for part in parts:
            left -= len(part)
            if left < 0:
                raise _too_large(max_bytes)
            found.append(part)
    except (OSError, pa.ArrowException) as error:
        raise InvalidBatch(f"the records of a batch cannot be decompressed: {error}") from None
    return found[0] if len(found) == 1 else b"".join(found)


def _stream(name: Literal["gzip", "lz4", "zstd"], data: bytes) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        while part := stream.read(_READ_BYTES):
            yield part


def _snappy_blocks(data: bytes, max_bytes: int) -> Iterator[bytes]:
    """Decompress the blocks in the format of snappy-java (xerial), which Java's clients write, or one raw block."""
    if not data.startswith(_XERIAL_MAGIC):
        yield _snappy_block(data, max_bytes)
        return
    if len(data) < _XERIAL_HEADER_BYTES:
        raise InvalidBatch("the header of snappy's blocks is not whole")
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        begin = at + _BLOCK_SIZE.size
        if begin > len(data):
            raise InvalidBatch("the last block of snappy has no size")
        (size,) = _BLOCK_SIZE.unpack_from(data, at)
        if not 0 <= size <= len(data) - begin:
            raise InvalidBatch(f"a block of snappy has {size} bytes, but {len(data) - begin} are left")
        at = begin + size
        part = _snappy_block(data[begin:at], max_bytes)
        if not part and at < len(data):
            # Millions of blocks without content would take a thread for a minute.
            raise InvalidBatch("a block of snappy is empty, and others follow")
        yield part


def _snappy_block(data: bytes, max_bytes: int) -> bytes:
    size, _ = read_unsigned_varint(data, 0)
    if size > max_bytes:
        raise _too_large(max_bytes)
    # The size must be exact: Arrow fills a larger result with other bytes of the memory.
    found: bytes = _SNAPPY.decompress(data, size, asbytes=True)
    return found


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"the records of a batch have more than {max_bytes} bytes. Send smaller batches")
