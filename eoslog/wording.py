"""The wording of messages: values in a safe form, counted nouns, and the known names that are like a wrong one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError

LONGEST_MESSAGE = 8_000
"""The longest message (characters). Messages repeat values of stores and users, which must not flood a log."""
_LONGEST_GIVEN = 100
"""The longest repeated value (characters)."""
_SEPARATORS = re.compile(r"[._-]")
_MOST_NAMED = 20
"""A message lists at most this number of a store's names."""
_MOST_COMPARED = 1_000
"""A wrong name is compared with at most this number of a store's names."""
_CODE = re.compile(r"\A\[EOSLOG_[A-Z_]+\] ")


def one_line(text: str) -> str:
    """Return a text in a form that is safe in logs and terminals: one line, no control characters, not too long."""
    if len(text) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        text = f"{text[:half]} ...{len(text) - 2 * half} characters... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else " " if each in "\n\r\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def shortened(given: object) -> str:
    """Return a value for a message; only its beginning if it is long."""
    try:
        text = str(given)
    except Exception:  # an error of the value's own class, or a number with thousands of digits
        text = f"<{type(given).__name__}>"
    return text if len(text) <= _LONGEST_GIVEN else f"{text[: _LONGEST_GIVEN - 3]}..."


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or the name of its class if it has no text."""
    return shortened((str(error).splitlines() or [type(error).__name__])[0])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 row`` or ``2 rows``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def quoted(given: object) -> str:
    """Return a value for a message as its Python literal; only its beginning if it is long."""
    if isinstance(given, str):
        return repr(shortened(given))
    try:
        return shortened(repr(given))
    except Exception:  # as for ``shortened``
        return f"<{type(given).__name__}>"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like ``name``; None if no name is like it.

    Upper and lower case, dots, dashes and underscores do not count.
    """
    from difflib import get_close_matches

    plain = {_SEPARATORS.sub("", each.lower()): each for each in known}
    like = get_close_matches(_SEPARATORS.sub("", name.lower()), plain, n=1)
    return plain[like[0]] if like else None


def unknown(
    subject: str, name: str, known: Iterable[str], *, listed: Iterable[str] | None = None, prefix: str = ""
) -> str:
    """Return the message that a name is unknown, with the nearest known name and the valid names.

    Args:
        subject: what is unknown, such as ``option 'topics'``.
        name: the unknown name.
        known: the names that the user may have meant.
        listed: the valid names that the message lists; ``known`` if None.
        prefix: the beginning of all these names. It does not make two names alike.
    """
    names = list(known)
    like = nearest(name.removeprefix(prefix), [each.removeprefix(prefix) for each in names])
    hint = f"Did you mean {quoted(prefix + like)}? Valid are" if like is not None else "Valid are"
    return f"{subject} is unknown. {hint} {', '.join(names if listed is None else listed)}"


def without_code(error: Exception | str) -> str:
    """Return the message of an error without its code, to include it in another message."""
    return _CODE.sub("", str(error))


def none_named(kind: str, given: str, existing: Iterable[str]) -> str:
    """Return the message that a store has nothing of this name, with the nearest name and the first existing names."""
    names = sorted(existing)
    like = nearest(given, names[:_MOST_COMPARED])
    hint = f"Did you mean {quoted(like)}? " if like is not None else ""
    return f"no {kind} is named {quoted(given)}. {hint}The store has: {', '.join(names[:_MOST_NAMED]) or 'none'}"


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a validation and its location, such as ``entries.0.type: Field required``."""
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{location}: {first['msg']}"
