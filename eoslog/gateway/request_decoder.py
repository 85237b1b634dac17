"""Decoding of requests: the bytes of a frame become a message of kio's schemas.

kio's own decoder is native code. It reserves memory for as many elements as a length in the frame claims, and a false
length ends the whole process. So requests, which anyone may send, are decoded here. kio's classes say what to read.
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from kio.static.constants import EntityType

_MOST_ELEMENTS = 100_000
"""A request has at most this many elements in its lists. In memory each takes hundreds of bytes."""
_LONGEST_TEXT = (1 << 15) - 1
"""A string has at most this many bytes, as in Kafka. Otherwise answers of older versions could not repeat it."""
_LONGEST_VARINT = 5


class MalformedRequest(Exception):
    """The bytes of a frame are no request of its type."""


class Frame:
    """The bytes of a request, and the place of the next field."""

    __slots__ = ("at", "buffer", "elements_left")

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.at = 0
        self.elements_left = _MOST_ELEMENTS

    def take(self, size: int) -> memoryview:
        """Return the next bytes, without a copy."""
        begin, end = self.at, self.at + size
        if not size >= 0 or end > len(self.buffer):
            raise MalformedRequest(f"a field of {size} bytes does not fit into the {len(self.buffer)} bytes of a frame")
        self.at = end
        return self.buffer[begin:end]

    def unsigned_varint(self) -> int:
        value = 0
        for place in range(_LONGEST_VARINT):
            byte = self.buffer[self.at]
            self.at += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise MalformedRequest(f"a length has more than {_LONGEST_VARINT} bytes")

    def count(self, size: int) -> int:
        """Check the number of elements of a list, and return it."""
        self.elements_left -= size
        if size < 0 or self.elements_left < 0:
            raise MalformedRequest(f"a list has {size} elements; a request has at most {_MOST_ELEMENTS}")
        return size


_Read: TypeAlias = Callable[[Frame], Any]


def decode(message: type, frame: Frame) -> Any:
    """Return the message of this class that begins here, and move past it.

    Byte fields are views of the frame.

    Raises:
        MalformedRequest: the frame does not hold one.
    """
    try:
        return _reader(message)(frame)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedRequest(f"{message.__name__}: {error}") from None


def _number(code: str) -> _Read:
    layout = struct.Struct(f">{code}")

    def read(frame: Frame) -> Any:
        (value,) = layout.unpack_from(frame.buffer, frame.at)
        frame.at += layout.size
        return value

    return read


_int16, _int32 = _number("h"), _number("i")


def _duration(frame: Frame) -> timedelta:
    return timedelta(milliseconds=_int32(frame))


_int64 = _number("q")
_LONGEST_MS = 1 << 55
"""About a million years. Python's durations go up to little more."""


def _long_duration(frame: Frame) -> timedelta:
    return timedelta(milliseconds=max(-_LONGEST_MS, min(_int64(frame), _LONGEST_MS)))


def _uuid(frame: Frame) -> UUID | None:
    found = UUID(bytes=bytes(frame.take(16)))
    return found if found.int else None


_FIXED: dict[str, _Read] = {
    "bool": _number("?"),
    "int8": _number("b"),
    "int16": _int16,
    "int32": _int32,
    "int64": _int64,
    "timedelta_i32": _duration,
    "timedelta_i64": _long_duration,
    "uuid": _uuid,
}


def _sized(length_of: _Read, *, flexible: bool, may_be_null: bool, read: Callable[[Frame, int], Any]) -> _Read:
    """Return the reader of a field with a length before it. In flexible versions 0 means null, and 1 the length 0."""

    def read_field(frame: Frame) -> Any:
        length = frame.unsigned_varint() - 1 if flexible else length_of(frame)
        if length < 0:
            if may_be_null and length == -1:
                return None
            raise MalformedRequest(f"a field that is required has the length {length}")
        return read(frame, length)

    return read_field


def _text(frame: Frame, length: int) -> str:
    if length > _LONGEST_TEXT:
        raise MalformedRequest(f"a string has {length} bytes; at most {_LONGEST_TEXT} are allowed")
    return str(frame.take(length), "utf-8")


@cache
def _reader(message: type) -> _Read:
    """Return the reader of a class of messages or of parts of messages."""
    flexible: bool = message.__flexible__  # type: ignore[attr-defined]
    hints = typing.get_type_hints(message)
    ordered: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    for field in fields(message):
        # The client's name in a header keeps its old form, so that a server can read it before it knows the version.
        is_compact = flexible and message.__type__ is not EntityType.header  # type: ignore[attr-defined]
        read = _field_reader(hints[field.name], field.metadata.get("kafka_type"), flexible=is_compact)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field.name, read
        else:
            ordered.append((field.name, read))

    def read_message(frame: Frame) -> Any:
        values = {name: read(frame) for name, read in ordered}
        if flexible:
            for _ in range(frame.count(frame.unsigned_varint())):
                tag, size = frame.unsigned_varint(), frame.unsigned_varint()
                content = frame.take(size)
                if tag in tagged:
                    name, read = tagged[tag]
                    part = Frame(content)
                    part.elements_left = frame.elements_left
                    values[name] = read(part)
                    frame.elements_left = part.elements_left
        return message(**values)

    return read_message


def _field_reader(hint: Any, kafka_type: str | None, *, flexible: bool) -> _Read:
    may_be_null = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        may_be_null = True
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if typing.get_origin(hint) is tuple:
        element = _field_reader(typing.get_args(hint)[0], kafka_type, flexible=flexible)

        def read_list(frame: Frame, length: int) -> tuple[Any, ...]:
            return tuple([element(frame) for _ in range(frame.count(length))])

        return _sized(_int32, flexible=flexible, may_be_null=may_be_null, read=read_list)
    if kafka_type == "string":
        return _sized(_int16, flexible=flexible, may_be_null=may_be_null, read=_text)
    if kafka_type in ("bytes", "records"):
        return _sized(_int32, flexible=flexible, may_be_null=may_be_null, read=Frame.take)
    if is_dataclass(hint):
        return _reader(typing.cast(type, hint))
    if kafka_type is None or kafka_type not in _FIXED:
        raise TypeError(f"a request has a field of the type {kafka_type}, {hint}")
    return _FIXED[kafka_type]
