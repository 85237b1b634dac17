"""Data files: the rows of a batch as Parquet, and the checks before a stored file is believed."""

from __future__ import annotations

import google_crc32c

from eoslog.errors import CorruptRecord


def crc32c(body: bytes | bytearray | memoryview) -> int:
    """The CRC-32C (Castagnoli) of some bytes, as Kafka computes it."""
    return int(google_crc32c.value(bytes(body)))


def check_file(body: bytes, length: int, checksum: int, name: str) -> None:
    """Compare a file with what the entry that names it says.

    Args:
        body: the whole file.
        length: its length in bytes, by the entry.
        checksum: its CRC-32C, by the entry.
        name: its path, for the message of an error.

    Raises:
        CorruptRecord: if it is another.
    """
    if len(body) != length:
        raise CorruptRecord(f"{name}: has {len(body)} bytes, but its entry says {length}")
    actual = crc32c(body)
    if actual != checksum:
        raise CorruptRecord(f"{name}: checksum is {actual:#010x}, but its entry says {checksum:#010x}")
