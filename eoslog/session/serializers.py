"""Serializers and deserializers: an application's functions from its objects to the bytes of records, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from eoslog.errors import InvalidOption, SerializationFailed
from eoslog.wording import quoted

Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Its argument is a key or a value, never None."""
Deserializer: TypeAlias = Callable[[bytes], Any]
"""Its argument is the bytes of a key or a value, never None."""


def check_callable(name: str, function: object, arguments: int = 1) -> None:
    """Raises: InvalidOption: an option is neither None nor a function of this number of arguments."""
    if function is None:
        return
    expected = "a function of one argument" if arguments == 1 else f"a function of {arguments} arguments"
    if not callable(function):
        raise InvalidOption(f"{name} must be {expected}, not {quoted(function)}")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # Some functions of C have no signature.
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise InvalidOption(
            f"{name} must be {expected}, but {quoted(function)} takes {signature}: {error}. Wrap a "
            "function with a context in lambda value: function(value, None)"
        ) from None


def serialized(topic: str, part: str, serializer: Serializer | None, given: Any) -> Any:
    """Return a key or value as bytes. None stays None: no key, or a tombstone.

    Args:
        part: ``key`` or ``value``, for messages.

    Raises:
        SerializationFailed: the serializer raised an error.
    """
    if serializer is None or given is None:
        return given
    try:
        return serializer(given)
    except Exception as error:
        raise SerializationFailed(
            f"topic {topic}: the {part} serializer raised {type(error).__name__}: {error}. Nothing was added"
        ) from error
