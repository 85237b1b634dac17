"""Opening an object store by its URL and options."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from eoslog.arguments import checked_option, read_option
from eoslog.errors import InvalidOption
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.s3_options import S3Options
from eoslog.wording import quoted

_FORMS = "a local path, file:///path, memory://name, s3://bucket/prefix"
_URL = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]+):(/?)")
"""The beginning of a URL. A single letter is a drive of Windows."""
_SCHEMES = ("file", "memory", "s3", "s3a")
_FOREIGN_SCHEMES = ("abfs", "abfss", "dbfs", "gs", "hdfs", "http", "https", "s3n", "wasb", "wasbs")
"""Schemes of other systems. They are refused even without a slash, which other paths may have."""


def open_object_store(url: str, environment: Environment, **options: Any) -> ObjectStore:
    """Return the object store at ``url``: a local path, ``file://``, ``memory://name`` or ``s3://bucket/prefix``.

    No request is sent yet. A local store has the option ``fsync``. It is true by default: then a put that has returned
    survives a power failure. An S3 store has the options of ``S3Options``. Values may be strings.

    Raises:
        InvalidOption: the scheme or an option is unknown, or a value is not allowed.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _local(_path_of(url), environment, options)
    match scheme.lower():
        case "file":
            return _local(_path_of_file_url(url), environment, options)
        case "memory":
            from eoslog.storage.memory_store import MemoryStore

            if options:
                raise InvalidOption(f"Unknown option {sorted(options)[0]!r} of a memory store; it has none.")
            return MemoryStore(environment, rest.strip("/"))
        case "s3" | "s3a":
            from eoslog.storage.s3_store import S3Store

            bucket, _, prefix = rest.partition("/")
            if "@" in bucket or ":" in bucket:
                raise InvalidOption("The bucket's name carries credentials or a port; give key, secret, endpoint_url.")
            if "?" in rest:
                raise InvalidOption("An S3 URL has no query; give options beside it, as key, secret, endpoint_url.")
            return S3Store(bucket, prefix, environment, S3Options.of(options))
    raise InvalidOption(f"Unknown scheme {quoted(scheme)} of a store's URL; valid are {_FORMS}.")


def _path_of(url: str) -> str:
    """Return the local path of a text without ``://``.

    Such a text may be a misspelled URL. As a path it would become a new directory, and nobody would notice.
    """
    found = _URL.match(url)
    scheme = found[1].lower() if found is not None else ""
    if found is None or (not found[2] and scheme not in _SCHEMES + _FOREIGN_SCHEMES):
        return os.path.expanduser(url)
    if scheme == "file" and found[2]:
        return unquote(url[found.end(1) + 1 :])
    if scheme in _SCHEMES:
        slashes = "Three" if scheme == "file" else "Two"
        raise InvalidOption(f"{slashes} slashes follow the scheme of a store's URL; valid are {_FORMS}.")
    raise InvalidOption(
        f"Unknown scheme {quoted(scheme)} of a store's URL; valid are {_FORMS}. A local path of this name begins "
        f"with ./{scheme}:"
    )


def _local(path: str, environment: Environment, options: dict[str, Any]) -> ObjectStore:
    from eoslog.storage.local_store import LocalStore

    fsync = checked_option("fsync", "bool", read_option("bool", options.pop("fsync", True)))
    if options:
        raise InvalidOption(f"Unknown option {sorted(options)[0]!r} of a local store; it has one: fsync.")
    if not path or "\0" in path or not _is_encodable(path):
        raise InvalidOption(
            f"A store's URL is empty, or has a character that no path may have: {quoted(path)}; valid are {_FORMS}."
        )
    return LocalStore(path, environment, fsync=fsync)


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _path_of_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InvalidOption(f"{url!r} names the host {parts.netloc!r}; a local store is file:///path, three slashes.")
    return unquote(parts.path)
