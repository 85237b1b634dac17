"""Spoiling well-formed input: bytes are flipped, cut, repeated and spliced, and values of JSON and Parquet replaced."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EVIL_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**53,
    2**62,
    2**63 - 1,
    2**64,
    -(2**63) - 1,
    10**400,
    1e308,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "0",
    "\x00",
    "\x1b[31m\n",
    "\ud800",
    "\u202e\u0130\U0001f600",
    "x" * 100_000,
    "../../../etc/passwd",
    "/etc/passwd",
    "s3://another/bucket",
    "file:///dev/zero",
    "%2e%2e/%2e%2e",
    "..\\..",
    [],
    {},
    [None] * 1000,
    {"type": "store"},
    [[[[[[[[]]]]]]]],
)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 2**15 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (b"NaN", b"Infinity", b"1e999", b"9" * 5000, b'"\\ud800"', b"\x00", b"\xff\xfe", b"null", b"{", b"]", b'"')


def mutate(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """A spoilt copy of some input; ``others`` are of its kind."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        body = chance.choice(_MUTATIONS)(chance, body, others)
    return body


def _flip(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    spoilt = bytearray(body)
    for _ in range(chance.choice((1, 2, 8))):
        if spoilt:
            spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
    return bytes(spoilt)


def _cut(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    return body[: chance.randint(0, len(body))]


def _remove(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    begin = chance.randint(0, len(body))
    return body[:begin] + body[begin + chance.choice((1, 4, 8, 64)) :]


def _repeat(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    begin = chance.randint(0, len(body))
    end = min(len(body), begin + chance.choice((1, 8, 64)))
    return body[:end] + body[begin:end] * chance.choice((1, 3, 100)) + body[end:]


def _splice(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    return body[: chance.randint(0, len(body))] + other[chance.randint(0, len(other)) :]


def _number(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    size = chance.choice((1, 2, 4, 8))
    number = chance.choice(_NUMBERS) % (1 << (8 * size))
    begin = chance.randint(0, max(0, len(body) - size))
    return body[:begin] + number.to_bytes(size, chance.choice(("big", "little"))) + body[begin + size :]


def _text(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    begin = chance.randint(0, len(body))
    return body[:begin] + chance.choice(_TEXTS) + body[chance.choice((begin, begin + 1)) :]


def _nest(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    depth = chance.choice((100, 3_000, 100_000))
    begin = chance.randint(0, len(body))
    opened, closed = chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"NOT ", b"")))
    return body[:begin] + opened * depth + b"1" + closed * depth + body[begin:]


def _json_value(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """Another value somewhere in a JSON document; lines behind the first stay as they are."""
    line, separator, rest = body.partition(b"\n")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return _flip(chance, body, others)
    places = list(_places(document))
    if not places:
        return _text(chance, body, others)
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            del holder[key]
        case 1:
            other_holder, other_key = chance.choice(places)
            holder[key] = other_holder[other_key]
        case _:
            holder[key] = chance.choice(EVIL_VALUES)
    try:
        return json.dumps(document).encode() + separator + rest
    except (ValueError, RecursionError):  # It now holds itself, or is nested too deeply to be written.
        return body


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON document that has a value: its holder and the key there."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 10_000:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else list(range(len(each))) if isinstance(each, list) else []
        for key in keys:
            found.append((each, key))
            waiting.append(each[key])
    return found


def _parquet_value(chance: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """A Parquet file that is whole, but holds another value, type or set of columns."""
    if body[:4] != b"PAR1":
        return _json_value(chance, body, others)
    try:
        table = pq.ParquetFile(io.BytesIO(body), thrift_container_size_limit=10_000).read(use_threads=False)
    except Exception:
        return _number(chance, body, others)
    index = chance.randrange(max(1, table.num_columns))
    try:
        match chance.randrange(5):
            case 0:
                table = table.remove_column(index)
            case 1:
                name = table.schema.names[index]
                column: Any = pa.nulls(table.num_rows, chance.choice((pa.string(), pa.int64(), pa.float64())))
                table = table.set_column(index, name, column)
            case 2:
                table = pa.concat_tables([table, table])
            case 3:
                table = table.append_column(table.schema.names[index], table.column(index))
            case _:
                listed = table.to_pylist()
                places = _places(listed)
                holder, key = chance.choice(places)
                holder[key] = chance.choice(EVIL_VALUES)
                table = pa.Table.from_pylist(listed, schema=table.schema)
        sink = io.BytesIO()
        pq.write_table(table, sink)
    except Exception:  # The value is not one of the column's type, or Arrow holds no such table.
        return _number(chance, body, others)
    return sink.getvalue()


_MUTATIONS: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    _flip,
    _cut,
    _remove,
    _repeat,
    _splice,
    _number,
    _text,
    _nest,
    _json_value,
    _json_value,
    _parquet_value,
    _parquet_value,
)
