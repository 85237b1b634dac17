"""Files of a store that lie on this host, each by what its name says that it is. Kafka's index files are among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic_core import from_json

from eoslog.cli.dump_lines import (
    Line,
    aborted_lines,
    batch_line,
    footer_lines,
    part_line,
    part_lines,
    producer_lines,
    root_line,
    slot_lines,
)
from eoslog.errors import CorruptRecord, InvalidRequest
from eoslog.log.checkpoint import decode_root, inline_body
from eoslog.log.record import decode_line, first_line
from eoslog.segment.data_file import open_data_file
from eoslog.segment.producer_snapshot import decode_producer_snapshot
from eoslog.segment.segment_index import iterate_segment_index
from eoslog.segment.transaction_index import iterate_transaction_index

_KNOWN = ".txnindex, .snapshot, .index.parquet, .parquet, .json (a slot or a checkpoint) and .part<n> of a checkpoint"


def file_lines(path: Path) -> Iterator[Line]:
    """What a file holds.

    Raises:
        CorruptRecord: it is not what its name says. The lines before the fault have been given.
        InvalidRequest: its name says nothing.
        OSError: it cannot be read.
    """
    name = str(path)
    if name.endswith(".index.parquet"):
        yield from map(batch_line, iterate_segment_index(path.read_bytes(), name))
    elif name.endswith(".parquet"):
        with path.open("rb") as opened:
            yield from footer_lines(open_data_file(opened, name))
    elif name.endswith(".txnindex"):
        yield from aborted_lines(iterate_transaction_index(path.read_bytes(), name))
    elif name.endswith(".snapshot"):
        yield from producer_lines(decode_producer_snapshot(path.read_bytes(), name))
    elif path.suffix.startswith(".part"):
        yield from part_lines(name, path.read_bytes())
    elif name.endswith(".json"):
        yield from _json_lines(path.read_bytes(), name)
    else:
        raise InvalidRequest(f"{name}: nothing of a store is named like this; known are {_KNOWN}")


def _json_lines(body: bytes, name: str) -> Iterator[Line]:
    line = first_line(body)
    try:
        value = from_json(line)
    except ValueError as error:
        raise CorruptRecord(f"{name} is no JSON: {error}") from None
    if isinstance(value, dict) and "parts" in value:
        root = decode_root(body, name)
        yield root_line(root)
        for part in root.parts:
            yield part_line(part)
            if part.path is None:
                yield from part_lines(part.name, inline_body(part))
    elif isinstance(value, dict) and isinstance(value.get("slot"), int):
        yield from slot_lines(decode_line(line, value["slot"]), {})
    else:
        raise CorruptRecord(f"{name} is neither a slot record nor the root of a checkpoint")
