"""References that leave the store."""

from __future__ import annotations

from collections.abc import Iterator


def paths_outside(value: object) -> Iterator[str]:
    """The paths within a JSON value that are absolute, have another scheme, or have ``..`` parts."""
    if isinstance(value, dict):
        path = value.get("path")
        if isinstance(path, str) and (
            path.startswith("/")
            or "://" in path
            or "\\" in path
            or any(part in ("", ".", "..") for part in path.split("/"))
        ):
            yield path
        for each in value.values():
            yield from paths_outside(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from paths_outside(each)
