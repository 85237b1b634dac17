"""The ``.snapshot`` of a segment: the producer states at its start, byte for byte as Kafka writes them (version 1).

Kafka's format has only the last batch of each producer. Earlier sequences are in the log's own checkpoints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import crc32c
from eoslog.state.partition_state import NO_OFFSET, NO_SEQUENCE, ProducerState, SequenceRange

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


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
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        try:
            body += _ENTRY.pack(*astuple(entry))
        except struct.error as error:
            raise ValueError(f"{entry} cannot be stored: {error}") from None
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_producer_snapshot(body: bytes, name: str) -> list[ProducerSnapshotEntry]:
    """Decode the producers of a snapshot file.

    Args:
        body: the content of the file.
        name: the path of the file, for error messages.

    Raises:
        CorruptRecord: the file is not a snapshot of this version, or its checksum is wrong.
    """
    if len(body) < _HEAD.size + _COUNT.size:
        raise CorruptRecord(f"{name}: {len(body)} bytes are too few for a producer snapshot")
    version, checksum = _HEAD.unpack_from(body)
    if version != _VERSION:
        raise CorruptRecord(f"{name}: producer snapshot version {version} is not {_VERSION}")
    actual = crc32c(body[_HEAD.size :])
    if actual != checksum:
        raise CorruptRecord(f"{name}: checksum is {actual:#010x}, the file says {checksum:#010x}")
    (count,) = _COUNT.unpack_from(body, _HEAD.size)
    entries = body[_HEAD.size + _COUNT.size :]
    if count * _ENTRY.size != len(entries):
        raise CorruptRecord(f"{name}: {len(entries)} bytes do not hold {count} producers of {_ENTRY.size} bytes each")
    return [ProducerSnapshotEntry(*numbers) for numbers in _ENTRY.iter_unpack(entries)]


def snapshot_entries(producers: Iterable[ProducerState]) -> list[ProducerSnapshotEntry]:
    """Return the entries of producers for a ``.snapshot`` (Kafka's ``ProducerStateEntry``), ordered by producer id."""
    return [_snapshot_entry(producer) for producer in sorted(producers, key=lambda producer: producer.producer_id)]


def _snapshot_entry(producer: ProducerState) -> ProducerSnapshotEntry:
    last = producer.batches[-1] if producer.batches else None
    return ProducerSnapshotEntry(
        producer.producer_id,
        producer.producer_epoch,
        NO_SEQUENCE if last is None else last.last_sequence,
        NO_OFFSET if last is None else last.last_offset,
        0 if last is None else last.last_offset - last.base_offset,
        producer.last_timestamp,
        0,
        producer.current_txn_first_offset,
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
    return (length - _HEAD.size - _COUNT.size) // _ENTRY.size
