"""A simulated world decodes the same bytes once: the results of pure functions of bytes are kept by the bytes.

A hundred processes of a history read the same checkpoint, each of them afresh, as real ones do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from eoslog.format import checkpoint_codec as checkpoint
from eoslog.format import segment_index
from eoslog.format.batch_columns import BatchColumns
from eoslog.format.stored_columns import stored_batches

_MOST_REMEMBERED = 20_000
_remembered: dict[tuple[object, bytes], Any] = {}


@contextmanager
def memoised() -> Iterator[None]:
    """Within it, checkpoints and segment indexes are decoded and encoded once for all processes and histories."""
    if len(_remembered) > _MOST_REMEMBERED:
        _remembered.clear()
    decode, encode, read_index = stored_batches, checkpoint._parquet, segment_index.decode_columns

    def columns(body: bytes, schema: pa.Schema, nullable: Set[str]) -> Iterator[pa.RecordBatch]:
        key = (decode, repr(schema.names).encode() + body)
        if key not in _remembered:
            _remembered[key] = tuple(decode(body, schema, nullable))
        return iter(_remembered[key])

    def parquet(rows: Iterable[Any], schema: pa.Schema) -> bytes:
        listed = list(rows)
        content = repr((schema.names, listed)).encode()
        known = _remembered.get((encode, content))
        if known is None:
            known = _remembered[encode, content] = encode(listed, schema)
        assert isinstance(known, bytes)
        return known

    def batches(body: bytes, name: str) -> BatchColumns:
        known = _remembered.get((read_index, body))
        if known is None:
            known = _remembered[read_index, body] = read_index(body, name)
        assert isinstance(known, BatchColumns)
        return known

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "stored_batches", columns)
        patch.setattr(checkpoint, "_parquet", parquet)
        patch.setattr(segment_index, "decode_columns", batches)
        yield
