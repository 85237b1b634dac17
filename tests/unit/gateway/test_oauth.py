"""OAUTHBEARER: tokens, the messages of clients, and the keys of the issuer."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from eoslog.errors import InvalidOption
from eoslog.gateway.authentication import AuthenticationFailed, MechanismAnswer
from eoslog.gateway.oauth import OAuthTokens, TokenRules
from eoslog.gateway.protocol import ApiKey
from eoslog.gateway.security import security
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.tokens import AUDIENCE, ISSUER, Issuer, KeyServer, key_server
from tests.unit.gateway.raw_client import Client, batch, produce, running
from tests.unit.gateway.sasl_clients import handshake, message


class Clock(Environment):
    """Elapsed time that tests move."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def published(issuer: Issuer) -> Iterator[KeyServer]:
    with key_server(issuer) as found:
        yield found


@pytest.fixture
def keys(published: KeyServer, issuer: Issuer) -> Iterator[KeyServer]:
    published.publish(issuer.public_key())
    published.is_down, published.requests = False, 0
    yield published
    published.answers.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(keys: KeyServer, clock: Clock) -> OAuthTokens:
    return OAuthTokens(TokenRules(keys.url, ISSUER, AUDIENCE), clock)


def of(token: str, *, header: str = "n,,", more: str = "") -> bytes:
    """The message of a client with a token."""
    return f"{header}\x01auth=Bearer {token}{more}\x01\x01".encode()


def reason(tokens: OAuthTokens, content: bytes) -> str:
    with pytest.raises(AuthenticationFailed) as failure:
        tokens.answer(content)
    text = str(failure.value)
    assert text.startswith("OAUTHBEARER: ")
    return text.removeprefix("OAUTHBEARER: ")


def identified(answer: MechanismAnswer) -> str:
    assert answer.identity is not None
    assert answer.content == b""
    return answer.identity.principal


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256"])
def test_a_token_proves_its_subject_for_the_rest_of_its_life(
    keys: KeyServer, tokens: OAuthTokens, algorithm: str
) -> None:
    issuer = Issuer("other", algorithm)
    keys.publish(issuer.public_key())

    identity = tokens.answer(of(issuer.token(lifetime_s=600, sub="client-7"))).identity

    assert identity is not None
    assert identity.principal == "client-7"
    assert identity.lifetime_ms is not None
    assert 590_000 < identity.lifetime_ms <= 600_000


def test_a_session_is_limited_and_may_be_long(tokens: OAuthTokens, issuer: Issuer) -> None:
    identity = tokens.answer(of(issuer.token(exp=1e300))).identity

    assert identity is not None
    assert identity.lifetime_ms == 365 * 24 * 3_600_000


def test_messages_of_several_forms_are_understood(tokens: OAuthTokens, issuer: Issuer) -> None:
    token = issuer.token()
    for content in (
        of(token),
        of(token, more="\x01logicalCluster=lkc-1\x01identityPoolId=pool-1"),
        of(token, header="n,a=alice,"),
        b"n,,\x01host=h\x01port=9092" + of(token, header=""),
        b"n,,\x01auth=bearer " + token.encode() + b"\x01\x01",
    ):
        assert identified(tokens.answer(content)) == "alice"
    assert identified(tokens.answer(of(issuer.token(aud=["other", AUDIENCE])))) == "alice"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"exp": 1_000}, "the token has expired"),
        ({"lifetime_s": -1}, "the token has expired"),
        ({"exp": None}, "the token lacks one of the claims exp, iss, aud and sub"),
        ({"sub": None}, "the token lacks one of the claims exp, iss, aud and sub"),
        ({"aud": None}, "the token lacks one of the claims exp, iss, aud and sub"),
        ({"iss": None}, "the token lacks one of the claims exp, iss, aud and sub"),
        ({"aud": "other"}, "the token is for another audience"),
        ({"aud": [AUDIENCE + "2", "other"]}, "the token is for another audience"),
        ({"iss": "https://other.example.com"}, "the token is from another issuer"),
        ({"nbf": 4_000_000_000}, "the token is not valid yet"),
        ({"iat": 4_000_000_000}, "the token is not valid yet"),
        ({"sub": ""}, "the token names no principal (sub)"),
        ({"sub": "two\nlines"}, "the token names no principal (sub)"),
        ({"exp": "soon"}, "the token is not valid"),
        ({"exp": float("inf")}, "the token is not valid"),
        ({"header": {"kid": "unknown"}}, "the gateway does not know the key of the token"),
    ],
)
def test_a_token_that_breaks_a_rule_is_refused(
    tokens: OAuthTokens, issuer: Issuer, claims: dict[str, Any], expected: str
) -> None:
    assert reason(tokens, of(issuer.token(**claims))) == expected


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims))
    return ".".join((*parts, ""))


def test_a_token_needs_the_signature_of_the_issuer(tokens: OAuthTokens, issuer: Issuer, keys: KeyServer) -> None:
    token = issuer.token()
    forged = Issuer().token(sub="admin")
    assert reason(tokens, of(forged)) == "the signature of the token is wrong"
    head, body, signature = token.split(".")
    assert (
        reason(tokens, of(".".join((head, forged.split(".")[1], signature)))) == "the signature of the token is wrong"
    )
    without_key = base64.urlsafe_b64encode(b'{"alg":"RS256"}').decode().rstrip("=")
    expected = "the gateway does not know the key of the token"
    assert reason(tokens, of(".".join((without_key, body, signature)))) == expected
    claims = jwt.decode(token, options={"verify_signature": False})
    for algorithm in ("none", "NONE", "HS256"):
        assert reason(tokens, of(unsigned({"alg": algorithm, "kid": "first"}, claims))) == "the token is not valid"


def test_keys_that_are_shared_secrets_are_ignored(tokens: OAuthTokens, issuer: Issuer, keys: KeyServer) -> None:
    secret = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    keys.publish({"kty": "oct", "k": secret, "kid": "shared", "alg": "HS256"}, issuer.public_key())
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})

    assert identified(tokens.answer(of(issuer.token()))) == "alice"
    forged = jwt.encode(claims, bytes(32), "HS256", {"kid": "shared"})
    assert reason(tokens, of(forged)) == "the gateway does not know the key of the token"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"n,,n=alice,r=nonce",
        b"n,,\x01auth=Basic YTpi\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a",
        b"n,,\x01auth=Bearer a\x01",
        b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * (64 << 10) + b"\x01\x01",
        b"\xff\xfe",
    ],
)
def test_what_is_no_message_with_a_token_is_refused(tokens: OAuthTokens, content: bytes, keys: KeyServer) -> None:
    assert reason(tokens, content) == "this is no message of the mechanism with a bearer token"
    assert keys.requests == 0


def test_a_client_is_no_other_than_that_of_its_token(tokens: OAuthTokens, issuer: Issuer) -> None:
    expected = "the client asks for another identity than that of its token"
    assert reason(tokens, of(issuer.token(), header="n,a=admin,")) == expected


def test_new_keys_of_the_issuer_are_fetched_but_not_for_each_token(
    tokens: OAuthTokens, issuer: Issuer, keys: KeyServer, clock: Clock
) -> None:
    second = Issuer("second")
    assert identified(tokens.answer(of(issuer.token()))) == "alice"
    keys.publish(issuer.public_key(), second.public_key())
    for _ in range(5):
        assert reason(tokens, of(second.token())) == "the gateway does not know the key of the token"
    assert keys.requests == 1
    clock.now_ms += 10_000
    assert identified(tokens.answer(of(second.token()))) == "alice"
    for _ in range(5):
        tokens.answer(of(issuer.token()))
    assert keys.requests == 2

    # A key that the issuer has withdrawn.
    keys.publish(second.public_key())
    clock.now_ms += 300_000
    assert reason(tokens, of(issuer.token())) == "the gateway does not know the key of the token"
    assert keys.requests == 3


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"keys": []}', b'{"keys": [{"kty": "RSA"}]}', b"[" * 99_999, b"\xff", None]
)
def test_while_the_issuer_is_silent_its_keys_are_used_for_an_hour(
    tokens: OAuthTokens,
    issuer: Issuer,
    keys: KeyServer,
    clock: Clock,
    content: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tokens.answer(of(issuer.token()))
    keys.is_down = content is None
    keys.content = content or b""
    clock.now_ms += 300_000
    for _ in range(3):
        assert identified(tokens.answer(of(issuer.token()))) == "alice"
    assert keys.requests == 2
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)
    assert f"the keys of the issuer cannot be fetched from {keys.url}" in warning

    clock.now_ms += 3_300_000
    assert reason(tokens, of(issuer.token())) == "the gateway does not know the key of the token"
    keys.is_down = False
    keys.publish(issuer.public_key())
    clock.now_ms += 10_000
    assert identified(tokens.answer(of(issuer.token()))) == "alice"


def test_while_the_issuer_does_not_answer_clients_wait_for_a_short_time_at_most(
    tokens: OAuthTokens, issuer: Issuer, keys: KeyServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    def wait_for(event: threading.Event, patience_s: float | None = None) -> bool:
        waits.append(patience_s)
        return event.wait(0.05)

    assert identified(tokens.answer(of(issuer.token()))) == "alice"
    keys.answers.clear()
    monkeypatch.setattr(clock, "wait_for", wait_for)
    clock.now_ms += 300_000
    # The first one begins the fetch. Others do not wait if they have a known key.
    for _ in range(3):
        assert identified(tokens.answer(of(issuer.token()))) == "alice"
    assert waits == [5]
    for _ in range(2):
        clock.now_ms += 4_000
        assert reason(tokens, of(Issuer("second").token())) == "the gateway does not know the key of the token"
    assert waits == [5, 1, 0]

    clock.now_ms += 3_300_000
    assert reason(tokens, of(issuer.token())) == "the gateway does not know the key of the token"
    assert keys.requests == 2


def test_an_issuer_that_cannot_be_reached_at_the_start_is_asked_later(
    issuer: Issuer, keys: KeyServer, clock: Clock
) -> None:
    keys.is_down = True
    tokens = OAuthTokens(TokenRules(keys.url, ISSUER, AUDIENCE), clock)
    assert reason(tokens, of(issuer.token())) == "the gateway does not know the key of the token"
    keys.is_down = False
    clock.now_ms += 10_000
    assert identified(tokens.answer(of(issuer.token()))) == "alice"


def test_nothing_of_a_token_is_shown(tokens: OAuthTokens, issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens.answer(of(issuer.token()))
    caplog.clear()
    token = issuer.token(aud="secret audience", secret_claim="secret")
    for content in (of(token), of(token[:-20]), of("x" + token)):
        with pytest.raises(AuthenticationFailed) as failure:
            tokens.answer(content)
        assert not any(part in str(failure.value) + caplog.text for part in ("secret", *token.split(".")))
        assert failure.value.__cause__ is None


TOKENS = st.text("abcAZ09-_.=", max_size=60) | st.lists(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5)
    | st.fixed_dictionaries({"alg": st.sampled_from(["RS256", "none", 5]), "kid": st.sampled_from(["first", 7, None])}),
    min_size=1,
    max_size=3,
).map(lambda parts: ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in parts))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=80) | TOKENS.map(of))
def test_whatever_a_client_sends_it_fails_as_told(tokens: OAuthTokens, content: bytes) -> None:
    assert reason(tokens, content).isprintable()


@pytest.mark.parametrize("nested", ["[" * 20_000, '{"a":' * 3_000])
def test_deep_tokens_are_refused(tokens: OAuthTokens, issuer: Issuer, nested: str) -> None:
    part = base64.urlsafe_b64encode(nested.encode()).decode().rstrip("=")

    assert reason(tokens, of(f"{part}.{part}.")) == "the token is not valid"


@pytest.mark.parametrize(
    "url", ["http://issuer.example.com/keys", "file:///etc/passwd", "keys", "ftp://127.0.0.1/keys"]
)
def test_keys_come_from_https_or_from_this_machine(url: str) -> None:
    with pytest.raises(InvalidOption, match="is not https://"):
        TokenRules(url, ISSUER, AUDIENCE)


def test_tokens_need_all_three_options(keys: KeyServer) -> None:
    for given_options in ({"oauth_jwks_url": keys.url}, {"oauth_issuer": ISSUER, "oauth_audience": AUDIENCE}):
        with pytest.raises(InvalidOption, match="Give --oauth-jwks-url, --oauth-issuer and --oauth-audience"):
            security(Environment(), **given_options)
    with pytest.raises(InvalidOption, match="must not be empty"):
        TokenRules(keys.url, ISSUER, "")


def test_a_client_with_a_token_is_served_until_it_expires(store: Store, issuer: Issuer, keys: KeyServer) -> None:
    rules = {"oauth_jwks_url": keys.url, "oauth_issuer": ISSUER, "oauth_audience": AUDIENCE}
    with running(store, security=security(Environment(), **rules)) as gateway, Client(gateway.port) as client:
        assert handshake(client, "OAUTHBEARER").mechanisms == ("OAUTHBEARER",)
        answer = message(client, of(issuer.token(lifetime_s=100)))
        assert answer.error_code is ErrorCode.none
        assert 90 < answer.session_lifetime.total_seconds() <= 100
        assert produce(client, ("t", 0, batch(b"v")))[0].error_code is ErrorCode.none
        handshake(client, "OAUTHBEARER")
        answer = message(client, of(issuer.token(lifetime_s=-1)))
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.sasl_authentication_failed,
            "OAUTHBEARER: the token has expired",
        )
        assert client.is_closed
        with Client(gateway.port) as stranger:
            stranger.send(ApiKey.METADATA, 1, topics=None)
            assert stranger.is_closed
