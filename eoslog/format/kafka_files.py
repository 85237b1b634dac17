"""Two files of a segment, byte for byte as Kafka writes them.

The ``.txnindex`` has the aborted transactions. The ``.snapshot`` has the producer states at the segment's start, each
with its last batch only, as in Kafka. Earlier sequences are in the log's own checkpoints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

from eoslog.errors import CorruptRecord
from eoslog.format.checked_files import crc32c
from eoslog.state.partition_state import NO_OFFSET, NO_SEQUENCE, AbortedTransaction, ProducerState, SequenceRange

_INDEX_VERSION = 0
_TRANSACTION = struct.Struct(">hqqqq")
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_PRODUCER_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")


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
            body += _TRANSACTION.pack(
                _INDEX_VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
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
    whole = len(body) - len(body) % _TRANSACTION.size
    for number, (version, *numbers) in enumerate(_TRANSACTION.iter_unpack(memoryview(body)[:whole])):
        if version != _INDEX_VERSION:
            raise CorruptRecord(f"{name}: entry {number} has version {version}, not {_INDEX_VERSION}")
        entry = AbortedTransaction(*numbers)
        if fault := _fault(entry, previous):
            raise CorruptRecord(f"{name}: entry {number}: {fault}")
        yield entry
        previous = entry
    if whole != len(body):
        raise CorruptRecord(f"{name}: {len(body)} bytes are not a multiple of an entry's {_TRANSACTION.size}")


def _fault(entry: AbortedTransaction, previous: AbortedTransaction | None) -> str | None:
    if min(entry.producer_id, entry.first_offset, entry.last_stable_offset) < 0:
        return "a producer id or offset is negative"
    if entry.last_offset < entry.first_offset:
        return f"last offset {entry.last_offset} is before first offset {entry.first_offset}"
    if previous is not None and entry.last_offset <= previous.last_offset:
        return f"last offset {entry.last_offset} is not after the previous entry's, {previous.last_offset}"
    return None


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """One producer's last batch and open transaction in a partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    """Sequence of the producer's last row; -1 if it wrote none in this epoch."""
    last_offset: int
    """Offset of the producer's last row (inclusive); -1 if it wrote none in this epoch."""
    offset_delta: int
    """Last offset minus first offset of the last batch."""
    timestamp: int
    """Time of the last batch or marker, in ms since 1970; -1 if there is none."""
    coordinator_epoch: int
    """Always 0 or -1: eoslog needs no coordinator epoch, because a conditional append fences each step."""
    current_txn_first_offset: int
    """First offset of the open transaction; -1 if none is open."""


def encode_producer_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """Encode a snapshot file with these producers, in the given order.

    Raises:
        ValueError: a number does not fit into its field.
    """
    body = bytearray(_PRODUCER_COUNT.pack(len(entries)))
    for entry in entries:
        try:
            body += _PRODUCER.pack(*astuple(entry))
        except struct.error as error:
            raise ValueError(f"{entry} cannot be stored: {error}") from None
    return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + bytes(body)


def decode_producer_snapshot(body: bytes, name: str) -> list[ProducerSnapshotEntry]:
    """Decode the producers of a snapshot file.

    Args:
        body: the content of the file.
        name: the path of the file, for error messages.

    Raises:
        CorruptRecord: the file is not a snapshot of this version, or its checksum is wrong.
    """
    if len(body) < _SNAPSHOT_HEAD.size + _PRODUCER_COUNT.size:
        raise CorruptRecord(f"{name}: {len(body)} bytes are too few for a producer snapshot")
    version, checksum = _SNAPSHOT_HEAD.unpack_from(body)
    if version != _SNAPSHOT_VERSION:
        raise CorruptRecord(f"{name}: producer snapshot version {version} is not {_SNAPSHOT_VERSION}")
    actual = crc32c(body[_SNAPSHOT_HEAD.size :])
    if actual != checksum:
        raise CorruptRecord(f"{name}: checksum is {actual:#010x}, the file says {checksum:#010x}")
    (count,) = _PRODUCER_COUNT.unpack_from(body, _SNAPSHOT_HEAD.size)
    entries = body[_SNAPSHOT_HEAD.size + _PRODUCER_COUNT.size :]
    if count * _PRODUCER.size != len(entries):
        raise CorruptRecord(
            f"{name}: {len(entries)} bytes do not hold {count} producers of {_PRODUCER.size} bytes each"
        )
    return [ProducerSnapshotEntry(*numbers) for numbers in _PRODUCER.iter_unpack(entries)]


def snapshot_entries(producers: Iterable[ProducerState]) -> list[ProducerSnapshotEntry]:
    """Return the entries of producers for a ``.snapshot`` (Kafka's ``ProducerStateEntry``), ordered by producer id."""
    return [_snapshot_entry(producer) for producer in sorted(producers, key=lambda producer: producer.producer_id)]


def _snapshot_entry(producer: ProducerState) -> ProducerSnapshotEntry:
    last = producer.batches[-1] if producer.batches else None
    return ProducerSnapshotEntry(
        producer_id=producer.producer_id,
        epoch=producer.producer_epoch,
        last_sequence=NO_SEQUENCE if last is None else last.last_sequence,
        last_offset=NO_OFFSET if last is None else last.last_offset,
        offset_delta=0 if last is None else last.last_offset - last.base_offset,
        timestamp=producer.last_timestamp,
        coordinator_epoch=0,
        current_txn_first_offset=producer.current_txn_first_offset,
    )


def producer_of(entry: ProducerSnapshotEntry) -> ProducerState:
    """Return the producer state of an entry. It is the inverse of ``snapshot_entries``."""
    batches: tuple[SequenceRange, ...] = ()
    if entry.last_offset != NO_OFFSET:
        batches = (
            # Snapshots do not have the first sequence, so neither does a snapshot derived from this one.
            SequenceRange(
                NO_SEQUENCE,
                entry.last_sequence,
                entry.last_offset - entry.offset_delta,
                entry.last_offset,
                entry.timestamp,
            ),
        )
    return ProducerState(entry.producer_id, entry.epoch, batches, entry.timestamp, entry.current_txn_first_offset)


def count_of(length: int) -> int:
    """Return the number of producers in a file of this length (bytes)."""
    return (length - _SNAPSHOT_HEAD.size - _PRODUCER_COUNT.size) // _PRODUCER.size
