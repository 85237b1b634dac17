"""The authentication of a connection (SASL): a state machine without I/O.

A client names a mechanism (SaslHandshake), and then sends the messages of the mechanism (SaslAuthenticate). A failure
ends the connection. An authenticated client may authenticate again, as the same principal and by the same mechanism. It
must do so before its session ends (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from eoslog.wording import quoted


@dataclass(frozen=True)
class Identity:
    """An authenticated client."""

    principal: str
    lifetime_ms: int | None = None
    """How long the authentication is valid from now on (ms); None: without end."""


@dataclass(frozen=True)
class MechanismAnswer:
    """The reaction of a mechanism to a message of the client."""

    content: bytes = field(default=b"", repr=False)
    """The message for the client."""
    identity: Identity | None = None
    """None: the exchange of messages goes on."""


class Exchange(Protocol):
    """The messages of one authentication by a mechanism."""

    def answer(self, content: bytes) -> MechanismAnswer:
        """Return the reaction to the client's next message.

        Raises:
            AuthenticationFailed
        """


class AuthenticationFailed(Exception):
    """The authentication failed. The text is for the client and for the log: it has nothing secret."""


Mechanisms: TypeAlias = Mapping[str, Callable[[], Exchange]]
"""Functions that begin an exchange, by the name of its mechanism."""


@dataclass(frozen=True)
class HandshakeAnswer:
    """The answer to SaslHandshake."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


@dataclass(frozen=True)
class AuthenticateAnswer:
    """The answer to SaslAuthenticate."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    content: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int = 0
    """After this time the client must have authenticated again (ms); 0: never."""


class _State(Enum):
    STRANGER = auto()
    EXCHANGE = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


_SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_NOT_OFFERED = "the gateway offers no authentication by SASL"


class Authentication:
    """The authentication of one connection."""

    def __init__(self, mechanisms: Mechanisms, monotonic_ms: Callable[[], int]) -> None:
        """
        Args:
            mechanisms: the mechanisms that clients may choose. Without any, every client may do everything.
        """
        self._mechanisms = mechanisms
        self._monotonic_ms = monotonic_ms
        self._state = _State.STRANGER if mechanisms else _State.AUTHENTICATED
        self.mechanism: str | None = None
        """The mechanism that the client has chosen."""
        self._exchange: Exchange | None = None
        self._ends_ms: int | None = None
        """When the session ends, by the monotonic clock; None: never."""
        self.principal: str | None = None
        """The name of the client since its first authentication."""

    @property
    def is_authenticated(self) -> bool:
        return self._state is _State.AUTHENTICATED

    @property
    def has_failed(self) -> bool:
        """True if the connection ends after the next answer."""
        return self._state is _State.FAILED

    def refusal(self, key: int) -> str | None:
        """Return why the client may not send a request of this type now; None if it may."""
        if key in _SASL:
            return None
        # Also the versions of requests: a client that asks for them again and again would keep its connection for ever.
        if self._ends_ms is not None and self._monotonic_ms() >= self._ends_ms:
            return "its session has ended, and it did not authenticate again"
        if self.is_authenticated or key == ApiKey.API_VERSIONS:
            return None
        return f"it sent a request of the type {key} before it was authenticated"

    def handshake(self, mechanism: str) -> HandshakeAnswer:
        """Answer a client that names its mechanism."""
        # A client that authenticates again keeps its mechanism: names of two mechanisms may mean two principals.
        offered = tuple(self._mechanisms) if self.mechanism is None else (self.mechanism,)
        if self._state not in (_State.STRANGER, _State.AUTHENTICATED) or not self._mechanisms:
            self._state = _State.FAILED
            return HandshakeAnswer(ErrorCode.illegal_sasl_state, offered)
        if mechanism not in offered:
            self._state = _State.FAILED
            return HandshakeAnswer(ErrorCode.unsupported_sasl_mechanism, offered)
        self.mechanism = mechanism
        self._exchange = self._mechanisms[mechanism]()
        self._state = _State.EXCHANGE
        return HandshakeAnswer(ErrorCode.none, offered)

    def authenticate(self, content: bytes) -> AuthenticateAnswer:
        """Answer a message of the client's mechanism."""
        if self._state is not _State.EXCHANGE or self._exchange is None:
            self._state = _State.FAILED
            message = "SaslHandshake comes first" if self._mechanisms else _NOT_OFFERED
            return AuthenticateAnswer(ErrorCode.illegal_sasl_state, message)
        try:
            answer = self._exchange.answer(content)
            if answer.identity is None:
                return AuthenticateAnswer(content=answer.content)
            self._admit(answer.identity)
        except AuthenticationFailed as failure:
            self._state = _State.FAILED
            return AuthenticateAnswer(ErrorCode.sasl_authentication_failed, str(failure))
        return AuthenticateAnswer(content=answer.content, session_lifetime_ms=answer.identity.lifetime_ms or 0)

    def _admit(self, identity: Identity) -> None:
        if self.principal not in (None, identity.principal):
            raise AuthenticationFailed(f"this connection belongs to {quoted(self.principal)}")
        self.principal = identity.principal
        self._exchange = None
        lifetime_ms = identity.lifetime_ms
        self._ends_ms = None if lifetime_ms is None else self._monotonic_ms() + lifetime_ms
        self._state = _State.AUTHENTICATED
