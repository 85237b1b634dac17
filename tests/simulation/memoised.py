"""What a simulated world decodes many times over is decoded once: pure functions of bytes, remembered by their bytes.

A hundred processes of a history read the same checkpoint, each of them afresh, as real ones do.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from eoslog.rules import checkpoint
from eoslog.rules.partition_state import Batch
from eoslog.rules.stored_rows import stored_rows
from eoslog.segment import segment_index

_MOST_REMEMBERED = 20_000
_remembered: dict[tuple[object, bytes], bytes | tuple[Batch, ...]] = {}


@contextmanager
def memoised() -> Iterator[None]:
    """Within it, checkpoints and segment indexes are decoded and encoded once for all processes and histories."""
    if len(_remembered) > _MOST_REMEMBERED:
        _remembered.clear()
    decode, encode, read_index = stored_rows, checkpoint._parquet, segment_index.iterate_segment_index

    def rows(body: bytes, schema: pa.Schema, nullable: Set[str]) -> Iterator[list[dict[str, Any]]]:
        key = (decode, repr(schema.names).encode() + body)
        known = _remembered.get(key)
        if known is None:
            known = _remembered[key] = pickle.dumps(list(decode(body, schema, nullable)))
        assert isinstance(known, bytes)
        # Rows are changed by who reads them, so each gets its own.
        found: list[list[dict[str, Any]]] = pickle.loads(known)
        return iter(found)

    def parquet(rows: Iterable[Any], schema: pa.Schema) -> bytes:
        listed = list(rows)
        content = repr((schema.names, listed)).encode()
        known = _remembered.get((encode, content))
        if known is None:
            known = _remembered[encode, content] = encode(listed, schema)
        assert isinstance(known, bytes)
        return known

    def batches(body: bytes, name: str) -> Iterator[Batch]:
        known = _remembered.get((read_index, body))
        if known is None:
            known = _remembered[read_index, body] = tuple(read_index(body, name))
        assert isinstance(known, tuple)
        return iter(known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "stored_rows", rows)
        patch.setattr(checkpoint, "_parquet", parquet)
        patch.setattr(segment_index, "iterate_segment_index", batches)
        yield
