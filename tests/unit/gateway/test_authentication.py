"""The state machine of a connection's authentication."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from eoslog.gateway.authentication import (
    AuthenticateAnswer,
    Authentication,
    AuthenticationFailed,
    HandshakeAnswer,
    Identity,
    MechanismAnswer,
    Mechanisms,
)
from eoslog.gateway.protocol import ApiKey

SASL = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
BEFORE = {ApiKey.API_VERSIONS, *SASL}


class TwoSteps:
    """A mechanism: ``hello``, then the name of the principal, with a lifetime in milliseconds if it is limited."""

    def __init__(self) -> None:
        self._is_begun = False

    def answer(self, content: bytes) -> MechanismAnswer:
        if not self._is_begun and content == b"hello":
            self._is_begun = True
            return MechanismAnswer(b"who?")
        name, _, lifetime_ms = content.decode(errors="replace").partition(":")
        if not self._is_begun or not name.isalpha():
            raise AuthenticationFailed("wrong")
        return MechanismAnswer(b"welcome", Identity(name, int(lifetime_ms) if lifetime_ms.isdigit() else None))


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


TWO: Mechanisms = {"A": TwoSteps, "B": TwoSteps}


def authenticated(clock: Clock, content: bytes = b"alice") -> Authentication:
    authentication = Authentication(TWO, clock)
    assert authentication.handshake("A") == HandshakeAnswer(ErrorCode.none, ("A", "B"))
    assert authentication.authenticate(b"hello") == AuthenticateAnswer(content=b"who?")
    assert authentication.authenticate(content).error is ErrorCode.none
    return authentication


def allowed(authentication: Authentication) -> set[ApiKey]:
    return {key for key in ApiKey if authentication.refusal(key) is None}


def test_a_client_is_authenticated_by_the_messages_of_its_mechanism() -> None:
    authentication = authenticated(Clock())

    assert (authentication.is_authenticated, authentication.principal) == (True, "alice")
    assert allowed(authentication) == set(ApiKey)


def test_before_its_authentication_a_client_sends_nothing_else() -> None:
    authentication = Authentication(TWO, Clock())
    assert allowed(authentication) == BEFORE
    authentication.handshake("A")
    assert allowed(authentication) == BEFORE
    authentication.authenticate(b"hello")
    assert allowed(authentication) == BEFORE
    assert authentication.principal is None
    assert authentication.refusal(4_711) is not None


def test_without_mechanisms_everything_is_allowed_except_an_authentication() -> None:
    authentication = Authentication({}, Clock())

    assert allowed(authentication) == set(ApiKey)
    assert authentication.authenticate(b"").error is ErrorCode.illegal_sasl_state
    assert authentication.has_failed
    other = Authentication({}, Clock())
    assert other.handshake("A") == HandshakeAnswer(ErrorCode.illegal_sasl_state, ())
    assert other.has_failed


def test_an_unknown_mechanism_gets_the_list_of_the_known_ones() -> None:
    authentication = Authentication(TWO, Clock())

    assert authentication.handshake("PLAIN") == HandshakeAnswer(ErrorCode.unsupported_sasl_mechanism, ("A", "B"))
    assert authentication.has_failed
    assert allowed(authentication) == BEFORE


@pytest.mark.parametrize("first", [b"", b"alice", b"hello again"])
def test_a_message_that_the_mechanism_refuses_ends_the_connection(first: bytes) -> None:
    authentication = Authentication(TWO, Clock())
    authentication.handshake("A")

    assert authentication.authenticate(first) == AuthenticateAnswer(ErrorCode.sasl_authentication_failed, "wrong")
    assert authentication.has_failed
    # It stays so.
    assert authentication.authenticate(b"hello").error is ErrorCode.illegal_sasl_state
    assert authentication.handshake("A").error is ErrorCode.illegal_sasl_state
    assert (authentication.has_failed, authentication.is_authenticated) == (True, False)


def test_messages_come_in_their_order() -> None:
    early = Authentication(TWO, Clock())
    assert early.authenticate(b"hello").error is ErrorCode.illegal_sasl_state
    assert early.has_failed
    twice = Authentication(TWO, Clock())
    twice.handshake("A")
    assert twice.handshake("A").error is ErrorCode.illegal_sasl_state
    assert twice.has_failed
    late = authenticated(Clock())
    assert late.authenticate(b"hello").error is ErrorCode.illegal_sasl_state
    assert late.has_failed


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    clock = Clock()
    authentication = Authentication(TWO, clock)
    authentication.handshake("A")
    authentication.authenticate(b"hello")
    assert authentication.authenticate(b"alice:500").session_lifetime_ms == 500
    clock.now_ms += 499
    assert allowed(authentication) == set(ApiKey)
    clock.now_ms += 1
    assert allowed(authentication) == SASL

    assert authentication.handshake("A") == HandshakeAnswer(ErrorCode.none, ("A",))
    assert allowed(authentication) == SASL
    authentication.authenticate(b"hello")
    assert authentication.authenticate(b"alice:700").session_lifetime_ms == 700
    clock.now_ms += 699
    assert allowed(authentication) == set(ApiKey)
    clock.now_ms += 1
    assert allowed(authentication) == SASL


def test_a_client_authenticates_again_before_its_session_ends() -> None:
    clock = Clock()
    authentication = authenticated(clock, b"alice:500")
    authentication.handshake("A")
    authentication.authenticate(b"hello")
    authentication.authenticate(b"alice")
    clock.now_ms += 1_000_000

    assert allowed(authentication) == set(ApiKey)


def test_a_connection_keeps_its_principal_and_its_mechanism() -> None:
    authentication = authenticated(Clock())
    authentication.handshake("A")
    authentication.authenticate(b"hello")
    answer = authentication.authenticate(b"bob")
    assert (answer.error, answer.message) == (
        ErrorCode.sasl_authentication_failed,
        "this connection belongs to 'alice'",
    )
    assert (authentication.has_failed, authentication.principal) == (True, "alice")

    other = authenticated(Clock())
    assert other.handshake("B") == HandshakeAnswer(ErrorCode.unsupported_sasl_mechanism, ("A",))
    assert other.has_failed


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["handshake", "authenticate"]),
        st.sampled_from(["A", "B", "C", "hello", "alice", "bob", "alice:5", "\0"]),
    )
)


@given(CALLS)
def test_only_a_whole_exchange_opens_the_connection(calls: list[tuple[str, str]]) -> None:
    authentication = Authentication(TWO, Clock())
    begun: list[str] = []
    principals = []
    for call, text in calls:
        if call == "handshake":
            ok = authentication.handshake(text).error is ErrorCode.none
            begun = ["handshake"] if ok else []
        else:
            answer = authentication.authenticate(text.encode())
            ok = answer.error is ErrorCode.none
            begun.append(text)
        if authentication.is_authenticated:
            assert ok
            assert begun[:2] == ["handshake", "hello"]
            principals.append(begun[2].partition(":")[0])
            begun = []
        assert authentication.has_failed == (not ok)
        if not ok:
            break
    assert len(set(principals)) <= 1
