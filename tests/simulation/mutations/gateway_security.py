"""Mutations of the security of gateways.

They import the gateway only when they are applied: kio imports hypothesis, which pytest has to import first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.mutations.mutation import instead_of, method, mutation

AUTHENTICATION = "unit/gateway/test_authentication.py::"
TOKENS = "unit/gateway/test_oauth.py::"


@mutation(unit_test=AUTHENTICATION + "test_before_its_authentication_a_client_sends_nothing_else")
def requests_of_strangers() -> Iterator[None]:
    """The requests of strangers are answered: each of them reads and writes all topics."""
    from eoslog.gateway.authentication import Authentication

    with method(Authentication, "refusal", lambda self, key: None):
        yield


@mutation(unit_test=AUTHENTICATION + "test_a_session_ends_unless_the_client_authenticates_again")
def sessions_without_end() -> Iterator[None]:
    """A session does not end with its token: a client with an expired token goes on for ever."""
    from eoslog.gateway.authentication import Authentication, Identity

    original = Authentication._admit

    def admit(self: Authentication, identity: Identity) -> None:
        original(self, Identity(identity.principal))

    with method(Authentication, "_admit", admit):
        yield


@mutation(unit_test=AUTHENTICATION + "test_a_connection_keeps_its_principal_and_its_mechanism")
def changed_principals() -> Iterator[None]:
    """A connection changes its principal: the log names another client than the one that sends the requests."""
    from eoslog.gateway.authentication import Authentication, Identity

    original = Authentication._admit

    def admit(self: Authentication, identity: Identity) -> None:
        self.principal = None
        original(self, identity)

    with method(Authentication, "_admit", admit):
        yield


@mutation(unit_test="unit/gateway/test_gateway_sasl.py::test_other_machines_connect_only_with_tls_and_sasl")
def open_addresses() -> Iterator[None]:
    """Other machines connect without TLS and SASL: each of them may use the gateway's credentials."""
    from eoslog.gateway.addresses import check_address

    with instead_of(check_address, lambda address, *, has_tls, has_sasl: None):
        yield


@mutation(
    unit_test="unit/gateway/test_gateway_tls.py::test_strangers_choose_no_group_that_is_slow_to_compute[ffdhe8192]"
)
def slow_handshakes() -> Iterator[None]:
    """A stranger chooses the slowest exchange of keys: a few connections a second stop the gateway for all clients."""
    import ssl

    with method(ssl.SSLContext, "set_ecdh_curve", lambda self, name: None):
        yield


def _decoding(**options: bool) -> Any:
    import jwt

    original = jwt.decode

    def decode(token: str, key: Any, algorithms: Any, given: Any, **more: Any) -> Any:
        return original(token, key, algorithms, {**given, **options}, **more)

    return method(jwt, "decode", decode)


@mutation(unit_test=TOKENS + "test_a_token_that_breaks_a_rule_is_refused")
def tokens_for_others() -> Iterator[None]:
    """A token for another audience is accepted: each service that gets a user's token may act as this user."""
    with _decoding(verify_aud=False):
        yield


@mutation(unit_test=TOKENS + "test_a_token_that_breaks_a_rule_is_refused")
def expired_tokens() -> Iterator[None]:
    """An expired token is accepted: a token that was lost long ago opens the gateway."""
    from eoslog.gateway import oauth

    with _decoding(verify_exp=False), method(oauth, "host_time_ms", lambda: 0):
        yield


@mutation(unit_test=TOKENS + "test_keys_that_are_shared_secrets_are_ignored")
def tokens_by_shared_secrets() -> Iterator[None]:
    """A shared secret counts as a key of the issuer: each service that knows it signs tokens of every user."""
    from eoslog.gateway import oauth

    with method(oauth, "_ALGORITHMS", (*oauth._ALGORITHMS, "HS256")):
        yield
