"""An issuer of tokens (JWT) for tests: its keys, and a server that publishes them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://issuer.example.com"
AUDIENCE = "eoslog"


class Issuer:
    """An issuer with a key of its own."""

    def __init__(self, key_id: str = "first", algorithm: str = "RS256") -> None:
        self.key_id = key_id
        self._algorithm = algorithm
        is_rsa = algorithm[0] in "RP"
        self._key: Any = rsa.generate_private_key(65_537, 2_048) if is_rsa else ec.generate_private_key(ec.SECP256R1())

    def public_key(self) -> dict[str, Any]:
        """Return the public key (JWK)."""
        kind: Any = jwt.algorithms.RSAAlgorithm if self._algorithm[0] in "RP" else jwt.algorithms.ECAlgorithm
        key: dict[str, Any] = kind.to_jwk(self._key.public_key(), as_dict=True)
        return {**key, "kid": self.key_id, "use": "sig", "alg": self._algorithm}

    def token(self, *, lifetime_s: float = 600, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token. A claim that is None is left out."""
        now = time.time()
        whole = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": int(now),
            "exp": int(now + lifetime_s),
            **claims,
        }
        present = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(present, self._key, self._algorithm, {"kid": self.key_id, **(header or {})})


class KeyServer:
    """What a server of keys answers. Tests change it."""

    def __init__(self) -> None:
        self.url = ""
        self.content = b""
        self.requests = 0
        self.is_down = False
        self.answers = threading.Event()
        """Requests wait until it is set."""
        self.answers.set()

    def publish(self, *keys: dict[str, Any]) -> None:
        self.content = json.dumps({"keys": keys}).encode()


@contextmanager
def key_server(*issuers: Issuer) -> Iterator[KeyServer]:
    """Run a server of the keys of issuers."""
    found = KeyServer()
    found.publish(*(issuer.public_key() for issuer in issuers))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.requests += 1
            found.answers.wait()
            self.send_response(503 if found.is_down else 200)
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/keys"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        found.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
