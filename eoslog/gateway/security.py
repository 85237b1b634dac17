"""The security of a gateway: the authentication of its clients, and the encryption of their connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eoslog.errors import InvalidOption
from eoslog.gateway.authentication import Mechanisms
from eoslog.gateway.oauth import OAuthTokens, TokenRules
from eoslog.gateway.scram import ScramUsers
from eoslog.gateway.tls import Tls
from eoslog.storage.environment import Environment


@dataclass(frozen=True)
class Security:
    """The security of a gateway's connections."""

    tls: Tls | None = None
    """None: connections are not encrypted."""
    mechanisms: Mechanisms = field(default_factory=dict)
    """The mechanisms of SASL. Without any, every client may do everything."""

    @property
    def protocol(self) -> str:
        """The setting ``security.protocol`` of clients."""
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        return f"SASL_{transport}" if self.mechanisms else transport


OPEN = Security()
"""Every client of this machine may do everything."""


def security(
    environment: Environment,
    *,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    users: Path | None = None,
    oauth_jwks_url: str | None = None,
    oauth_issuer: str | None = None,
    oauth_audience: str | None = None,
) -> Security:
    """Return the security that these options ask for.

    Raises:
        InvalidOption: an option is missing, or a file cannot be used.
    """
    if (tls_certificate is None) != (tls_key is None):
        raise InvalidOption("TLS needs both a certificate and its private key. Give --tls-certificate and --tls-key")
    tls = None if tls_certificate is None or tls_key is None else Tls(tls_certificate, tls_key)
    scram: Mechanisms = {} if users is None else ScramUsers(users).mechanisms()
    if oauth_jwks_url is None and oauth_issuer is None and oauth_audience is None:
        return Security(tls, scram)
    if oauth_jwks_url is None or oauth_issuer is None or oauth_audience is None:
        raise InvalidOption(
            "tokens need a source of keys, an issuer and an audience. Give --oauth-jwks-url, --oauth-issuer and "
            "--oauth-audience"
        )
    rules = TokenRules(oauth_jwks_url, oauth_issuer, oauth_audience)
    return Security(tls, {**scram, **OAuthTokens(rules, environment).mechanisms()})
