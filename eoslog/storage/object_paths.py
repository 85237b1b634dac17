"""The rules for object paths: they are relative, have plain parts, and cannot leave the store's root."""

from __future__ import annotations

from eoslog.errors import InvalidRequest

TEMPORARY = ".tmp"
"""The root's directory for temporary files. It holds no objects, and no LIST shows it."""

LONGEST_PATH_BYTES = 900

_LONGEST_PART_BYTES = 255


def check_path(path: str) -> str:
    """Return the path if it is valid for an object; otherwise raise ``InvalidRequest``."""
    parts = path.split("/")
    if "" in parts:
        raise InvalidRequest(f"Object path {path!r} is absolute or has an empty part; give 'part/part/name'.")
    _check_parts(path, parts)
    return path


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is valid: empty, or a path whose last part may be incomplete."""
    *parts, _ = prefix.split("/")
    if "" in parts:
        raise InvalidRequest(f"Prefix {prefix!r} is absolute or has an empty part; give 'part/part/beginning'.")
    _check_parts(prefix, prefix.split("/"))
    return prefix


def check_directory(prefix: str) -> str:
    """Return the prefix if it names a directory: empty for the root, or ending in ``/``."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequest(f"Prefix {prefix!r} does not name a directory; end it in '/'.")
    return check_prefix(prefix)


def check_range(start: int, length: int) -> None:
    """Raise ``InvalidRequest`` if a byte range has negative numbers."""
    if start < 0 or length < 0:
        raise InvalidRequest(f"Range of {length} bytes from {start} is not possible; both must be at least 0.")


def _check_parts(path: str, parts: list[str]) -> None:
    if "." in parts or ".." in parts or parts[0] == TEMPORARY:
        raise InvalidRequest(f"Path {path!r} has a part '.' or '..', or begins with '{TEMPORARY}'; leave it out.")
    if "\\" in path or not path.isprintable():
        raise InvalidRequest(f"Path {path!r} has a control character or a backslash; leave it out.")
    encoded = path.encode()
    if len(encoded) > LONGEST_PATH_BYTES or max(map(len, encoded.split(b"/"))) > _LONGEST_PART_BYTES:
        raise InvalidRequest(
            f"Path {path[:80]!r}… is too long; a part has at most {_LONGEST_PART_BYTES} bytes and the whole at most"
            f" {LONGEST_PATH_BYTES}."
        )
