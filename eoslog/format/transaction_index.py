"""The ``.txnindex`` of a segment: its aborted transactions, byte for byte as Kafka writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from eoslog.errors import CorruptRecord
from eoslog.state.partition_state import AbortedTransaction

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """Encode one 34-byte entry per transaction, in the order of their markers.

    Raises:
        ValueError: the entries are not in that order, or a number is negative or does not fit.
    """
    body = bytearray()
    previous: AbortedTransaction | None = None
    for entry in entries:
        if fault := _fault(entry, previous):
            raise ValueError(f"aborted transaction {entry} cannot be stored: {fault}")
        try:
            body += _ENTRY.pack(
                _VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
            )
        except struct.error as error:
            raise ValueError(f"aborted transaction {entry} cannot be stored: {error}") from None
        previous = entry
    return bytes(body)


def decode_transaction_index(body: bytes, name: str) -> list[AbortedTransaction]:
    """Decode the aborted transactions of an index file.

    Args:
        body: the content of the file.
        name: the path of the file, for error messages.

    Raises:
        CorruptRecord: the file is not such an index.
    """
    return list(iterate_transaction_index(body, name))


def iterate_transaction_index(body: bytes, name: str) -> Iterator[AbortedTransaction]:
    """Yield what ``decode_transaction_index`` returns. Transactions before a fault are yielded before the error."""
    previous: AbortedTransaction | None = None
    whole = len(body) - len(body) % _ENTRY.size
    for number, (version, *numbers) in enumerate(_ENTRY.iter_unpack(memoryview(body)[:whole])):
        if version != _VERSION:
            raise CorruptRecord(f"{name}: entry {number} has version {version}, not {_VERSION}")
        entry = AbortedTransaction(*numbers)
        if fault := _fault(entry, previous):
            raise CorruptRecord(f"{name}: entry {number}: {fault}")
        yield entry
        previous = entry
    if whole != len(body):
        raise CorruptRecord(f"{name}: {len(body)} bytes are not a multiple of an entry's {_ENTRY.size}")


def _fault(entry: AbortedTransaction, previous: AbortedTransaction | None) -> str | None:
    if min(entry.producer_id, entry.first_offset, entry.last_stable_offset) < 0:
        return "a producer id or offset is negative"
    if entry.last_offset < entry.first_offset:
        return f"last offset {entry.last_offset} is before first offset {entry.first_offset}"
    if previous is not None and entry.last_offset <= previous.last_offset:
        return f"last offset {entry.last_offset} is not after the previous entry's, {previous.last_offset}"
    return None
