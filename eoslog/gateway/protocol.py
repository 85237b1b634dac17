"""Kafka's protocol: the requests that the gateway answers, their versions, and the bytes of answers."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import IntEnum
from functools import cache
from typing import Any, TypeAlias

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from eoslog.gateway.error_codes import first_error
from eoslog.gateway.request_decoder import Frame, MalformedRequest, decode


class ApiKey(IntEnum):
    """The types of requests that the gateway answers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60


VERSIONS: Mapping[ApiKey, range] = {
    # Version 13 has topic ids.
    ApiKey.PRODUCE: range(3, 13),
    # From version 13 on the request has topic ids, and 15 is for brokers that fetch.
    ApiKey.FETCH: range(4, 13),
    ApiKey.LIST_OFFSETS: range(1, 9),
    ApiKey.METADATA: range(13),
    # Version 10 has topic ids, in this request and the next one.
    ApiKey.OFFSET_COMMIT: range(2, 10),
    ApiKey.OFFSET_FETCH: range(1, 10),
    # Version 6 is for share groups.
    ApiKey.FIND_COORDINATOR: range(6),
    ApiKey.JOIN_GROUP: range(10),
    ApiKey.HEARTBEAT: range(5),
    ApiKey.LEAVE_GROUP: range(6),
    ApiKey.SYNC_GROUP: range(6),
    ApiKey.DESCRIBE_GROUPS: range(7),
    ApiKey.LIST_GROUPS: range(6),
    # After version 0 the messages of the mechanism would come without a header.
    ApiKey.SASL_HANDSHAKE: range(1, 2),
    ApiKey.API_VERSIONS: range(5),
    ApiKey.CREATE_TOPICS: range(2, 8),
    ApiKey.DELETE_TOPICS: range(1, 7),
    ApiKey.DELETE_RECORDS: range(3),
    ApiKey.INIT_PRODUCER_ID: range(6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    # From version 4 on brokers send it, to verify the batches of clients.
    ApiKey.ADD_PARTITIONS_TO_TXN: range(4),
    ApiKey.ADD_OFFSETS_TO_TXN: range(5),
    ApiKey.END_TXN: range(6),
    ApiKey.TXN_OFFSET_COMMIT: range(6),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.ALTER_CONFIGS: range(3),
    ApiKey.SASL_AUTHENTICATE: range(3),
    ApiKey.CREATE_PARTITIONS: range(4),
    ApiKey.DELETE_GROUPS: range(3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
    ApiKey.OFFSET_DELETE: range(1),
    ApiKey.DESCRIBE_CLUSTER: range(3),
}
_FIRST_WITH_FEATURES = 3
_TRANSACTION_VERSION = "transaction.version"
_NEWEST_TRANSACTION_VERSION = 2
"""With it clients add partitions by their batches, and each end raises the epoch (KIP-890)."""
NO_TIME = timedelta(0)
_HEADER = struct.Struct(">hhi")
_SIZE = struct.Struct(">i")

Answer: TypeAlias = Sequence[bytes | memoryview]
"""The bytes of an answer, in parts."""


class UnsupportedRequest(Exception):
    """A request of a type or version that the gateway does not answer."""


class Api:
    """One version of a type of requests: its classes, and the bytes of its answers."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.key = key
        self.name = key.name.lower()
        self.version = version
        self.request: Any = load_request_schema(key, version)
        self._response: Any = load_response_schema(key, version)
        # The module has the classes of the parts of the answer, too.
        module = vars(sys.modules[self._response.__module__])
        self._parts = {
            name: (part, frozenset(field.name for field in fields(part)))
            for name, part in module.items()
            if isinstance(part, type) and part.__module__ == self._response.__module__
        }
        self._write_header = entity_writer(self._response.__header_schema__)
        self._write = entity_writer(self._response)

    def part(self, name: str, /, **values: Any) -> Any:
        """Return a part of an answer. Values of fields that this version does not have are left out."""
        part, known = self._parts[name]
        return part(**{field: value for field, value in values.items() if field in known})

    def response(self, **values: Any) -> Any:
        """Return an answer. Values of fields that this version does not have are left out."""
        return self.part(self._response.__name__, throttle_time=NO_TIME, **values)

    def encoded(self, correlation_id: int, response: Any) -> bytes:
        """Return the frame of an answer."""
        buffer = io.BytesIO()
        buffer.write(_SIZE.pack(0))
        self._write_header(buffer, self._response.__header_schema__(correlation_id=correlation_id))
        self._write(buffer, response)
        with buffer.getbuffer() as content:
            _SIZE.pack_into(content, 0, len(content) - _SIZE.size)
        return buffer.getvalue()


api = cache(Api)
"""Return the ``Api`` of a key and version. It is made once."""


@dataclass(slots=True)
class Request:
    """A request of a client. All fields but the last one stay."""

    api: Api
    correlation_id: int
    client_id: str | None
    message: Any
    """An object of kio's class of this request. Its byte fields are views of the frame."""
    client_host: str = ""
    """The address of the client's machine, as Kafka writes it."""
    outcome: ErrorCode = ErrorCode.none
    """The first error in the answer, when there is an answer."""

    def encoded(self, response: Any) -> bytes:
        """Return the frame of the answer to this request."""
        self.outcome = first_error(response)
        return self.api.encoded(self.correlation_id, response)


def api_key(content: bytes | bytearray) -> int:
    """Return the type of a request, without decoding the rest.

    Raises:
        MalformedRequest
    """
    if len(content) < _HEADER.size:
        raise MalformedRequest(f"a request has at least {_HEADER.size} bytes, not {len(content)}")
    number: int = _HEADER.unpack_from(content)[0]
    return number


def decode_request(content: bytes | bytearray, client_host: str = "") -> Request:
    """Return the request of a frame.

    A request for the versions of requests may have any version: its answer says which ones there are (KIP-511).

    Raises:
        UnsupportedRequest, MalformedRequest
    """
    number = api_key(content)
    _, version, correlation_id = _HEADER.unpack_from(content)
    try:
        key = ApiKey(number)
    except ValueError:
        raise UnsupportedRequest(f"requests of the type {number} are not supported") from None
    if version not in VERSIONS[key]:
        if key is ApiKey.API_VERSIONS:
            return Request(api(key, 0), correlation_id, None, None)
        raise UnsupportedRequest(f"version {version} of {key.name} is not supported")
    found = api(key, version)
    frame = Frame(memoryview(content))
    header = decode(found.request.__header_schema__, frame)
    return Request(found, correlation_id, header.client_id, decode(found.request, frame), client_host)


def milliseconds(duration: timedelta) -> int:
    """Return a duration in a request as milliseconds."""
    return round(duration.total_seconds() * 1000)


def supported_versions(request: Request) -> Any:
    """Return the answer to a request for the versions of requests."""
    newest = _NEWEST_TRANSACTION_VERSION
    return request.api.response(
        error_code=ErrorCode.unsupported_version if request.message is None else ErrorCode.none,
        api_keys=tuple(
            request.api.part("ApiVersion", api_key=key, min_version=versions.start, max_version=versions.stop - 1)
            for key, versions in VERSIONS.items()
        ),
        supported_features=_features(request, "SupportedFeatureKey", min_version=1, max_version=newest),
        finalized_features_epoch=0,
        finalized_features=_features(
            request, "FinalizedFeatureKey", min_version_level=newest, max_version_level=newest
        ),
    )


def _features(request: Request, kind: str, **versions: int) -> tuple[Any, ...]:
    """Return the only feature of the gateway, in versions of the answer that have features."""
    if request.api.version < _FIRST_WITH_FEATURES:
        return ()
    return (request.api.part(kind, name=_TRANSACTION_VERSION, **versions),)
