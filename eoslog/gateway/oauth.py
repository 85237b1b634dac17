"""OAUTHBEARER: clients show a token (JWT) that an issuer has signed."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import jwt

from eoslog.errors import InvalidOption
from eoslog.gateway.addresses import is_loopback
from eoslog.gateway.authentication import AuthenticationFailed, Identity, MechanismAnswer, Mechanisms
from eoslog.storage.environment import Environment, host_time_ms
from eoslog.wording import quoted

_logger = logging.getLogger(__name__)
_ALGORITHMS = ("EdDSA", *(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)))
"""Signatures by a private key. With a shared secret, each gateway could issue tokens."""
_LONGEST_MESSAGE = 64 << 10
_HEADER = re.compile(rb"n,(?:a=([^,]*))?,")
_BEARER = re.compile(rb"auth=bearer +([\w.-]+)", re.IGNORECASE)
_SKEW_S = 30
"""The clock of an issuer may be ahead by this much. A token that has expired by this host's clock is refused."""
_LONGEST_SESSION_MS = 365 * 86_400_000
_FETCH_TIMEOUT_S = 5
_REFRESH_MS = 300_000
_RETRY_MS = 10_000
_KEPT_MS = 3_600_000
"""The keys of an issuer that cannot be reached are used for this long."""
_REASONS: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidIssuerError: "the token is from another issuer",
    jwt.InvalidSignatureError: "the signature of the token is wrong",
    jwt.MissingRequiredClaimError: "the token lacks one of the claims exp, iss, aud and sub",
}


@dataclass(frozen=True)
class TokenRules:
    """The rules for tokens that the gateway accepts."""

    jwks_url: str
    """The URL at which the issuer publishes its keys (JWKS)."""
    issuer: str
    audience: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.jwks_url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise InvalidOption(
                f"{quoted(self.jwks_url)} is not https://, so a stranger could replace the keys of the issuer"
            )
        if not self.issuer or not self.audience:
            raise InvalidOption("the issuer and the audience of tokens must not be empty")


class OAuthTokens:
    """Tokens of an issuer."""

    def __init__(self, rules: TokenRules, environment: Environment) -> None:
        self._rules = rules
        self._keys = _Keys(rules.jwks_url, environment)

    def mechanisms(self) -> Mechanisms:
        return {"OAUTHBEARER": lambda: self}

    def answer(self, content: bytes) -> MechanismAnswer:
        """Check the only message of a client."""
        # A header, then pairs of names and values, each after the byte 1, and two such bytes.
        begin, *pairs = content.split(b"\x01") if len(content) <= _LONGEST_MESSAGE else [b""]
        header = _HEADER.fullmatch(begin)
        tokens = [match for pair in pairs if (match := _BEARER.fullmatch(pair))]
        if header is None or len(tokens) != 1 or pairs[-2:] != [b"", b""]:
            raise AuthenticationFailed("OAUTHBEARER: this is no message of the mechanism with a bearer token")
        identity = self._identity(tokens[0][1].decode())
        if header[1] and header[1] != identity.principal.encode():
            raise AuthenticationFailed("OAUTHBEARER: the client asks for another identity than that of its token")
        return MechanismAnswer(identity=identity)

    def _identity(self, token: str) -> Identity:
        try:
            key = self._keys.key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                [key.algorithm_name],
                {"require": ["exp", "iss", "aud", "sub"]},
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                leeway=_SKEW_S,
            )
            lifetime_ms = int(claims["exp"]) * 1_000 - host_time_ms()
            if lifetime_ms <= 0:
                raise jwt.ExpiredSignatureError
        except jwt.PyJWTError as error:
            # The text of the cause may have parts of the token.
            reason = next(
                (text for kind, text in _REASONS.items() if isinstance(error, kind)), "the token is not valid"
            )
            raise AuthenticationFailed(f"OAUTHBEARER: {reason}") from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise AuthenticationFailed("OAUTHBEARER: the token is not valid") from None
        if not claims["sub"] or not claims["sub"].isprintable():
            raise AuthenticationFailed("OAUTHBEARER: the token names no principal (sub)")
        return Identity(claims["sub"], min(lifetime_ms, _LONGEST_SESSION_MS))


class _Keys:
    """The public keys of an issuer. They are fetched again after a while, and if a token has another key."""

    def __init__(self, url: str, environment: Environment) -> None:
        self._client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=_FETCH_TIMEOUT_S)
        self._url = url
        self._environment = environment
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_ms: int | None = None
        self._tried_ms: int | None = None
        self._tried = threading.Event()
        """Set when the newest fetch has ended."""
        self._tried.set()

    def key(self, key_id: str | None) -> jwt.PyJWK:
        """Return a key of the issuer."""
        now = self._environment.monotonic_ms()
        with self._lock:
            is_old = self._fetched_ms is None or now - self._fetched_ms >= _REFRESH_MS
            # Strangers send tokens of any key. They must not make the gateway send one request after the other.
            may_try = self._tried.is_set() and (self._tried_ms is None or now - self._tried_ms >= _RETRY_MS)
            begins = may_try and (is_old or key_id not in self._keys)
            if begins:
                self._tried_ms, self._tried = now, threading.Event()
                # Not in this thread: a request to an issuer may take any time.
                self._environment.background(partial(self._fetch, now, self._tried))
            # While a fetch goes on, clients with a known key do not wait, and nobody waits for long: other clients need
            # this thread.
            must_wait = begins or key_id not in self._keys
            tried, waited_ms = self._tried, now - (now if self._tried_ms is None else self._tried_ms)
        if must_wait:
            self._environment.wait_for(tried, max(0.0, _FETCH_TIMEOUT_S - waited_ms / 1000))
        with self._lock:
            if self._fetched_ms is not None and now - self._fetched_ms >= _KEPT_MS:
                self._keys = {}
            if key_id is None or key_id not in self._keys:
                raise AuthenticationFailed("OAUTHBEARER: the gateway does not know the key of the token")
            return self._keys[key_id]

    def _fetch(self, now: int, tried: threading.Event) -> None:
        try:
            found = self._client.get_signing_keys()
        except Exception as error:
            # The answer of the server may be anything.
            _logger.warning("the keys of the issuer cannot be fetched from %s: %s", self._url, type(error).__name__)
        else:
            with self._lock:
                self._keys = {str(key.key_id): key for key in found if key.algorithm_name in _ALGORITHMS}
                self._fetched_ms = now
        finally:
            tried.set()
