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
from eoslog.wording import quoted

_FORMS = (
    "a local path, file:///path, memory://name, s3://bucket/prefix, gs://bucket/prefix, "
    "abfss://container@account.dfs.core.windows.net/prefix, az://container/prefix"
)
_URL = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]+):(/?)")
"""The beginning of a URL. A single letter is a drive of Windows."""
_SCHEMES = ("file", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")
_WITHOUT_CONDITIONS = "it has no conditional put with If-None-Match, on which every guarantee of eoslog depends"
_REASONS = {
    "adl": "Azure Data Lake Storage Gen1 is retired",
    "adls": "write abfss://container@account.dfs.core.windows.net/prefix, or az://container/prefix",
    "azure": "write abfss://container@account.dfs.core.windows.net/prefix, or az://container/prefix",
    "cos": _WITHOUT_CONDITIONS,
    "cosn": _WITHOUT_CONDITIONS,
    "dbfs": "DBFS has no conditional put. Give the cloud's own URL of a bucket or an external location, such as s3://, "
    "abfss:// or gs://",
    "hdfs": "eoslog has no client of HDFS. Give an object store, or a local path",
    "http": "give s3://bucket/prefix, and the server as endpoint_url",
    "https": "give s3://bucket/prefix, and the server as endpoint_url. Azure's URL is "
    "abfss://container@account.dfs.core.windows.net/prefix",
    "obs": _WITHOUT_CONDITIONS,
    "oss": _WITHOUT_CONDITIONS,
    "s3n": "write s3://bucket/prefix",
    "viewfs": "eoslog has no client of HDFS. Give an object store, or a local path",
    "wasb": "write abfss://container@account.dfs.core.windows.net/prefix",
    "wasbs": "write abfss://container@account.dfs.core.windows.net/prefix",
}
"""Schemes of other systems, with the right spelling or the reason why eoslog refuses them.

They are refused even without a slash, which other paths may have.
"""
_BUCKET = re.compile(r"(?!\.+$)[A-Za-z0-9._$-]+")
"""Names that every cloud's buckets and containers may have, and some more."""
_HOST = re.compile(
    r"[a-z0-9-]+(\.z[0-9]+)?\.(dfs|blob)\.(core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net"
    r"|storage\.azure\.net|fabric\.microsoft\.com)"
)
"""The servers of storage accounts, also of sovereign clouds and of Fabric's OneLake. No other gets credentials."""


def open_object_store(url: str, environment: Environment, **options: Any) -> ObjectStore:
    """Return the object store at ``url``: a local path, ``file://``, ``memory://name``, or a prefix in a cloud.

    No request is sent yet. A local store has the option ``fsync``. It is true by default: then a put that has returned
    survives a power failure. Other stores have the options of ``S3Options``, ``GcsOptions`` or ``AzureOptions``. Values
    may be strings.

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
            from eoslog.storage.s3_options import S3Options
            from eoslog.storage.s3_store import S3Store

            bucket, prefix = _bucket_of(rest, "S3", "key, secret, endpoint_url")
            return S3Store(bucket, prefix, environment, S3Options.of(options))
        case "gs" | "gcs":
            from eoslog.storage.gcs_options import GcsOptions
            from eoslog.storage.gcs_store import GcsStore

            bucket, prefix = _bucket_of(rest, "Google Cloud Storage", "key_file, token, endpoint_url")
            return GcsStore(bucket, prefix, environment, GcsOptions.of(options))
        case "abfs" | "abfss":
            from eoslog.storage.azure_options import AzureOptions
            from eoslog.storage.azure_store import AzureStore

            place, prefix = _place_of(rest, "Azure", "account_key, sas_token, endpoint_url")
            container, _, host = place.partition("@")
            if not _BUCKET.fullmatch(container) or not _HOST.fullmatch(host):
                raise InvalidOption(
                    "An abfss:// URL names a container and the server of its account: "
                    "abfss://container@account.dfs.core.windows.net/prefix. For another server, give "
                    "az://container/prefix and the option endpoint_url."
                )
            return AzureStore(container, prefix, environment, AzureOptions.of(options), host=host)
        case "az":
            from eoslog.storage.azure_options import AzureOptions
            from eoslog.storage.azure_store import AzureStore

            container, prefix = _place_of(rest, "Azure", "account_key, sas_token, endpoint_url")
            if container and not _BUCKET.fullmatch(container):
                raise InvalidOption(
                    "An az:// URL names a container only: az://container/prefix, with the option account. With the "
                    "account it is abfss://container@account.dfs.core.windows.net/prefix."
                )
            return AzureStore(container, prefix, environment, AzureOptions.of(options))
    raise _refused(scheme)


def _bucket_of(rest: str, cloud: str, options: str) -> tuple[str, str]:
    """Return the bucket and the prefix of a URL without its scheme."""
    bucket, prefix = _place_of(rest, cloud, options)
    if "@" in bucket or ":" in bucket:
        raise InvalidOption(f"The bucket's name carries credentials or a port. Give {options}.")
    if bucket and not _BUCKET.fullmatch(bucket):
        raise InvalidOption(
            f"The bucket's name {quoted(bucket)} has other characters than letters, digits, dots, dashes and "
            "underscores. Correct the URL."
        )
    return bucket, prefix


def _place_of(rest: str, cloud: str, options: str) -> tuple[str, str]:
    if "?" in rest:
        raise InvalidOption(f"A URL of {cloud} has no query. Give options beside it, such as {options}.")
    place, _, prefix = rest.partition("/")
    return place, prefix


def _refused(scheme: str, advice: str = "") -> InvalidOption:
    reason = _REASONS.get(scheme.lower())
    if reason is not None:
        return InvalidOption(f"A store's URL cannot begin with {scheme.lower()}: {reason}. Valid are {_FORMS}.{advice}")
    return InvalidOption(f"Unknown scheme {quoted(scheme)} of a store's URL. Valid are {_FORMS}.{advice}")


def _path_of(url: str) -> str:
    """Return the local path of a text without ``://``.

    Such a text may be a misspelled URL. As a path it would become a new directory, and nobody would notice.
    """
    found = _URL.match(url)
    scheme = found[1].lower() if found is not None else ""
    if found is None or (not found[2] and scheme not in _SCHEMES and scheme not in _REASONS):
        return os.path.expanduser(url)
    if scheme == "file" and found[2]:
        return unquote(url[found.end(1) + 1 :])
    if scheme in _SCHEMES:
        slashes = "Three" if scheme == "file" else "Two"
        raise InvalidOption(f"{slashes} slashes follow the scheme of a store's URL. Valid are {_FORMS}.")
    raise _refused(scheme, f" A local path of this name begins with ./{scheme}:")


def _local(path: str, environment: Environment, options: dict[str, Any]) -> ObjectStore:
    from eoslog.storage.local_store import LocalStore

    fsync = checked_option("fsync", "bool", read_option("bool", options.pop("fsync", True)))
    if options:
        raise InvalidOption(f"Unknown option {sorted(options)[0]!r} of a local store; it has one: fsync.")
    if not path or "\0" in path or not _is_encodable(path):
        raise InvalidOption(
            f"A store's URL is empty, or has a character that no path may have: {quoted(path)}. Valid are {_FORMS}."
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
