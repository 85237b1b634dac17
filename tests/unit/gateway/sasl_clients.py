"""Clients that authenticate themselves to a gateway."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from scramp import ScramClient

from eoslog.gateway.protocol import ApiKey
from tests.unit.gateway.raw_client import Client


def handshake(client: Client, mechanism: str) -> Any:
    return client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)


def message(client: Client, content: bytes, version: int = 2) -> Any:
    """Send a message of the mechanism, and return the answer."""
    return client.call(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=content)


def log_in(client: Client, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", version: int = 2) -> Any:
    """Authenticate by SCRAM, and return the last answer."""
    assert handshake(client, mechanism).error_code is ErrorCode.none
    scram = ScramClient([mechanism], name, password)
    answer = message(client, scram.get_client_first().encode(), version)
    if answer.error_code is not ErrorCode.none:
        return answer
    scram.set_server_first(answer.auth_bytes.decode())
    answer = message(client, scram.get_client_final().encode(), version)
    if answer.error_code is ErrorCode.none:
        # The gateway knows the user, too.
        scram.set_server_final(answer.auth_bytes.decode())
    return answer
