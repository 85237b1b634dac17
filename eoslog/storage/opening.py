"""Opening an object store by its URL and options."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from eoslog.errors import InvalidOption
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.s3_options import S3Options

_FORMS = "a local path, file:///path, memory://name, s3://bucket/prefix"


def open_object_store(url: str, environment: Environment, **options: Any) -> ObjectStore:
    """Return the object store at ``url``: a local path, ``file://``, ``memory://name`` or ``s3://bucket/prefix``.

    No request is sent yet. A local store has the option ``fsync``. It is true by default: then a put that has returned
    survives a power failure. An S3 store has the options of ``S3Options``. Values may be strings.

    Raises:
        InvalidOption: the scheme or an option is unknown, or a value is not allowed.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        if url.startswith("file:/"):
            return _local(unquote(url.removeprefix("file:")), environment, options)
        if url.lower().startswith(("s3:", "s3a:", "memory:")):
            raise InvalidOption(f"Two slashes follow the scheme of a store's URL; valid are {_FORMS}.")
        return _local(os.path.expanduser(url), environment, options)
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
    raise InvalidOption(f"Unknown scheme {scheme!r} of a store's URL; valid are {_FORMS}.")


def _local(path: str, environment: Environment, options: dict[str, Any]) -> ObjectStore:
    from eoslog.storage.local_store import LocalStore

    fsync = _truth("fsync", options.pop("fsync", True))
    if options:
        raise InvalidOption(f"Unknown option {sorted(options)[0]!r} of a local store; it has one: fsync.")
    if not path or "\0" in path:
        raise InvalidOption(f"A store's URL is empty or has a NUL character; valid are {_FORMS}.")
    return LocalStore(path, environment, fsync=fsync)


def _path_of_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InvalidOption(f"{url!r} names the host {parts.netloc!r}; a local store is file:///path, three slashes.")
    return unquote(parts.path)


def _truth(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    match str(value).strip().lower():
        case "true" | "1" | "yes":
            return True
        case "false" | "0" | "no":
            return False
    raise InvalidOption(f"Option {name} is true or false, not {value!r}.")
