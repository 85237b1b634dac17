"""Decoding of requests: the same as kio's, and never more memory than the frame allows."""

from __future__ import annotations

import struct
import tracemalloc
import types
import typing
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema

from eoslog.gateway.protocol import VERSIONS, ApiKey, UnsupportedRequest, decode_request
from eoslog.gateway.request_decoder import MalformedRequest
from tests.unit.gateway.raw_client import frame

REQUESTS = [(key, version) for key, versions in VERSIONS.items() for version in versions]
_NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def messages(message: type) -> st.SearchStrategy[Any]:
    """Messages of one of kio's classes, with any values."""
    hints = typing.get_type_hints(message)
    return st.builds(
        message,
        **{field.name: _values(hints[field.name], field.metadata.get("kafka_type")) for field in fields(message)},
    )


def _values(hint: Any, kafka_type: str | None) -> st.SearchStrategy[Any]:
    if isinstance(hint, types.UnionType):
        (inner,) = (each for each in typing.get_args(hint) if each is not type(None))
        return st.none() | _values(inner, kafka_type)
    if typing.get_origin(hint) is tuple:
        return st.lists(_values(typing.get_args(hint)[0], kafka_type), max_size=3).map(tuple)
    if is_dataclass(hint):
        return messages(typing.cast(type, hint))
    if kafka_type in _NUMBERS:
        bits = _NUMBERS[kafka_type]
        return st.integers(-(1 << bits), (1 << bits) - 1)
    if kafka_type == "timedelta_i64":
        return st.integers(-(1 << 55), 1 << 55).map(lambda each: timedelta(milliseconds=each))
    if kafka_type == "timedelta_i32":
        return st.integers(-(1 << 31), (1 << 31) - 1).map(lambda each: timedelta(milliseconds=each))
    if kafka_type == "uuid":
        return st.uuids()
    return {
        "bool": st.booleans(),
        "string": st.text(max_size=20),
        **dict.fromkeys(("bytes", "records"), st.binary(max_size=50)),
    }[kafka_type or ""]


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in fields(message)}


@given(data=st.data(), request_type=st.sampled_from(REQUESTS))
def test_each_request_is_decoded_as_it_was_encoded(data: st.DataObject, request_type: tuple[ApiKey, int]) -> None:
    key, version = request_type
    message = data.draw(messages(load_request_schema(key, version)))

    found = decode_request(frame(key, version, correlation_id=7, **_fields(message))[4:])

    assert (found.api.key, found.api.version, found.correlation_id, found.client_id) == (key, version, 7, "tests")
    assert found.message == message


@given(
    data=st.data(),
    request_type=st.sampled_from(REQUESTS),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 40),
)
def test_damaged_requests_are_refused_and_nothing_else_happens(
    data: st.DataObject, request_type: tuple[ApiKey, int], changes: list[tuple[int, int]], cut: int
) -> None:
    key, version = request_type
    content = bytearray(frame(key, version, **_fields(data.draw(messages(load_request_schema(key, version)))))[4:])
    for place, byte in changes:
        content[8 + place % (len(content) - 8)] = byte

    for damaged in (bytes(content), bytes(content[: len(content) - cut])):
        with suppress(MalformedRequest, UnsupportedRequest):
            decode_request(damaged)


@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_request_are_refused(content: bytes) -> None:
    with suppress(MalformedRequest, UnsupportedRequest):
        decode_request(content)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_a_false_length_takes_no_memory(length: bytes) -> None:
    # kio's own decoder ends the process here: it reserves 32 GB for the topics that the length claims.
    header = struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1) + b"\0"
    content = header + b"\0" + struct.pack(">hi", -1, 1000) + length

    tracemalloc.start()
    with pytest.raises(MalformedRequest):
        decode_request(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 20


def test_a_request_with_too_many_elements_is_refused_before_it_takes_their_memory() -> None:
    header = struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1)

    with pytest.raises(MalformedRequest, match="at most 100000"):
        decode_request(header + struct.pack(">i", 1_000_000) + b"\0\0" * 1_000_000)


def test_a_string_that_older_versions_could_not_have_is_refused() -> None:
    def named(size: int) -> bytes:
        return frame(ApiKey.DELETE_GROUPS, 2, groups_names=("x" * size,))[4:]

    assert decode_request(named(32_767)).message.groups_names == ("x" * 32_767,)
    with pytest.raises(MalformedRequest):
        decode_request(named(32_768))


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key, versions in VERSIONS.items() for version in (versions.start - 1, versions.stop)]
    + [(38, 0), (-1, 0), (999, 3)],
)
def test_other_requests_and_versions_are_not_supported(key: int, version: int) -> None:
    content = struct.pack(">hhi", key, version, 5) + b"\xff" * 40

    if key == ApiKey.API_VERSIONS:
        # The answer says which versions there are.
        assert decode_request(content).message is None
    else:
        with pytest.raises(UnsupportedRequest, match="not supported"):
            decode_request(content)
